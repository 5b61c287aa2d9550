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

namespace {

// The configs of one family that stand, best first. A vendor's space comes in the order of the vendor's own heuristic, which
// knows its kernels better than our cost model does: its head stands whatever the model says, and alternates with the
// model's.
std::vector<Candidate> nominate(std::vector<Candidate> space, bool is_new_family, double best_us,
                                const FieldLimits& limits) {
  std::vector<Candidate> head;
  const bool is_vendor = !space.empty() && space.front().family->is_vendor();
  const std::size_t most = is_vendor ? limits.vendor_challengers : limits.challengers;
  if (is_vendor) {
    const std::size_t count = std::min(space.size(), limits.vendor_head);
    head.assign(space.begin(), space.begin() + static_cast<std::ptrdiff_t>(count));
  }
  std::stable_sort(space.begin(), space.end(),
                   [](const Candidate& a, const Candidate& b) { return a.predicted_us < b.predicted_us; });
  std::vector<Candidate> result;
  const auto add = [&](const Candidate& candidate) {
    if (result.size() < most && std::find(result.begin(), result.end(), candidate) == result.end()) {
      result.push_back(candidate);
    }
  };
  for (std::size_t i = 0; i < std::max(head.size(), space.size()); ++i) {
    if (i < head.size()) {
      add(head[i]);
    }
    // A prediction is worth its order within a family; across families it is rough, so each family's best gets more room.
    if (i < space.size() &&
        space[i].predicted_us <= (i == 0 && is_new_family ? limits.family_slack : limits.slack) * best_us) {
      add(space[i]);
    }
  }
  return result;
}

}  // namespace

Field make_field(const Backend& backend, const Plan& plan, std::int64_t m, const FieldLimits& limits,
                 const std::set<std::string>& left_out) {
  const DeviceInfo& device = plan.device();
  const Problem& problem = plan.problem();
  const auto candidate_of = [&](const KernelFamily* family, TileConfig config) {
    const double predicted_us = family->predict_us(device, problem, m, config);
    return Candidate{family, std::move(config), predicted_us};
  };
  Field field;
  field.own_only = problem.layout == WeightLayout::slab64;
  if (const Choice baseline = plan.compared_baseline(m);
      baseline.kind == ChoiceKind::baseline && baseline.family != nullptr) {
    field.baseline = candidate_of(baseline.family, baseline.config);
  }
  std::string own_layout;
  if (const Choice own = plan.heuristic_choice(m, {}, {}); own.family != nullptr) {
    field.heuristic = candidate_of(own.family, own.config);
    own_layout = own.family->layout_for(problem);
  }

  double best_us = field.heuristic ? field.heuristic->predicted_us : std::numeric_limits<double>::infinity();
  std::vector<std::vector<Candidate>> spaces;
  for (const KernelFamily* family : backend.families()) {
    // A weight has one packed copy of ours: families that read another layout cannot share a table with the heuristic's.
    if (!family->available(device) || (!family->is_vendor() && family->layout_for(problem) != own_layout)) {
      continue;
    }
    std::vector<Candidate>& space = spaces.emplace_back();
    for (TileConfig& config : family->space(device, problem, m)) {
      Candidate candidate = candidate_of(family, std::move(config));
      if (problem.max_sms > 0 && !family->check_sm_limit(problem, candidate.config, m)) {
        continue;
      }
      const bool is_known = candidate == field.baseline || candidate == field.heuristic ||
                            std::find(space.begin(), space.end(), candidate) != space.end();
      if (!is_known && !left_out.contains(candidate.to_string())) {
        best_us = std::min(best_us, candidate.predicted_us);
        space.push_back(std::move(candidate));
      }
    }
  }
  std::vector<std::vector<Candidate>> nominees;
  for (std::vector<Candidate>& space : spaces) {
    const bool is_new = !field.heuristic || space.empty() || space.front().family != field.heuristic->family;
    nominees.push_back(nominate(std::move(space), is_new, best_us, limits));
  }
  // Family by family in turn, so that a time limit that cuts the list short leaves the best of every family in it; of a
  // vendor so many at once that its own, more of them and none to compile, end with the others'.
  const std::size_t of_ours = std::max<std::size_t>(limits.challengers, 1);
  const std::size_t of_vendor = std::max<std::size_t>((limits.vendor_challengers + of_ours - 1) / of_ours, 1);
  std::vector<std::size_t> taken(nominees.size(), 0);
  for (bool is_more = true; is_more;) {
    is_more = false;
    for (std::size_t f = 0; f < nominees.size(); ++f) {
      std::vector<Candidate>& of_family = nominees[f];
      const bool is_vendor = !of_family.empty() && of_family.front().family->is_vendor();
      for (std::size_t i = 0; i < (is_vendor ? of_vendor : 1) && taken[f] < of_family.size(); ++i) {
        field.challengers.push_back(of_family[taken[f]++]);
        is_more = true;
      }
    }
  }
  return field;
}

}  // namespace octile
