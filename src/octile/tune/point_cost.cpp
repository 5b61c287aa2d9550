// SPDX-License-Identifier: Apache-2.0
// What a sweep knows of a point before it measures it: who stands for election, what that takes, what failed elsewhere.
#include "octile/core/format.h"
#include "octile/tune/point.h"
#include "octile/tune/race.h"
#include "octile/tune/samples.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace octile {

namespace {

// Rounds of a usual race, for planning only.
constexpr int kUsualRounds = 14;

double mean_check_s(const SweepState& state) {
  double sum_s = 0;
  for (const auto& [family, check_s] : state.check_s) {
    sum_s += check_s;
  }
  return state.check_s.empty() ? kFirstCheckS : sum_s / static_cast<double>(state.check_s.size());
}

}  // namespace

std::string place_of(const TuneShape& shape) { return format("{}x{} ", shape.n, shape.k); }

void note_failed(SweepState& state, const TuneShape& shape, const FailedCandidate& failed) {
  const std::string name = format("{} {}", failed.kernel, failed.config.to_json());
  state.left_out.insert(failed.kind == "hang" ? name : place_of(shape) + name);
  SweepState::FamilyRecord& record = state.families[failed.kernel];
  ++record.failed;
  if (record.first_reason.empty()) {
    record.first_reason = format("{} at {} m={}: {}: {}", name, failed.shape, failed.m, failed.kind, failed.reason);
  }
}

Field field_of(const Backend& backend, const Plan& plan, std::int64_t m, bool thorough) {
  FieldLimits limits;
  if (thorough) {
    limits.challengers = limits.vendor_challengers = 48;
  }
  return make_field(backend, plan, m, limits, {});
}

PointCost estimate_cost(const DeviceInfo& device, const PointRequest& request, const SweepState& state) {
  const Field& field = *request.field;
  const Sampling sampling(device.kind);
  const auto estimate = [&](const std::optional<Candidate>& candidate) {
    return candidate ? state.costs.estimate_us(std::string(candidate->family->name()), request.shape.n, request.shape.k,
                                               request.m, candidate->predicted_us)
                     : 0.0;
  };
  const double baseline_us = estimate(field.baseline);
  const double own_us = estimate(field.heuristic);
  // A first visit packs some 3 cache sizes in each of two layouts, the baseline's being about twice as large.
  const double cache_bytes = 3.0 * static_cast<double>(std::max<std::int64_t>(device.llc_bytes, 1 << 20));
  const double weight_bytes = static_cast<double>(request.shape.n) * static_cast<double>(request.shape.k);
  const double pack_bytes = std::max(cache_bytes, 2 * weight_bytes) + std::max(cache_bytes, 4 * weight_bytes);
  const double setup_s = request.is_packed ? 0.0 : pack_bytes * state.pack_s_per_byte;
  const double both_s = (baseline_us + own_us) * 1e-6;
  const double pair_s = sampling.seconds(baseline_us) + sampling.seconds(own_us);
  const double check_s = mean_check_s(state);
  PointCost cost;
  cost.minimal_s = setup_s + 2 * check_s + both_s + fewest_rounds(RaceOptions{}.error / 2, 1) * pair_s;
  const auto challengers = static_cast<double>(field.challengers.size());
  cost.standard_s = setup_s + (2 + challengers) * check_s + both_s + challengers * own_us * 1e-6 +
                    kScreeningPasses * challengers * sampling.seconds(own_us) +
                    kUsualRounds * (pair_s + 2 * sampling.seconds(own_us));
  cost.standard_s = std::max(cost.standard_s, cost.minimal_s);
  return cost;
}

}  // namespace octile
