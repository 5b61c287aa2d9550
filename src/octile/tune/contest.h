// SPDX-License-Identifier: Apache-2.0
// A fixed number of interleaved passes over a few lanes, for `bench` and `verify`: they report, and decide nothing while
// they measure.
#pragma once

#include <octile/error.hpp>

#include "octile/tune/samples.h"
#include "octile/tune/session.h"
#include "octile/tune/statistics.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace octile {

struct ContestLane {
  CandidateSpec spec;
  Admission admission;
  std::string failure;     // "crash: ...": why it has no times; empty where it has.
  std::vector<double> us;  // One for each pass.

  bool is_running() const noexcept { return admission.admitted && failure.empty(); }
};

class Contest {
 public:
  Contest(Session& session, Sampling sampling, std::int64_t m, std::vector<CandidateSpec> specs);

  // Prepares every lane and checks its numbers. Errors are the machinery's.
  Expected<void> admit();
  // Without a look at the numbers, or a first run: for lanes of which only the fastest is wanted, and checked then. Each is
  // expected to take about `assumed_us` a call.
  Expected<void> admit_unchecked(double assumed_us);
  // Seconds of one pass, from the last one or, before it, from the first runs.
  double pass_s() const noexcept { return pass_s_; }
  // One pass over the running lanes. Passes start with another lane each time and run forward and backward in turn, so that
  // no lane always follows the same neighbour. False where the run ended.
  Expected<bool> pass();

  const std::vector<ContestLane>& lanes() const noexcept { return lanes_; }
  int passes() const noexcept { return passes_; }

 private:
  // An Error is the machinery's; a lane that failed says so itself.
  Expected<void> admit_lane(std::size_t index, bool check);

  Session& session_;
  Sampling sampling_;
  std::int64_t m_;
  std::vector<ContestLane> lanes_;
  std::int64_t calls_ = 1;
  double pass_s_ = 0;
  int passes_ = 0;
};

}  // namespace octile
