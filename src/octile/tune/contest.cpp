// SPDX-License-Identifier: Apache-2.0
// Interleaved passes; see contest.h.
#include "octile/tune/contest.h"

#include "octile/core/format.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace octile {

namespace {

// The floor's sample may be so much shorter than another's: on a GPU 100 us of events that resolve 0.5 us.
constexpr double kShortSample = 15;

}  // namespace

Contest::Contest(Session& session, Sampling sampling, std::int64_t m, std::vector<CandidateSpec> specs)
    : session_(session), sampling_(sampling), m_(m) {
  for (CandidateSpec& spec : specs) {
    lanes_.push_back({std::move(spec), {}, {}, {}});
  }
}

Expected<void> Contest::admit_lane(std::size_t index, bool check) {
  ContestLane& lane = lanes_[index];
  Expected<Admission> admission = session_.admit(static_cast<int>(index), lane.spec, m_, check);
  if (!admission) {
    return std::move(admission).error();
  }
  lane.admission = std::move(*admission);
  if (!lane.admission.admitted) {
    lane.failure = lane.admission.kind.empty() ? "the run ended before it was prepared"
                                               : format("{}: {}", lane.admission.kind, lane.admission.reason);
  }
  return {};
}

Expected<void> Contest::admit() {
  double fastest_us = 0;
  double floor_us = 0;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (Expected<void> done = admit_lane(i, true); !done) {
      return done;
    }
    const ContestLane& lane = lanes_[i];
    if (!lane.is_running()) {
      continue;
    }
    double& us = lane.spec.role == CandidateSpec::Role::floor ? floor_us : fastest_us;
    us = us > 0 ? std::min(us, lane.admission.first_us) : lane.admission.first_us;
  }
  // With many rows a product takes hundreds of floors: as many calls as make a floor's sample long would make each pass
  // seconds.
  calls_ = std::max(sampling_.calls(fastest_us > 0 ? fastest_us : floor_us),
                    floor_us > 0 ? sampling_.calls(floor_us * kShortSample) : 1);
  for (const ContestLane& lane : lanes_) {
    pass_s_ += lane.is_running() ? static_cast<double>(calls_) * lane.admission.first_us * 1e-6 : 0.0;
  }
  return {};
}

Expected<void> Contest::admit_unchecked(double assumed_us) {
  calls_ = sampling_.calls(assumed_us);
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (Expected<void> done = admit_lane(i, false); !done) {
      return done;
    }
    pass_s_ += lanes_[i].is_running() ? static_cast<double>(calls_) * assumed_us * 1e-6 : 0.0;
  }
  return {};
}

Expected<bool> Contest::pass() {
  std::vector<int> order;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const std::size_t lane = (i + static_cast<std::size_t>(passes_ / 2)) % lanes_.size();
    if (lanes_[lane].is_running()) {
      order.push_back(static_cast<int>(lane));
    }
  }
  if (passes_ % 2 == 1) {
    std::reverse(order.begin(), order.end());
  }
  if (order.empty()) {
    return false;
  }
  const double before_s = session_.now_s();
  Expected<Pass> timed = session_.time(order, calls_);
  if (!timed) {
    return std::move(timed).error();
  }
  if (timed->out_of_time) {
    return false;
  }
  if (timed->failed.has_value()) {
    // The pass counts for nobody, so that the times of all lanes stay pairs.
    lanes_[static_cast<std::size_t>(*timed->failed)].failure =
        format("{}: {}", session_.failure().kind, session_.failure().reason);
    return true;
  }
  pass_s_ = (session_.now_s() - before_s) / (1 + timed->repeats);
  for (std::size_t i = 0; i < order.size(); ++i) {
    lanes_[static_cast<std::size_t>(order[i])].us.push_back(timed->us[i]);
  }
  ++passes_;
  return true;
}

}  // namespace octile
