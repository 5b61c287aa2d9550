// SPDX-License-Identifier: Apache-2.0
// Candidates of one point; see candidates.h.
#include "octile/tune/candidates.h"

#include "octile/core/format.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace octile {

std::string Candidate::to_string() const { return format("{} {}", family->name(), config.to_json()); }

bool operator==(const Candidate& a, const Candidate& b) noexcept { return a.family == b.family && a.config == b.config; }

Field make_field(const Backend& backend, const Plan& plan, std::int64_t m, const FieldLimits& limits,
                 const std::set<std::string>& left_out) {
  const DeviceInfo& device = plan.device();
  const Problem& problem = plan.problem();
  const auto candidate_of = [&](const KernelFamily* family, TileConfig config) {
    const double predicted_us = family->predict_us(device, problem, m, config);
    return Candidate{family, std::move(config), predicted_us};
  };
  Field field;
  if (const Choice baseline = plan.baseline_choice(m, {});
      baseline.kind == ChoiceKind::baseline && baseline.family != nullptr) {
    field.baseline = candidate_of(baseline.family, baseline.config);
  }
  std::string own_layout;
  if (const Choice own = plan.heuristic_choice(m, {}, {}); own.family != nullptr) {
    field.heuristic = candidate_of(own.family, own.config);
    own_layout = own.family->layout();
  }

  std::vector<Candidate> all;
  for (const KernelFamily* family : backend.families()) {
    // A weight has one packed copy of ours: families that read another layout cannot share a table with the heuristic's.
    if (!family->available(device) || (!family->is_vendor() && family->layout() != own_layout)) {
      continue;
    }
    for (TileConfig& config : family->space(device, problem, m)) {
      Candidate candidate = candidate_of(family, std::move(config));
      const bool is_known = candidate == field.baseline || candidate == field.heuristic ||
                            std::find(all.begin(), all.end(), candidate) != all.end();
      if (!is_known && !left_out.contains(candidate.to_string())) {
        all.push_back(std::move(candidate));
      }
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.predicted_us < b.predicted_us; });
  double best_us = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : all) {
    best_us = std::min(best_us, candidate.predicted_us);
  }
  if (field.heuristic) {
    best_us = std::min(best_us, field.heuristic->predicted_us);
  }
  // A prediction is worth its order within a family; across families it is rough, so each family's best gets more room.
  std::set<const KernelFamily*> represented;
  if (field.heuristic) {
    represented.insert(field.heuristic->family);
  }
  for (Candidate& candidate : all) {
    const bool is_first_of_family = represented.insert(candidate.family).second;
    const double slack = is_first_of_family ? limits.family_slack : limits.slack;
    const bool has_room = field.challengers.size() < limits.challengers || is_first_of_family;
    if (has_room && candidate.predicted_us <= slack * best_us) {
      field.challengers.push_back(std::move(candidate));
    }
  }
  return field;
}

}  // namespace octile
