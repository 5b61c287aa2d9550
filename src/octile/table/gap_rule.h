// SPDX-License-Identifier: Apache-2.0
// What the times beside a gap of a table say of the M in it, since fewer rows take no kernel longer and no baseline less
// time with more of them: docs/tables.md, "Between two intervals".
#pragma once

namespace octile {

// More is asked than the tuner's margin, since a vendor's own choice changes its kernel: of 290 pairs of neighbours on an
// H200 the baseline took more than 2 % less at the larger M of 42. Points held out of those tables:
// tests/table/gap_rule_test.cpp.
inline constexpr double kGapMargin = 1.05;
// What takes so much longer at the upper M than the best at the lower one is that much from the best between them at most.
inline constexpr double kLevelGap = 1.10;

// The kernel above beats the baseline at every M of the gap.
constexpr bool bridges_gap(double us_above, double baseline_us_below, double baseline_us_above) noexcept {
  return us_above * kGapMargin <= (baseline_us_below < baseline_us_above ? baseline_us_below : baseline_us_above);
}
// It is also close to the best at every M of it.
constexpr bool is_level_gap(double us_above, double us_below) noexcept { return us_above <= kLevelGap * us_below; }

}  // namespace octile
