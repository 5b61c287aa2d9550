// SPDX-License-Identifier: Apache-2.0
// How long a point may take: what calls cost, as far as is known, and how a budget is shared out among what is left.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace octile {

// Learns what a call of a family takes, and predicts it elsewhere from the family's own prediction.
class CostModel {
 public:
  void record(const std::string& family, std::int64_t n, std::int64_t k, std::int64_t m, double predicted_us, double us);
  // Microseconds of one call: from the nearest measured M of the same weight, else of any weight, scaled by the predictions;
  // the prediction itself where nothing of the family was measured.
  double estimate_us(const std::string& family, std::int64_t n, std::int64_t k, std::int64_t m, double predicted_us) const;
  // The least that a call may take, by the best that the family did against its own predictions at this weight and similar
  // M; 0 where too little was measured there to tell.
  double best_case_us(const std::string& family, std::int64_t n, std::int64_t k, std::int64_t m, double predicted_us) const;

 private:
  struct Observation {
    std::int64_t n = 0, k = 0, m = 0;
    double predicted_us = 0, us = 0;
  };
  std::map<std::string, std::vector<Observation>> observations_;
};

// Seconds a point needs: to be decided at all, and with every stage at its usual length.
struct PointCost {
  double minimal_s = 0;
  double standard_s = 0;
};

// Seconds for the first point of `remaining` when `left_s` remain for all: its usual cost (or up to `stretch` times that)
// where everything fits, less where it does not; 0 where the time is better spent on the others, because so many cheaper
// points still wait that this one does not fit beside them.
double share_of_budget(std::span<const PointCost> remaining, double left_s, double stretch = 3.0);

}  // namespace octile
