// SPDX-License-Identifier: Apache-2.0
// lint, show, diff, import and export of tables; merge has a file of its own.
#include "octile/table/table_ops.h"

#include "octile/core/format.h"
#include "octile/core/json_file.h"
#include "octile/table/field_format.h"
#include "octile/table/own_format.h"
#include "octile/table/table_store.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <system_error>

namespace octile {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

std::string interval_text(std::int64_t lo, std::int64_t hi) {
  return hi == kInt64Max ? format("[{}, ...]", lo) : format("[{}, {}]", lo, hi);
}

std::string number_text(const std::optional<double>& number) { return number ? format("{:.4g}", *number) : "-"; }

std::string ratio_text(const std::optional<Ratio>& ratio) {
  return ratio ? format("{:.3f} [{:.3f}, {:.3f}]", ratio->mid, ratio->lo, ratio->hi) : "-";
}

std::string choice_text(const TableEntry* entry) {
  if (entry == nullptr) {
    return "untuned";
  }
  return entry->kernel == kBaselineKernel ? entry->kernel : entry->kernel + " " + entry->config.to_json();
}

bool same_choice(const TableEntry* a, const TableEntry* b) {
  if (a == nullptr || b == nullptr) {
    return a == b;
  }
  return a->kernel == b->kernel && a->config == b->config;
}

// Everything of the proof, exactly: two proofs are the same where this is.
std::string proof_text(const TableEntry* entry) {
  if (entry == nullptr) {
    return "untuned";
  }
  const auto exact = [](const std::optional<double>& number) { return number ? format("{}", *number) : "-"; };
  std::string text = format("us {}, baseline_us {}, best_vendor_us {}, rel_error {}", exact(entry->us),
                            exact(entry->baseline_us), exact(entry->best_vendor_us), exact(entry->rel_error));
  if (entry->ratio) {
    text += format(", ratio {} [{}, {}]", entry->ratio->mid, entry->ratio->lo, entry->ratio->hi);
  }
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) {
      text += format(", {} {}", name, value);
    }
  };
  add("source hash", entry->kernel_source_hash);
  add("version", entry->vendor_version);
  add("date", entry->date);
  add("left out:", entry->left_out);
  return text + (entry->inferred ? ", inferred" : "");
}

// Tables among the paths: files as they are, of directories every *.json below.
std::vector<std::string> collect_files(const std::vector<std::string>& paths, std::vector<Finding>& findings) {
  std::set<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.insert(path);
      continue;
    }
    std::size_t found = 0;
    fs::recursive_directory_iterator item(path, error);
    for (; !error && item != fs::recursive_directory_iterator(); item.increment(error)) {
      if (item->path().extension() == ".json") {
        files.insert(item->path().string());
        ++found;
      }
    }
    if (error) {
      findings.push_back({path, "", "io", format("cannot list {}: {}", path, error.message())});
    } else if (found == 0) {
      findings.push_back({path, "", "no_tables", format("the directory {} holds no table (*.json)", path)});
    }
  }
  return {files.begin(), files.end()};
}

// Names and values of two maps side by side, where they differ.
void diff_values(const std::string& what, const std::map<std::string, std::string>& left,
                 const std::map<std::string, std::string>& right, std::vector<TableDifference>& differences) {
  std::set<std::string> names;
  for (const auto* side : {&left, &right}) {
    for (const auto& item : *side) {
      names.insert(item.first);
    }
  }
  const auto value_in = [](const std::map<std::string, std::string>& values, const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string("-") : found->second;
  };
  for (const std::string& name : names) {
    const std::string left_value = value_in(left, name);
    const std::string right_value = value_in(right, name);
    if (left_value != right_value) {
      differences.push_back({format("{} {}", what, name), left_value, right_value, false});
    }
  }
}

std::map<std::string, std::string> hard_key_map(const TileTable& table) {
  const auto keys = hard_keys(table.key);
  return {keys.begin(), keys.end()};
}

// The segment of `segments` that holds `m`, or nullptr; `next` moves forward over calls with ascending m.
const TableEntry* entry_at(const std::vector<TableSegment>& segments, std::size_t& next, std::int64_t m) {
  while (next < segments.size() && segments[next].m_hi < m) {
    ++next;
  }
  return next < segments.size() && segments[next].m_lo <= m ? segments[next].entry : nullptr;
}

// Every M at which a segment begins, or the M after it.
void collect_starts(const std::vector<TableSegment>& segments, std::set<std::int64_t>& starts) {
  for (const TableSegment& segment : segments) {
    starts.insert(segment.m_lo);
    if (segment.m_hi < kInt64Max) {
      starts.insert(segment.m_hi + 1);
    }
  }
}

}  // namespace

LintReport lint_tables(const std::vector<std::string>& paths, std::int64_t shared_memory_bytes) {
  LintReport report;
  report.files = collect_files(paths, report.findings);
  for (const std::string& file : report.files) {
    const std::optional<TileTable> table = load_table(file, report.findings);
    if (table && shared_memory_bytes > 0) {
      const std::vector<Finding> too_big = tiles_beyond_shared_memory(*table, shared_memory_bytes);
      report.findings.insert(report.findings.end(), too_big.begin(), too_big.end());
    }
  }
  return report;
}

std::vector<TableRow> show_rows(const TileTable& table) {
  std::vector<TableRow> rows;
  for (const TableEntry& entry : table.entries) {
    TableRow row;
    row.m = table.field_format ? std::to_string(entry.m_lo) : interval_text(entry.m_lo, entry.m_hi);
    row.kernel = entry.kernel;
    row.config = entry.config.values.empty() ? "" : entry.config.to_json();
    row.us = number_text(entry.us);
    row.baseline_us = number_text(entry.baseline_us);
    row.best_vendor_us = number_text(entry.best_vendor_us);
    row.ratio = ratio_text(entry.ratio);
    row.rel_error = number_text(entry.rel_error);
    row.note = entry.left_out.empty() ? "" : "left out: " + entry.left_out;
    row.note += entry.inferred ? "inferred" : "";
    row.note += row.note.empty() || entry.date.empty() ? entry.date : ", " + entry.date;
    rows.push_back(std::move(row));
  }
  return rows;
}

const std::vector<std::string>& show_titles() {
  static const std::vector<std::string> titles = {"M",     "kernel",    "config", "us", "baseline_us", "best_vendor_us",
                                                  "ratio", "rel_error", "note"};
  return titles;
}

std::vector<std::pair<std::string, std::string>> describe_table(const TileTable& table) {
  std::vector<std::pair<std::string, std::string>> lines;
  lines.emplace_back("file", table.file);
  lines.emplace_back("format", table.field_format ? "field" : format("octile {}", kTableFormat));
  if (table.field_format) {
    // The other hard keys are not stated by such a file.
    lines.emplace_back("device_name", table.key.device_name);
    lines.emplace_back("n", std::to_string(table.key.n));
    lines.emplace_back("k", std::to_string(table.key.k));
    lines.emplace_back("scheme", table.key.scheme);
    return lines;
  }
  for (auto& line : hard_keys(table.key)) {
    lines.push_back(std::move(line));
  }
  lines.insert(lines.end(), table.provenance.begin(), table.provenance.end());
  return lines;
}

std::vector<TableDifference> diff_tables(const TileTable& left, const TileTable& right) {
  std::vector<TableDifference> differences;
  if (left.field_format != right.field_format) {
    const auto name = [](const TileTable& table) { return std::string(table.field_format ? "field" : "octile"); };
    differences.push_back({"format", name(left), name(right), false});
  }
  diff_values("key", hard_key_map(left), hard_key_map(right), differences);
  diff_values("provenance", left.provenance, right.provenance, differences);

  const std::vector<TableSegment> left_segments = segments_of(left);
  const std::vector<TableSegment> right_segments = segments_of(right);
  std::set<std::int64_t> starts;
  collect_starts(left_segments, starts);
  collect_starts(right_segments, starts);
  std::size_t left_next = 0;
  std::size_t right_next = 0;
  for (auto start = starts.begin(); start != starts.end(); ++start) {
    const auto after = std::next(start);
    const std::int64_t end = after == starts.end() ? kInt64Max : *after - 1;
    const TableEntry* const a = entry_at(left_segments, left_next, *start);
    const TableEntry* const b = entry_at(right_segments, right_next, *start);
    const std::string where = "M " + interval_text(*start, end);
    if (!same_choice(a, b)) {
      differences.push_back({where, choice_text(a), choice_text(b), true});
    } else if (proof_text(a) != proof_text(b)) {
      differences.push_back({where, proof_text(a), proof_text(b), false});
    }
  }
  return differences;
}

Expected<TileTable> import_field_table(const TileTable& field, const TableKey& key, ImportRanges ranges) {
  if (!field.field_format) {
    return make_error(ErrorCode::invalid_argument, "{} is a table in Octile's own format already", field.file);
  }
  // The caller's word on what the file's name states must be the same, or left open.
  const bool other_shape = (key.n != 0 && key.n != field.key.n) || (key.k != 0 && key.k != field.key.k);
  const bool other_device = !key.device_name.empty() && key.device_name != field.key.device_name;
  if (other_shape || other_device || key.scheme != field.key.scheme) {
    return make_error(ErrorCode::invalid_argument, "{} is for {}, wanted {}", field.file, table_file_name(field.key, true),
                      table_file_name(key, true));
  }
  TileTable table;
  table.key = key;
  table.key.n = field.key.n;
  table.key.k = field.key.k;
  table.key.device_name = field.key.device_name;
  table.provenance["imported_from"] = fs::path(field.file).filename().string();
  table.provenance["protocol"] = "imported from the field's format; not measured here";

  std::int64_t largest_key = 0;
  for (const TableEntry& entry : field.entries) {
    largest_key = std::max(largest_key, entry.m_lo);
  }
  for (const TableSegment& segment : segments_of(field)) {
    if (!segment.entry->left_out.empty()) {
      continue;
    }
    TableEntry entry = *segment.entry;
    if (ranges == ImportRanges::nearest) {
      entry.m_lo = segment.m_lo;
      entry.m_hi = std::min(segment.m_hi, largest_key);
      entry.inferred = entry.m_lo != entry.m_hi;
    }
    table.entries.push_back(std::move(entry));
  }
  return table;
}

Expected<ExportedTable> export_field_table(const TileTable& own) {
  if (own.field_format) {
    return make_error(ErrorCode::invalid_argument, "{} is a table in the field's format already", own.file);
  }
  ExportedTable result;
  result.table.key = own.key;
  result.table.field_format = true;
  const auto add = [&](std::int64_t m, const TableEntry* source) {
    if (!result.table.entries.empty() && result.table.entries.back().m_lo == m) {
      return;
    }
    TableEntry entry;
    entry.m_lo = entry.m_hi = m;
    entry.kernel = kBaselineKernel;
    if (source != nullptr && source->kernel != kBaselineKernel && check_field_tile(source->config)) {
      entry.kernel = kFieldKernel;
      entry.config = source->config;
    }
    ++(entry.kernel == kFieldKernel ? result.tiles : result.nulls);
    result.table.entries.push_back(std::move(entry));
  };
  std::int64_t next = 1;  // The first M that no interval so far has reached.
  for (const TableEntry& entry : own.entries) {
    if (entry.m_lo > next) {
      add(next, nullptr);
      add(entry.m_lo - 1, nullptr);
    }
    add(entry.m_lo, &entry);
    add(entry.m_hi, &entry);
    if (entry.m_hi == kInt64Max) {
      return result;
    }
    next = entry.m_hi + 1;
  }
  add(next, nullptr);
  return result;
}

}  // namespace octile
