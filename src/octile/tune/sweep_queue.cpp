// SPDX-License-Identifier: Apache-2.0
// Order, budget and refinement of what waits; see sweep_queue.h.
#include "octile/tune/sweep_queue.h"

#include "octile/tune/intervals.h"
#include "octile/tune/point.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace octile {

namespace {

// Each gap between two winners is halved at most so often; without a budget once, and only where what serves in it may be
// more than a tenth from the best, since nothing else would stop it.
constexpr int kRefinements = 8;
constexpr int kRefinementsWithoutBudget = 1;
// A refinement is taken up where its usual time fits into so much of what is left.
constexpr double kRefinementShare = 0.9;

}  // namespace

SweepQueue::SweepQueue(const TuneOptions& options, const SweepPlan& plan)
    : options_(options), plan_(plan), rounds_left_(options.time_budget_s > 0 ? kRefinements : kRefinementsWithoutBudget) {
  // Small M first: they are what decoding runs all day, and cheap, so that a short budget covers them. With --thorough the
  // usual M come before the rest, for the same reason.
  const std::vector<std::int64_t> usual = default_m_list(plan_.is_gpu());
  std::set<std::int64_t> all;
  for (const SweptWeight& weight : plan_.weights) {
    all.insert(weight.m_list.begin(), weight.m_list.end());
  }
  std::vector<std::int64_t> order(all.begin(), all.end());
  if (options_.thorough) {
    std::ranges::stable_partition(order, [&](std::int64_t m) { return std::ranges::binary_search(usual, m); });
  }
  add_points(&WeightShare::own, order);
  if (!options_.uses.empty()) {
    sort_by_use();
  }
  add_points(&WeightShare::borders, order);  // What other shards measure as well.
}

void SweepQueue::add_points(std::vector<std::int64_t> WeightShare::* list, const std::vector<std::int64_t>& order) {
  for (const std::int64_t m : order) {
    for (std::size_t w = 0; w < plan_.weights.size(); ++w) {
      const SweptWeight& weight = plan_.weights[w];
      if (!std::ranges::binary_search(weight.share.*list, m)) {
        continue;
      }
      ++total_;
      if (weight.find_point(m) != nullptr) {
        ++measured_before_;
      } else {
        pending_.push_back({w, m, field_of(*plan_.device.backend, weight.plan, m, options_.thorough)});
      }
    }
  }
}

void SweepQueue::sort_by_use() {
  std::map<std::pair<std::size_t, std::int64_t>, double> calls;
  for (const TuneUse& use : options_.uses) {
    for (std::size_t w = 0; w < plan_.weights.size(); ++w) {
      if (plan_.weights[w].shape.n == use.n && plan_.weights[w].shape.k == use.k) {
        calls[{w, use.m}] += use.calls;
      }
    }
  }
  const auto spent = [&](const PendingPoint& point) {
    const std::optional<Candidate>& incumbent = point.field.baseline ? point.field.baseline : point.field.heuristic;
    return calls[{point.weight, point.m}] * (incumbent ? incumbent->predicted_us : 1.0);
  };
  std::ranges::stable_sort(pending_, std::greater{}, spent);
}

void SweepQueue::sort_longest_first(const CostOf& cost_of) {
  std::ranges::stable_sort(pending_, std::greater{}, [&](const PendingPoint& point) { return cost_of(point).standard_s; });
}

// Seconds for pending_[i] were it next; 0: not now.
double SweepQueue::quota_for(std::size_t i, const CostOf& cost_of, const TimeLeft& left) const {
  const PointCost cost = cost_of(pending_[i]);
  if (pending_[i].narrows) {
    return cost.standard_s <= kRefinementShare * left.own_s ? 2 * cost.standard_s : 0;
  }
  if (options_.time_budget_s <= 0) {
    return 3 * cost.standard_s + 10;
  }
  if (cost.minimal_s > left.own_s) {
    return 0;
  }
  std::vector<PointCost> costs{cost};
  for (std::size_t j = 0; j < pending_.size(); ++j) {
    if (j != i) {
      costs.push_back(cost_of(pending_[j]));
    }
  }
  return std::min(share_of_budget(costs, left.all_s), left.own_s);
}

std::unique_ptr<PendingPoint> SweepQueue::take(const CostOf& cost_of, const TimeLeft& left) {
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const double quota_s = quota_for(i, cost_of, left);
    if (quota_s > 0) {
      pending_[i].quota_s = quota_s;
      auto point = std::make_unique<PendingPoint>(std::move(pending_[i]));
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
      return point;
    }
  }
  return nullptr;
}

void SweepQueue::put_back(PendingPoint point) { pending_.insert(pending_.begin(), std::move(point)); }

bool SweepQueue::add_borders() {
  // What did not fit the budget stands between winners as well.
  if (!pending_.empty() || rounds_left_ == 0 || !options_.known.empty()) {
    return false;
  }
  --rounds_left_;
  for (std::size_t w = 0; w < plan_.weights.size(); ++w) {
    for (const std::vector<TunePoint>& stretch : plan_.weights[w].stretches()) {
      for (const std::int64_t m : border_candidates(stretch, options_.time_budget_s > 0)) {
        PendingPoint point{w, m, field_of(*plan_.device.backend, plan_.weights[w].plan, m, options_.thorough)};
        point.narrows = true;
        pending_.push_back(std::move(point));
        ++total_;
      }
    }
  }
  return !pending_.empty();
}

}  // namespace octile
