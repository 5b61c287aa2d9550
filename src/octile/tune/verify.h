// SPDX-License-Identifier: Apache-2.0
// The measuring half of `octile verify`: numerics and timing of every table entry on this device.
#pragma once

#include <octile/error.hpp>

#include "octile/table/finding.h"
#include "octile/tune/run_options.h"

#include <cstdint>
#include <string>
#include <vector>

namespace octile {

struct VerifyOptions : RunOptions {
  std::vector<TuneShape> shapes;  // Empty: every table file of this device in the directories of `tables`.
};

// One entry checked at one M (both ends of an interval are).
struct VerifiedEntry {
  std::string file;
  std::string key;  // "[17, 64]", or the key of a field file.
  std::int64_t n = 0, k = 0, m = 0;
  std::string kernel;
  double rel_error = 0;
  double us = 0, baseline_us = 0;
  double ratio = 0, ratio_lo = 0, ratio_hi = 0;  // baseline_us / us, 95 % interval; 0 where timing did not fit the budget.
  int rounds = 0;
};

struct VerifyResult {
  std::string device_name;
  std::vector<Finding> findings;  // Wrong entries: the command exits by 1 where there is any. Kinds: those of reading a
                                  // table, "hard_key", "illegal", "wrong", "crash", "hang", "error", "loses".
  std::vector<Finding> advice;    // Soft keys that differ, files of other devices, entries not timed for want of budget.
  std::vector<VerifiedEntry> entries;
  double elapsed_s = 0;
  int interrupted_by = 0;
  bool ok() const noexcept { return findings.empty() && interrupted_by == 0; }
};

// Errors as for tune(); also invalid_argument where there is no table of this device to verify.
Expected<VerifyResult> verify(const VerifyOptions& options);

}  // namespace octile
