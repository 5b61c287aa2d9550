// SPDX-License-Identifier: Apache-2.0
// Admitting candidates; see point_lanes.h.
#include "octile/tune/point_lanes.h"

#include <algorithm>
#include <utility>

namespace octile {

double check_s_of(const SweepState& state, const Candidate& candidate) {
  const auto known = state.check_s.find(std::string(candidate.family->name()));
  return known == state.check_s.end() ? kFirstCheckS : known->second;
}

PointLanes::PointLanes(Session& session, const PointRequest& request, SweepState& state, PointResult& result)
    : session_(session), request_(request), state_(state), result_(result) {}

bool PointLanes::is_left_out(const Candidate& candidate) const {
  const std::string name = candidate.to_string();
  return failed_names_.contains(name) || state_.left_out.contains(name) ||
         state_.left_out.contains(place_of(request_.shape) + name);
}

void PointLanes::blame(const Candidate& candidate, const Admission& failure) {
  failed_names_.insert(candidate.to_string());
  result_.failed.push_back({request_.shape.name, request_.m, std::string(candidate.family->name()), candidate.config,
                            failure.kind, failure.reason});
}

Expected<std::optional<Lane>> PointLanes::admit(const Candidate& candidate, bool check) {
  Lane lane{candidate, next_id_, {}, check};
  Expected<bool> admitted = admit_as(lane, check);
  if (!admitted) {
    return std::move(admitted).error();
  }
  if (!*admitted) {
    return std::optional<Lane>();
  }
  ++next_id_;
  return std::optional<Lane>(std::move(lane));
}

Expected<bool> PointLanes::admit_as(Lane& lane, bool check) {
  const double before_s = session_.now_s();
  const Candidate& candidate = lane.candidate;
  const CandidateSpec spec{CandidateSpec::Role::family, std::string(candidate.family->name()), candidate.config};
  Expected<Admission> admission = session_.admit(lane.id, spec, request_.m, check);
  if (!admission) {
    return std::move(admission).error();
  }
  if (!admission->admitted) {
    if (!admission->kind.empty()) {
      blame(candidate, *admission);
    }
    return false;
  }
  lane.admission = *std::move(admission);
  lane.is_checked = check;
  note_costs(candidate, lane.admission, session_.now_s() - before_s);
  debug(candidate, "takes {:.2f} us, predicted {:.2f} us, admitted in {:.3f} s", lane.admission.first_us,
        candidate.predicted_us, session_.now_s() - before_s);
  if (check) {
    note_right(candidate, lane.admission.first_us);
  }
  return true;
}

void PointLanes::note_costs(const Candidate& candidate, const Admission& admission, double seconds) {
  const std::string what = place_of(request_.shape) + admission.layout;
  state_.memory.insert_or_assign(what, format("{} copies of {} bytes", admission.copies, admission.copy_bytes));
  const bool packed_now = request_.packed->insert(what).second;
  const double beside_call_s = std::max(seconds - admission.first_us * 1e-6, 0.0);
  const double packed_bytes = static_cast<double>(admission.copies) * static_cast<double>(admission.copy_bytes);
  if (packed_now && packed_bytes > 0) {
    state_.pack_s_per_byte = beside_call_s / packed_bytes;
  } else {
    state_.check_s[std::string(candidate.family->name())] = std::max(0.7 * check_s_of(state_, candidate), beside_call_s);
  }
}

void PointLanes::note_right(const Candidate& candidate, double first_us) {
  const std::string kernel(candidate.family->name());
  ++state_.families[kernel].admitted;
  if (std::find(result_.point.worked.begin(), result_.point.worked.end(), kernel) == result_.point.worked.end()) {
    result_.point.worked.push_back(kernel);
  }
  state_.costs.record(kernel, request_.shape.n, request_.shape.k, request_.m, candidate.predicted_us, first_us);
  fastest_us_ = fastest_us_ > 0 ? std::min(fastest_us_, first_us) : first_us;
}

}  // namespace octile
