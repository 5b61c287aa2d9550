// SPDX-License-Identifier: Apache-2.0
// The sequential test that decides a point: a few contenders and the incumbents, timed in interleaved passes until the
// intervals of their paired ratios decide, or the rounds or the budget end. Pure decisions over an abstract timing source.
#pragma once

#include <octile/error.hpp>

#include "octile/tune/statistics.h"

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace octile {

// One pass: times of the contenders in the order asked for, or why there are none.
struct Pass {
  std::vector<double> us;
  std::optional<int> failed;  // This contender failed (crash, hang, error); the pass counts for nobody.
  bool out_of_time = false;   // The budget has no room for this pass.
  int repeats = 0;            // Disturbed attempts before this one.
};
// Runs contenders once each, in this order.
using PassFunction = std::function<Expected<Pass>(std::span<const int> order)>;

struct RaceOptions {
  double margin = 0.02;      // A contender replaces an incumbent only where it is proven to be faster by more than this.
  double error = 0.05;       // Probability of a false win at the margin, over all contenders and looks of the race.
  int max_rounds = 40;       // Passes.
  int contenders = 0;        // Numbered from 0; the baseline is contender 0.
  int heuristic = -1;        // The incumbent among tiles: the family's own choice; -1 where it is no contender.
  int carried = -1;          // What won at the next smaller M: kept where it is proven not to lose more than the margin.
  int witness = -1;          // Only timed, in every pass: something to compare with that cannot serve here; -1: none.
  bool settle_early = true;  // Give up on contenders that can no longer win.
};

struct RaceLane {
  std::vector<double> us;  // One time per pass it ran in; passes without it hold NaN.
  double median_us = 0;    // Over its own passes.
  Interval ratio;          // Baseline's time / its time, at the level of the last look; 95 % or more.
  bool beats_baseline = false;
  bool failed = false;
  bool dropped = false;  // Proven not to win, before the race ended.
  int rounds = 0;        // Passes shared with the baseline.
};

struct RaceResult {
  int winner = 0;          // 0: the baseline stays.
  bool undecided = false;  // The rounds or the budget ended first: incumbents stay.
  bool out_of_time = false;
  int rounds = 0;
  std::vector<RaceLane> lanes;
};

// Passes run forward and backward in turn (A B C, C B A, ...), so a drift within a pass cancels over two. Errors are those
// of `run_pass`. A failed contender leaves the race; where the baseline fails, the result has lanes[0].failed.
Expected<RaceResult> race(const RaceOptions& options, const PassFunction& run_pass);

// Time of `other` / time of `lane` over the passes that both ran in, with its 95 % interval. No pass of both: all zero.
struct LaneComparison {
  double other_us = 0;  // Median in these passes.
  Interval ratio = {0, 0, 0};
};
LaneComparison compare_lanes(const RaceLane& other, const RaceLane& lane);

}  // namespace octile
