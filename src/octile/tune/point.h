// SPDX-License-Identifier: Apache-2.0
// One point of a sweep: admit the incumbents and a field of challengers, thin it out, race the best, say what won.
#pragma once

#include <octile/error.hpp>

#include "octile/tune/budget.h"
#include "octile/tune/candidates.h"
#include "octile/tune/session.h"
#include "octile/tune/tune.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace octile {

// Passes that thin out the challengers before the best of them race.
inline constexpr int kScreeningPasses = 3;
// Seconds of admitting a candidate of a family that none was admitted of.
inline constexpr double kFirstCheckS = 0.05;

// What a sweep has learnt so far and hands from point to point.
struct SweepState {
  CostModel costs;
  // By family: seconds of admitting a candidate, beside its packing and its one call: the largest of late.
  std::map<std::string, double> check_s;
  double pack_s_per_byte = 5e-9;   // Of packing a weight; a first guess, replaced by what is seen.
  std::set<std::string> left_out;  // Candidate::to_string() behind "n k ": crashed or wrong there; behind "": hung.
  struct FamilyRecord {
    int admitted = 0;
    int failed = 0;
    std::string first_reason;
  };
  std::map<std::string, FamilyRecord> families;
  std::map<std::string, std::string> memory;  // On each device: Layout of a weight -> "3 copies of 50331648 bytes".
};

// "6144x4096 ": how left_out and memory name a weight.
std::string place_of(const TuneShape& shape);
// Takes a failure into account. What hangs costs a time-out each time: it is not tried anywhere again. The rest is left out
// for this weight.
void note_failed(SweepState& state, const TuneShape& shape, const FailedCandidate& failed);

struct PointRequest {
  TuneShape shape;
  std::int64_t m = 0;
  const Field* field = nullptr;  // Who stands for election.
  double quota_s = 0;            // Seconds this point may take.
  bool thorough = false;
  bool is_packed = false;            // Some copies of this weight are packed already.
  std::optional<Candidate> carried;  // What won at the next smaller M of this weight.
  // Layouts of weights that the device has packed, as SweepState::memory names them; grows.
  std::set<std::string>* packed = nullptr;
};

// Who stands for election at a point: the same throughout a sweep.
Field field_of(const Backend& backend, const Plan& plan, std::int64_t m, bool thorough);
// What the point is expected to take, by what the sweep has seen so far.
PointCost estimate_cost(const DeviceInfo& device, const PointRequest& request, const SweepState& state);

struct PointResult {
  TunePoint point;
  std::optional<Candidate> winner;  // Not set: the baseline, or no entry.
  std::vector<FailedCandidate> failed;
};

// Errors: of the machinery, not of candidates. A run that ends within leaves status no_budget. Failed candidates are not in
// `state` yet: note_failed() puts them there once the result counts.
Expected<PointResult> tune_point(Session& session, const Plan& plan, const PointRequest& request, SweepState& state);

}  // namespace octile
