// SPDX-License-Identifier: Apache-2.0
// The measuring half of `octile verify`: numerics and timing of every table entry on this device.
#pragma once

#include <octile/error.hpp>

#include "octile/table/finding.h"
#include "octile/table/tile_config.h"
#include "octile/tune/cliffs.h"
#include "octile/tune/run_options.h"

#include <cstdint>
#include <string>
#include <vector>

namespace octile {

struct VerifyOptions : RunOptions {
  std::vector<TuneShape> shapes;  // Empty: every table file of this device in the directories of `tables`.
  // Every M up to 1024 and 200 random ones above (up to 2048 on a CPU, where a call at 8192 takes seconds), each against the
  // best choice known: the baseline, the heuristic, and what serves on both sides.
  bool all_m = false;
  bool fix = false;  // Tune again where a choice loses, and write what won into the table's directory.
  // What all_m means.
  std::int64_t every_m_up_to = 1024;
  std::int64_t random_ms = 200;
  std::int64_t largest_random_m = 16384;
};

// What a table gives at one M: an entry's ends, or with all_m every M.
struct VerifiedEntry {
  std::string file;
  std::string key;  // "[17, 64]", the key of a field file, or "gap".
  std::int64_t n = 0, k = 0, m = 0;
  std::string kernel;
  TileConfig config;
  double rel_error = 0;
  double us = 0, baseline_us = 0;
  double ratio = 0, ratio_lo = 0, ratio_hi = 0;  // baseline_us / us, 95 % interval; 0 where timing did not fit the budget.
  int rounds = 0;
  std::string beaten_by;  // Beyond doubt, where "loses" was found: "the baseline", "avx512 {...}".
};

// The cliffs of one table's curve; with all_m.
struct TableCliffs {
  std::string file;
  std::vector<Cliff> cliffs;
};

struct VerifyResult {
  bool all_m = false;  // Every M was asked for.
  std::string device_name;
  std::vector<Finding> findings;  // Wrong entries: the command exits by 1 where there is any. Kinds: those of reading a
                                  // table, "hard_key", "illegal", "wrong", "crash", "hang", "error", "loses".
  std::vector<Finding> advice;    // Soft keys that differ, files of other devices, entries not timed for want of budget,
                                  // "fixed": what was found to lose and was tuned again.
  std::vector<VerifiedEntry> entries;
  std::vector<TableCliffs> cliffs;  // Of the tables of which anything could be timed.
  std::vector<std::string> files;   // Written by `fix`.
  double elapsed_s = 0;
  int interrupted_by = 0;
  bool ok() const noexcept { return findings.empty() && interrupted_by == 0; }
};

// Errors as for tune(); also invalid_argument where there is no table of this device to verify.
Expected<VerifyResult> verify(const VerifyOptions& options);

}  // namespace octile
