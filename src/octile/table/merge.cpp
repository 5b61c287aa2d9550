// SPDX-License-Identifier: Apache-2.0
// Merging tables of several tuning runs into one, the same whatever the order they are given in.
#include "octile/core/format.h"
#include "octile/table/own_format.h"
#include "octile/table/table_ops.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>
#include <span>
#include <utility>

namespace octile {

namespace {

std::string provenance_value(const TileTable& table, const char* name) {
  const auto found = table.provenance.find(name);
  return found == table.provenance.end() ? std::string() : found->second;
}

std::string name_of(const TileTable& table) { return table.file.empty() ? "a table in memory" : table.file; }

Expected<void> check_hard_keys(const TileTable& first, const TileTable& other) {
  const auto wanted = hard_keys(first.key);
  const auto came = hard_keys(other.key);
  // The names differ where one is a CPU's and the other a GPU's: the device_name, which stands first, does then too.
  for (std::size_t i = 0; i < std::min(wanted.size(), came.size()); ++i) {
    if (wanted[i] != came[i]) {
      return make_error(ErrorCode::invalid_argument, "hard keys differ: {} is \"{}\" in {} and {} is \"{}\" in {}",
                        wanted[i].first, wanted[i].second, name_of(first), came[i].first, came[i].second, name_of(other));
    }
  }
  // A key that a table states only where it is not 0.
  if (first.key.max_sms != other.key.max_sms) {
    return make_error(ErrorCode::invalid_argument, "hard keys differ: max_sms is \"{}\" in {} and \"{}\" in {}",
                      first.key.max_sms, name_of(first), other.key.max_sms, name_of(other));
  }
  return {};
}

// An entry with what decides between it and others.
struct Candidate {
  TableEntry entry;
  std::string text;  // Its place in a fixed order, where nothing else decides.
  std::size_t age = 0;

  bool better_than(const Candidate& other) const {
    if (entry.inferred != other.entry.inferred) {
      return other.entry.inferred;
    }
    if (age != other.age) {
      return age < other.age;
    }
    if (entry.date != other.entry.date) {
      return entry.date > other.entry.date;
    }
    const double lo = entry.ratio ? entry.ratio->lo : 0.0;
    const double other_lo = other.entry.ratio ? other.entry.ratio->lo : 0.0;
    if (lo != other_lo) {
      return lo > other_lo;
    }
    return text < other.text;
  }
};

// A table with one entry as text: the order of last resort, which knows of every field.
Expected<std::string> text_of(const TableKey& key, const TableEntry& entry) {
  TileTable table;
  table.key = key;
  table.entries.push_back(entry);
  return own_table_text(table);
}

// Keeps every name; where values differ, that of the table with the later date, then the larger text.
std::map<std::string, std::string> merge_provenance(const std::vector<TileTable>& tables) {
  std::map<std::string, std::pair<std::string, std::string>> chosen;  // Name -> date and value.
  for (const TileTable& table : tables) {
    const std::string date = provenance_value(table, "date");
    for (const auto& [name, value] : table.provenance) {
      std::pair<std::string, std::string> candidate{date, value};
      const auto [place, is_new] = chosen.try_emplace(name, candidate);
      if (!is_new && place->second < candidate) {
        place->second = std::move(candidate);
      }
    }
  }
  std::map<std::string, std::string> result;
  for (auto& [name, value] : chosen) {
    result.emplace(name, std::move(value.second));
  }
  return result;
}

// What is left of one entry after the others took theirs. An end that was cut was not measured, and neither was any of an
// inferred entry: the format promises intervals verified at both ends.
struct Piece {
  TableEntry entry;
  bool is_whole_source_measured = false;
  bool is_lo_measured = false;
  bool is_hi_measured = false;
};

// Pieces that touch and make the same choice are one interval again where its two ends were measured: where an end in the
// middle was cut, it was cut by the same choice.
void append_joined(std::span<const Piece> run, std::vector<TableEntry>& out) {
  std::size_t first = 0;
  std::size_t last = 0;
  for (std::size_t i = run.size(); i-- > 0;) {
    first = run[i].is_lo_measured ? i : first;
  }
  for (std::size_t i = 0; i < run.size(); ++i) {
    last = run[i].is_hi_measured ? i : last;
  }
  const bool is_joined = first < last && run[first].is_lo_measured && run[last].is_hi_measured;
  for (std::size_t i = 0; i < run.size(); ++i) {
    if (is_joined && i > first && i <= last) {
      extend_entry(out.back(), run[i].entry);
      continue;
    }
    out.push_back(run[i].entry);
    out.back().inferred = !(is_joined && i == first) && !(run[i].is_lo_measured && run[i].is_hi_measured);
  }
}

bool continues_run(const Piece& a, const Piece& b) {
  return a.entry.m_hi + 1 == b.entry.m_lo && a.is_whole_source_measured && b.is_whole_source_measured &&
         a.entry.kernel == b.entry.kernel && a.entry.config == b.entry.config &&
         a.entry.kernel_source_hash == b.entry.kernel_source_hash && a.entry.vendor_version == b.entry.vendor_version &&
         a.entry.ratio.has_value() == b.entry.ratio.has_value();
}

}  // namespace

void extend_entry(TableEntry& entry, const TableEntry& next) {
  entry.m_hi = next.m_hi;
  if (next.rel_error) {
    entry.rel_error = std::max(entry.rel_error.value_or(0), *next.rel_error);
  }
  if (entry.ratio && next.ratio && next.ratio->lo < entry.ratio->lo) {
    entry.ratio = next.ratio;
    entry.us = next.us;
    entry.baseline_us = next.baseline_us;
    entry.best_vendor_us = next.best_vendor_us;
  }
  entry.date = std::min(entry.date, next.date);
}

namespace {

// `ages`, one for each table: the smaller goes before the larger, whatever the dates.
Expected<TileTable> merge(const std::vector<TileTable>& tables, const std::vector<std::size_t>& ages) {
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const TileTable& table = tables[i];
    if (table.field_format) {
      return make_error(ErrorCode::invalid_argument, "{} is in the field's format: import it first", name_of(table));
    }
    if (Expected<void> same = check_hard_keys(tables.front(), table); !same) {
      return same.error();
    }
    const std::string date = provenance_value(table, "date");
    for (TableEntry entry : table.entries) {
      if (entry.date.empty()) {
        entry.date = date;
      }
      Expected<std::string> text = text_of(table.key, entry);
      if (!text) {
        return make_error(text.error().code, "{}: {}", name_of(table), text.error().message);
      }
      candidates.push_back({std::move(entry), std::move(*text), ages[i]});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) { return a.better_than(b); });

  TileTable merged;
  merged.key = tables.front().key;
  merged.provenance = merge_provenance(tables);

  // A sweep over M: between two starts the same candidates hold, and the first of them in the order above serves.
  struct Event {
    std::int64_t m;
    bool opens;
    std::size_t candidate;
  };
  std::vector<Event> events;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    events.push_back({candidates[i].entry.m_lo, true, i});
    if (candidates[i].entry.m_hi < std::numeric_limits<std::int64_t>::max()) {
      events.push_back({candidates[i].entry.m_hi + 1, false, i});
    }
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.m < b.m; });
  std::set<std::size_t> open;
  std::vector<Piece> pieces;
  const Candidate* last = nullptr;  // Whose piece was appended last, if nothing but it was seen since.
  for (std::size_t i = 0; i < events.size();) {
    const std::int64_t m = events[i].m;
    for (; i < events.size() && events[i].m == m; ++i) {
      if (events[i].opens) {
        open.insert(events[i].candidate);
      } else {
        open.erase(events[i].candidate);
      }
    }
    if (open.empty()) {
      last = nullptr;
      continue;
    }
    const std::int64_t hi = i < events.size() ? events[i].m - 1 : std::numeric_limits<std::int64_t>::max();
    const Candidate& best = candidates[*open.begin()];
    if (last != &best) {
      pieces.push_back({best.entry, !best.entry.inferred, !best.entry.inferred && m == best.entry.m_lo, false});
      pieces.back().entry.m_lo = m;
    }
    pieces.back().entry.m_hi = hi;
    pieces.back().is_hi_measured = !best.entry.inferred && hi == best.entry.m_hi;
    last = &best;
  }
  for (std::size_t begin = 0; begin < pieces.size();) {
    std::size_t end = begin + 1;
    while (end < pieces.size() && continues_run(pieces[end - 1], pieces[end])) {
      ++end;
    }
    append_joined(std::span(pieces).subspan(begin, end - begin), merged.entries);
    begin = end;
  }
  return merged;
}

}  // namespace

Expected<TileTable> merge_tables(const std::vector<TileTable>& tables) {
  if (tables.empty()) {
    return make_error(ErrorCode::invalid_argument, "there is no table to merge");
  }
  return merge(tables, std::vector<std::size_t>(tables.size()));
}

Expected<TileTable> merge_newer(const TileTable& table, const TileTable& newer) { return merge({table, newer}, {1, 0}); }

}  // namespace octile
