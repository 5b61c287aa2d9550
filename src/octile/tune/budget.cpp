// SPDX-License-Identifier: Apache-2.0
// Cost model of calls and sharing of a budget; see budget.h.
#include "octile/tune/budget.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace octile {

namespace {

// Something is kept back for the estimates' error and for writing the tables.
constexpr double kUsableShare = 0.97;
// A call at a larger M never gets cheaper by more than noise, whatever a cost model says, nor dearer than this in proportion
// to M.
constexpr double kSteepest = 1.5;

// M is similar up to a factor of 4; a family that so many of its candidates were measured of has shown what it can.
constexpr double kSimilarM = 1.4;
constexpr int kEnoughSeen = 6;

double log_distance(std::int64_t a, std::int64_t b) {
  return std::abs(std::log(static_cast<double>(a)) - std::log(static_cast<double>(b)));
}

}  // namespace

void CostModel::record(const std::string& family, std::int64_t n, std::int64_t k, std::int64_t m, double predicted_us,
                       double us) {
  if (us > 0) {
    observations_[family].push_back({n, k, m, predicted_us, us});
  }
}

double CostModel::estimate_us(const std::string& family, std::int64_t n, std::int64_t k, std::int64_t m,
                              double predicted_us) const {
  const auto found = observations_.find(family);
  if (found == observations_.end()) {
    return predicted_us;
  }
  const Observation* nearest = nullptr;
  double nearest_distance = std::numeric_limits<double>::infinity();
  for (const Observation& o : found->second) {
    const bool is_same_weight = o.n == n && o.k == k;
    const double distance =
        log_distance(o.m, m) + (is_same_weight ? 0.0 : 2.0 + log_distance(o.n, n) + log_distance(o.k, k));
    if (distance < nearest_distance) {
      nearest_distance = distance;
      nearest = &o;
    }
  }
  if (nearest == nullptr) {
    return predicted_us;
  }
  double scale = nearest->predicted_us > 0 && predicted_us > 0 ? predicted_us / nearest->predicted_us : 1.0;
  const double weights =
      static_cast<double>(n) * static_cast<double>(k) / (static_cast<double>(nearest->n) * static_cast<double>(nearest->k));
  const double tokens = static_cast<double>(m) / static_cast<double>(nearest->m);
  const double lowest = weights * std::min(1.0, tokens);
  const double highest = kSteepest * weights * std::max(1.0, tokens);
  scale = std::clamp(scale, lowest, highest);
  return nearest->us * scale;
}

double CostModel::best_case_us(const std::string& family, std::int64_t n, std::int64_t k, std::int64_t m,
                               double predicted_us) const {
  const auto found = observations_.find(family);
  if (found == observations_.end()) {
    return 0;
  }
  int seen = 0;
  double best_scale = std::numeric_limits<double>::infinity();
  for (const Observation& o : found->second) {
    if (o.n == n && o.k == k && o.predicted_us > 0 && log_distance(o.m, m) <= kSimilarM) {
      ++seen;
      best_scale = std::min(best_scale, o.us / o.predicted_us);
    }
  }
  return seen < kEnoughSeen ? 0 : predicted_us * best_scale;
}

double share_of_budget(std::span<const PointCost> remaining, double left_s, double stretch) {
  if (remaining.empty()) {
    return 0;
  }
  const double usable_s = left_s * kUsableShare;
  const double standard_s = std::accumulate(remaining.begin(), remaining.end(), 0.0,
                                            [](double sum, const PointCost& p) { return sum + p.standard_s; });
  const PointCost& first = remaining.front();
  if (standard_s <= usable_s) {
    return first.standard_s * std::min(usable_s / std::max(standard_s, 1e-9), stretch);
  }
  // Not everything fits at its usual length. Keep as many points as possible at their minimal cost, the cheapest first, and
  // share what is left above that.
  std::vector<std::size_t> order(remaining.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remaining[a].minimal_s < remaining[b].minimal_s; });
  double minimal_sum_s = 0;
  double extra_sum_s = 0;
  bool first_is_kept = false;
  for (const std::size_t i : order) {
    const PointCost& point = remaining[i];
    if (minimal_sum_s + point.minimal_s > usable_s) {
      break;
    }
    minimal_sum_s += point.minimal_s;
    extra_sum_s += point.standard_s - point.minimal_s;
    first_is_kept = first_is_kept || i == 0;
  }
  if (!first_is_kept) {
    return 0;
  }
  const double share = extra_sum_s > 0 ? std::clamp((usable_s - minimal_sum_s) / extra_sum_s, 0.0, 1.0) : 1.0;
  return first.minimal_s + share * (first.standard_s - first.minimal_s);
}

}  // namespace octile
