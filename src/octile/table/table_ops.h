// SPDX-License-Identifier: Apache-2.0
// What `octile table lint|show|diff|merge|import|export` do, as functions of tables.
#pragma once

#include <octile/error.hpp>

#include "octile/table/finding.h"
#include "octile/table/tile_table.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace octile {

struct LintReport {
  std::vector<std::string> files;  // Looked at, sorted.
  std::vector<Finding> findings;   // None: all is well.
  bool ok() const noexcept { return findings.empty(); }
};
// Files, and every *.json below directories. `shared_memory_bytes` > 0 also reports field tiles that do not fit a block of
// the device. A path that cannot be read, or a directory without any table, is a finding ("io", "no_tables").
LintReport lint_tables(const std::vector<std::string>& paths, std::int64_t shared_memory_bytes = 0);

// One line of `table show`. Times in microseconds, "-" where not measured.
struct TableRow {
  std::string m;       // "[17, 64]" or, in the field's format, "64".
  std::string kernel;  // A family's name or "baseline".
  std::string config;  // TileConfig::to_json(), "" for the baseline.
  std::string us, baseline_us, best_vendor_us;
  std::string ratio;  // "1.21 [1.18, 1.24]".
  std::string rel_error;
  std::string note;  // "inferred", "left out: ...", a date.
};
std::vector<TableRow> show_rows(const TileTable& table);
// Column titles, in the order of TableRow's members.
const std::vector<std::string>& show_titles();
// Hard keys and provenance as name and value, for the lines above the rows.
std::vector<std::pair<std::string, std::string>> describe_table(const TileTable& table);

// A stretch of M, or a key, in which two tables differ.
struct TableDifference {
  std::string where;  // "M [17, 64]", "key sm_count", "provenance date".
  std::string left, right;
  bool choice = false;  // Another kernel or config would run; otherwise only keys, provenance or proof differ.
};
// Empty: the same keys, and the same choice with the same proof at every M.
std::vector<TableDifference> diff_tables(const TileTable& left, const TileTable& right);

// One table of several of our own format. All hard keys must agree; the Error (invalid_argument) names the key, both values
// and both files. Where intervals overlap, a measured entry beats an inferred one, then the later date, then the higher
// lower end of the ratio, then a fixed order of the text; what is cut off an interval keeps its proof and is marked
// inferred. What then touches and makes the same choice is one interval again where both its ends were measured, with the
// weaker proof and the earlier date. The result does not depend on the order of `tables`. Entries without a date get that of
// their table.
Expected<TileTable> merge_tables(const std::vector<TileTable>& tables);
// The same of a table and what was measured just now, which goes before what the table holds whatever the dates say: clocks
// jump, and a second is long.
Expected<TileTable> merge_newer(const TileTable& table, const TileTable& newer);
// Lets `entry` reach to the end of `next`, which lies above it and makes the same choice: the weaker proof is kept, the
// larger error and the earlier date.
void extend_entry(TableEntry& entry, const TableEntry& next);

enum class ImportRanges {
  points,   // [64, 64]: what the file's author measured, and nothing else.
  nearest,  // The stretch that the nearest-key rule gives each key, up to the largest key; marked inferred.
};
// A field table as one of our own. `key` adds what the field's file does not state (arch, sm_count, ...); its device_name,
// n, k and scheme are empty or agree. Left-out entries are not imported.
Expected<TileTable> import_field_table(const TileTable& field, const TableKey& key = {},
                                       ImportRanges ranges = ImportRanges::points);

struct ExportedTable {
  TileTable table;  // field_format.
  int tiles = 0;    // Keys with a tile.
  int nulls = 0;    // Keys with null: baseline, gap, or a kernel that Triton cannot run.
};
// A table of our own as the field's: keys at both ends of every interval and null at both ends of every gap, so that the
// nearest key gives the same choice at every M as our own look-up does; beyond the last interval null. Only tiles made of
// the field's keys are written; every other kernel becomes null.
Expected<ExportedTable> export_field_table(const TileTable& own);

}  // namespace octile
