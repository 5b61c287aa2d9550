// SPDX-License-Identifier: Apache-2.0
// Candidates of one point on their way into its race: prepared, run, checked; what that cost, and who failed.
#pragma once

#include "octile/core/format.h"
#include "octile/core/log.h"
#include "octile/tune/point.h"
#include "octile/tune/session.h"

#include <optional>
#include <set>
#include <string>

namespace octile {

// One candidate that was admitted, under the number that the session knows it by.
struct Lane {
  Candidate candidate;
  int id = 0;
  Admission admission;
  bool is_checked = true;  // It ran, and its numbers were right.
};

// Seconds that admitting one of its family took lately.
double check_s_of(const SweepState& state, const Candidate& candidate);

// All arguments live longer than this.
class PointLanes {
 public:
  PointLanes(Session& session, const PointRequest& request, SweepState& state, PointResult& result);

  // nullopt: failed, which is blamed, or the run ended. Without `check` the candidate is prepared alone.
  Expected<std::optional<Lane>> admit(const Candidate& candidate, bool check = true);
  // What was admitted without: false as above.
  Expected<bool> check(Lane& lane) { return admit_as(lane, true); }
  // It failed here, or at another M of this weight.
  bool is_left_out(const Candidate& candidate) const;
  // For this point; the sweep takes it over with the point's result.
  void blame(const Candidate& candidate, const Admission& failure);
  // First run of the fastest that was checked; 0 before.
  double fastest_us() const noexcept { return fastest_us_; }

  // A candidate's text is made only where it is said.
  template <class... Args>
  void debug(const Candidate& candidate, fmt::format_string<Args...> text, const Args&... args) const {
    if (is_logged(LogLevel::debug)) {
      log_debug("{} m={}: {} {}", request_.shape.name, request_.m, candidate.to_string(),
                octile::detail::vformat(fmt::string_view(text), fmt::make_format_args(args...)));
    }
  }

 private:
  Expected<bool> admit_as(Lane& lane, bool check);
  void note_costs(const Candidate& candidate, const Admission& admission, double seconds);
  void note_right(const Candidate& candidate, double first_us);

  Session& session_;
  const PointRequest& request_;
  SweepState& state_;
  PointResult& result_;
  int next_id_ = 0;
  double fastest_us_ = 0;
  std::set<std::string> failed_names_;
};

}  // namespace octile
