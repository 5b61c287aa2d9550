// SPDX-License-Identifier: Apache-2.0
// The points of a sweep that wait for a device: in which order they are taken, and how long each may take.
#pragma once

#include "octile/tune/budget.h"
#include "octile/tune/candidates.h"
#include "octile/tune/sweep_plan.h"
#include "octile/tune/tune.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace octile {

// A weight and M that is still to be measured.
struct PendingPoint {
  std::size_t weight = 0;  // Index into SweepPlan::weights.
  std::int64_t m = 0;
  Field field;
  double quota_s = 0;       // Set when it is taken.
  bool narrows = false;     // Not asked for: it narrows the border between two winners.
  int failed_attempts = 0;  // Of the machinery, not of candidates.
};

// What a device has left of the run.
struct TimeLeft {
  double own_s = 0;  // The device that asks.
  double all_s = 0;  // All devices together.
};

class SweepQueue {
 public:
  using CostOf = std::function<PointCost(const PendingPoint&)>;

  // All points of the plan but those that it holds measured already: small M first, with `uses` what a service spends most
  // time on first.
  SweepQueue(const TuneOptions& options, const SweepPlan& plan);
  // For several devices without a budget: what takes longest must not be taken up last.
  void sort_longest_first(const CostOf& cost_of);

  const std::vector<PendingPoint>& pending() const noexcept { return pending_; }
  bool is_empty() const noexcept { return pending_.empty(); }
  // Points asked for, and of these the ones measured before; refinement adds to both.
  std::int64_t total() const noexcept { return total_; }
  std::int64_t measured_before() const noexcept { return measured_before_; }

  // The first in order that fits the time beside the cheaper ones; nullptr where none does.
  std::unique_ptr<PendingPoint> take(const CostOf& cost_of, const TimeLeft& left);
  // It is the next that is taken.
  void put_back(PendingPoint point);
  // Once everything is measured: points between different winners, for the next round of refinement. False: there are none,
  // or enough rounds were made.
  bool add_borders();

 private:
  void add_points(std::vector<std::int64_t> WeightShare::* list, const std::vector<std::int64_t>& order);
  void sort_by_use();
  double quota_for(std::size_t i, const CostOf& cost_of, const TimeLeft& left) const;

  const TuneOptions& options_;
  const SweepPlan& plan_;
  std::vector<PendingPoint> pending_;
  std::int64_t total_ = 0;
  std::int64_t measured_before_ = 0;
  int rounds_left_;
};

}  // namespace octile
