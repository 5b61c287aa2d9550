// SPDX-License-Identifier: Apache-2.0
// `octile table ...`: work on table files.
#include "octile/cli/commands.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/output.h"
#include "octile/core/format.h"
#include "octile/core/json_file.h"
#include "octile/kernels/known_devices.h"
#include "octile/report/bench_record.h"
#include "octile/report/json_report.h"
#include "octile/report/text_report.h"
#include "octile/report/text_table.h"
#include "octile/report/vendor_finds.h"
#include "octile/table/table_ops.h"
#include "octile/table/table_store.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <utility>

namespace octile::cli {
namespace {

namespace fs = std::filesystem;

void warn(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

// Reads every file; entries that are left out are named on stderr.
Expected<std::vector<TileTable>> read_tables(const std::vector<std::string>& files) {
  std::vector<TileTable> tables;
  for (const std::string& file : files) {
    std::vector<Finding> findings;
    auto table = read_table(file, findings);
    warn(findings_text(findings));
    if (!table) {
      // A file that is broken is the work's failure, not a wrong argument.
      return Error{ErrorCode::corrupt, std::move(table).error().message};
    }
    tables.push_back(*std::move(table));
  }
  return tables;
}

std::string path_in(const std::string& directory, const TileTable& table) {
  return (fs::path(directory) / table_file_name(table.key, table.field_format)).string();
}

constexpr const char* kOwnExtension = ".octile.json";

// The paths, of directories every table of our own format in them and below, sorted.
std::vector<std::string> own_tables_among(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> found;
    for (fs::recursive_directory_iterator item(path, error); !error && item != fs::recursive_directory_iterator();
         item.increment(error)) {
      if (item->path().string().ends_with(kOwnExtension)) {
        found.push_back(item->path().string());
      }
    }
    std::ranges::sort(found);
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

std::string show_text(const TileTable& table) {
  std::string text;
  for (const auto& [name, value] : describe_table(table)) {
    text += format("{}: {}\n", name, value);
  }
  TextTable rows;
  for (const std::string& title : show_titles()) {
    rows.columns.push_back({title, Align::left});
  }
  for (const TableRow& row : show_rows(table)) {
    rows.rows.push_back(
        {row.m, row.kernel, row.config, row.us, row.baseline_us, row.best_vendor_us, row.ratio, row.rel_error, row.note});
  }
  return text + rows.to_string();
}

int finish(const Expected<void>& written) { return written ? kDone : fail(written.error()); }

// What a table operation says of its input is about the files' content: status 1.
int fail_work(const Error& error) {
  return fail({error.code == ErrorCode::invalid_argument ? ErrorCode::failed : error.code, error.message});
}

}  // namespace

int run_table_lint(const TableLintArgs& args) {
  std::int64_t shared_memory_bytes = 0;
  if (!args.device_name.empty()) {
    const auto device = known_device(args.device_name);
    if (!device) {
      return fail(
          make_error(ErrorCode::invalid_argument, "--device-name: nothing is known of a device named {}", args.device_name));
    }
    shared_memory_bytes = device->shared_memory_bytes;
  }
  const LintReport report = lint_tables(args.paths, shared_memory_bytes);
  const std::string text = format("{}{} files looked at, {} findings\n", findings_text(report.findings), report.files.size(),
                                  report.findings.size());
  const auto written = write_result(text, args.json, [&] { return findings_json(report.ok(), report.findings); });
  if (!written) {
    return fail(written.error());
  }
  return report.ok() ? kDone : kFailed;
}

int run_table_show(const TableShowArgs& args) {
  const auto tables = read_tables(args.files);
  if (!tables) {
    return fail(tables.error());
  }
  std::string text;
  for (const TileTable& table : *tables) {
    text += text.empty() ? "" : "\n";
    text += show_text(table);
  }
  return finish(write_stdout(text));
}

int run_table_diff(const TableDiffArgs& args) {
  const auto tables = read_tables({args.left, args.right});
  if (!tables) {
    return fail(tables.error());
  }
  TextTable table{{{"where"}, {"differs in"}, {args.left}, {args.right}}, {}};
  for (const TableDifference& difference : diff_tables(tables->front(), tables->back())) {
    table.rows.push_back(
        {difference.where, difference.choice ? "choice" : "keys or proof", difference.left, difference.right});
  }
  const bool same = table.rows.empty();
  const auto written = write_stdout(same ? "no difference\n" : table.to_string());
  if (!written) {
    return fail(written.error());
  }
  return same ? kDone : kFailed;
}

int run_table_merge(const TableMergeArgs& args) {
  std::error_code ignored;
  const auto is_directory = [&](const std::string& path) { return fs::is_directory(path, ignored); };
  const bool into_directory = is_directory(args.out) || std::ranges::any_of(args.files, is_directory);
  auto tables = read_tables(into_directory ? own_tables_among(args.files) : args.files);
  if (!tables) {
    return fail(tables.error());
  }
  if (tables->empty()) {
    return fail({ErrorCode::invalid_argument, format("there is no *{} in {}", kOwnExtension, join(args.files, ", "))});
  }
  std::map<std::string, std::vector<TileTable>> of_path;
  for (TileTable& table : *tables) {
    const std::string path = into_directory ? path_in(args.out, table) : args.out;
    of_path[path].push_back(std::move(table));
  }
  std::string text;
  for (const auto& [path, same] : of_path) {
    std::size_t entries = 0;
    // What the file already holds takes part: merging into it loses nothing.
    const auto written = update_own_table(path, [&](const TileTable* current) {
      std::vector<TileTable> all = same;
      if (current != nullptr) {
        all.push_back(*current);
      }
      auto merged = merge_tables(all);
      entries = merged ? merged->entries.size() : 0;
      return merged;
    });
    if (!written) {
      return fail_work(written.error());
    }
    text += format("wrote {}: {} entries of {} files\n", path, entries, same.size());
  }
  return finish(write_stdout(text));
}

int run_table_import(const TableImportArgs& args) {
  const auto tables = read_tables(args.files);
  if (!tables) {
    return fail(tables.error());
  }
  std::string text;
  for (const TileTable& field : *tables) {
    const auto own = import_field_table(field, {}, args.nearest ? ImportRanges::nearest : ImportRanges::points);
    if (!own) {
      return fail_work(own.error());
    }
    const std::string path = path_in(args.out, *own);
    // What was measured there stays: merging prefers it to what is imported.
    const auto add_to = [&](const TileTable* current) {
      return current == nullptr ? Expected<TileTable>(*own) : merge_tables({*current, *own});
    };
    if (auto written = update_own_table(path, add_to); !written) {
      return fail_work(written.error());
    }
    text += format("wrote {}: {} entries\n", path, own->entries.size());
  }
  return finish(write_stdout(text));
}

int run_table_adopt(const TableAdoptArgs& args) {
  const auto record = read_bench_record(args.record);
  if (!record) {
    return fail(record.error());
  }
  auto tables = read_tables(own_tables_among({args.tables}));
  if (!tables) {
    return fail(tables.error());
  }
  std::erase_if(*tables, [&](const TileTable& table) { return table.key.device_name != record->result.device_name; });
  if (tables->empty()) {
    return fail(make_error(ErrorCode::failed, "{}: wanted tables of {}, of which {} is a record, got none", args.tables,
                           quote_for_message(record->result.device_name), args.record));
  }
  std::string text;
  // What was written before an error is said all the same.
  const auto stop = [&](const Error& error) {
    static_cast<void>(write_stdout(text));
    return fail_work({error.code, format("{}: {}", args.record, error.message)});
  };
  for (const TileTable& table : *tables) {
    std::vector<VendorFind> finds;
    const auto adopt = [&](const TileTable* current) -> Expected<TileTable> {
      const TileTable& now = current != nullptr ? *current : table;
      auto found = vendor_finds(*record, now);
      if (!found) {
        return found.error();
      }
      finds = *std::move(found);
      return adopt_vendor_finds(now, finds, fs::path(args.record).filename().string());
    };
    const auto found = vendor_finds(*record, table);
    if (!found) {
      return stop(found.error());
    }
    if (found->empty()) {
      continue;
    }
    if (auto written = update_own_table(table.file, adopt); !written) {
      return stop(written.error());
    }
    for (const VendorFind& find : finds) {
      text += format("{} m={}: {} {} is {:.3f}x (at least {:.3f}x) as fast as {}\n", find.shape, find.entry.m_lo,
                     find.entry.kernel, find.entry.config.to_json(), find.gain, find.gain_lo, find.beaten);
    }
    text += format("wrote {}\n", table.file);
  }
  if (text.empty()) {
    text = format(
        "nothing to adopt: no algorithm of a vendor in {} beats a choice of the tables of {} in {} by more than 2 %\n",
        args.record, record->result.device_name, args.tables);
  }
  return finish(write_stdout(text));
}

int run_table_export(const TableExportArgs& args) {
  if (!args.triton) {
    return fail({ErrorCode::invalid_argument, "say which format to export: --triton is the only one"});
  }
  const auto tables = read_tables(args.files);
  if (!tables) {
    return fail(tables.error());
  }
  std::string text;
  for (const TileTable& own : *tables) {
    const auto exported = export_field_table(own);
    if (!exported) {
      return fail_work(exported.error());
    }
    const std::string path = path_in(args.out, exported->table);
    if (auto written = write_field_table(exported->table, path); !written) {
      return fail_work(written.error());
    }
    text += format("wrote {}: {} tiles, {} null\n", path, exported->tiles, exported->nulls);
  }
  return finish(write_stdout(text));
}

}  // namespace octile::cli
