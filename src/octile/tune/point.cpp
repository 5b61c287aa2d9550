// SPDX-License-Identifier: Apache-2.0
// One point, from admission to the race; see point.h and docs/tuning.md.
#include "octile/tune/point.h"

#include "octile/core/format.h"
#include "octile/tune/point_lanes.h"
#include "octile/tune/race.h"
#include "octile/tune/samples.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

namespace octile {

namespace {

constexpr int kMaxRounds = 40;
constexpr int kMaxRoundsThorough = 80;
// Challengers that go on from screening to the race.
constexpr std::size_t kFinalists = 2;
// After each pass of the screening those slower than the best by more than this are dropped.
constexpr double kScreeningSlack[kScreeningPasses] = {1.3, 1.15, 1.08};
// Share of a point's time for trying challengers; the rest is for the proof.
constexpr double kFieldShare = 0.4;
// A race whose passes are shorter than this gets one that counts for nothing.
constexpr double kWarmUpBelowS = 0.2;
// A race that takes longer than planned, as on a machine that others use as well, is cut off at so many times the point's
// time: late before it can be decided at all, since all that was spent would be lost, soon after that.
constexpr double kOverrunUndecidable = 4.0;
constexpr double kOverrun = 1.5;
// A family that never worked is given up after so many of its candidates.
constexpr int kHopelessFailures = 6;

// Challengers that would take so many times what the fastest took even if they did as well against their prediction as the
// best of their family are not tried.
constexpr double kHopelesslySlow = 1.5;

class PointTuner {
 public:
  PointTuner(Session& session, const Plan& plan, const PointRequest& request, SweepState& state)
      : session_(session),
        plan_(plan),
        request_(request),
        field_(*request.field),
        state_(state),
        sampling_(plan.device().kind),
        start_s_(session.now_s()),
        lanes_(session, request, state, result_) {
    result_.point.shape = request.shape;
    result_.point.m = request.m;
  }

  Expected<PointResult> run() {
    session_.take_conditions();
    Expected<PointResult> result = measure();
    if (result) {
      result->point.conditions = session_.take_conditions();
    }
    return result;
  }

 private:
  Expected<PointResult> measure() {
    Expected<void> done = session_.set_shape(request_.shape.n, request_.shape.k, plan_.problem().layout);
    if (done) {
      done = admit_incumbents();
    }
    if (done && !baseline_.has_value()) {
      return std::move(result_);  // Failed, or out of time: said already.
    }
    if (done) {
      done = admit_challengers();
    }
    if (done) {
      done = screen();
    }
    if (done) {
      done = decide();
    }
    if (!done) {
      return std::move(done).error();
    }
    return std::move(result_);
  }

  double spent_s() const { return session_.now_s() - start_s_; }
  double quota_left_s() const { return std::min(request_.quota_s - spent_s(), session_.left_s()); }

  double estimate_us(const Candidate& candidate) const {
    return state_.costs.estimate_us(std::string(candidate.family->name()), request_.shape.n, request_.shape.k, request_.m,
                                    candidate.predicted_us);
  }

  // Where only our families can serve, the heuristic is what others have to beat, and the baseline looks on.
  Expected<void> admit_own_incumbent() {
    if (field_.heuristic && !lanes_.is_left_out(*field_.heuristic)) {
      Expected<std::optional<Lane>> lane = lanes_.admit(*field_.heuristic);
      if (!lane) {
        return std::move(lane).error();
      }
      baseline_ = std::move(*lane);
    }
    stands_in_ = true;
    if (baseline_ && field_.baseline && !lanes_.is_left_out(*field_.baseline)) {
      Expected<std::optional<Lane>> lane = lanes_.admit(*field_.baseline);
      if (!lane) {
        return std::move(lane).error();
      }
      witness_ = std::move(*lane);
    }
    return {};
  }

  Expected<void> admit_incumbents() {
    if (field_.own_only) {
      if (Expected<void> done = admit_own_incumbent(); !done) {
        return done;
      }
      return say_without_baseline();
    }
    if (field_.baseline && lanes_.is_left_out(*field_.baseline)) {
      result_.point.status = PointStatus::failed;
      result_.point.reason = "the baseline failed at another M of this weight and was not tried again";
      return {};
    }
    if (field_.baseline) {
      Expected<std::optional<Lane>> lane = lanes_.admit(*field_.baseline);
      if (!lane) {
        return std::move(lane).error();
      }
      baseline_ = std::move(*lane);
    }
    if (field_.heuristic && !lanes_.is_left_out(*field_.heuristic)) {
      Expected<std::optional<Lane>> lane = lanes_.admit(*field_.heuristic);
      if (!lane) {
        return std::move(lane).error();
      }
      heuristic_ = std::move(*lane);
    }
    if (!field_.baseline.has_value()) {
      // No vendor here: the heuristic stands in for the baseline, and what beats it has to beat it by the margin.
      baseline_ = std::exchange(heuristic_, std::nullopt);
      stands_in_ = true;
    }
    return say_without_baseline();
  }

  // Why there is nothing to beat, where there is not.
  Expected<void> say_without_baseline() {
    if (baseline_.has_value()) {
      return {};
    }
    if (session_.ended()) {
      result_.point.reason = "the time budget ended before the baseline was measured";
      return {};
    }
    result_.point.status = PointStatus::failed;
    result_.point.reason = result_.failed.empty() ? std::string("no kernel family serves here")
                                                  : format("the baseline failed: {}: {}", result_.failed.front().kind,
                                                           result_.failed.front().reason);
    return {};
  }

  bool is_hopeless(const Candidate& candidate) const {
    const std::string kernel(candidate.family->name());
    const auto record = state_.families.find(kernel);
    const bool is_known = record != state_.families.end();
    const auto failed_here = std::ranges::count(result_.failed, kernel, &FailedCandidate::kernel);
    return (!is_known || record->second.admitted == 0) &&
           (is_known ? record->second.failed : 0) + failed_here >= kHopelessFailures;
  }

  bool is_hopelessly_slow(const Candidate& candidate) const {
    return !request_.thorough &&
           state_.costs.best_case_us(std::string(candidate.family->name()), request_.shape.n, request_.shape.k, request_.m,
                                     candidate.predicted_us) > kHopelesslySlow * lanes_.fastest_us();
  }

  // Seconds that a race of so many lanes needs to be decided at all.
  double reserve_s(int lanes) const {
    const double own_us = heuristic_ ? heuristic_->admission.first_us : baseline_->admission.first_us;
    const double pass_s = sampling_.seconds(baseline_->admission.first_us) + (lanes - 1) * sampling_.seconds(own_us);
    return fewest_rounds(RaceOptions{}.error / 2, lanes - 1) * pass_s;
  }

  // What was carried on first, then the field as far as the time goes.
  Expected<void> admit_challengers() {
    const auto is_incumbent = [&](const Candidate& c) {
      return c == baseline_->candidate || (heuristic_.has_value() && c == heuristic_->candidate);
    };
    if (request_.carried && !is_incumbent(*request_.carried) && !lanes_.is_left_out(*request_.carried) &&
        quota_left_s() > reserve_s(3)) {
      Candidate carried = *request_.carried;
      carried.predicted_us = carried.family->predict_us(plan_.device(), plan_.problem(), request_.m, carried.config);
      if (Expected<void> legal = carried.family->check(plan_.device(), plan_.problem(), carried.config); legal) {
        Expected<std::optional<Lane>> lane = lanes_.admit(carried);
        if (!lane) {
          return std::move(lane).error();
        }
        carried_ = std::move(*lane);
      }
    }
    const double field_end_s = spent_s() + std::min(kFieldShare * quota_left_s(), quota_left_s() - reserve_s(3));
    for (const Candidate& candidate : field_.challengers) {
      if (field_.own_only && candidate.family->is_vendor()) {
        continue;
      }
      if (lanes_.is_left_out(candidate) || is_hopeless(candidate) || (carried_ && candidate == carried_->candidate)) {
        continue;
      }
      const double us = estimate_us(candidate);
      if (!candidate.family->is_vendor() && is_hopelessly_slow(candidate)) {
        lanes_.debug(candidate, "is hopelessly slow");
        continue;
      }
      const double needed_s = us * 1e-6 + check_s_of(state_, candidate) + kScreeningPasses * sampling_.seconds(us);
      const double reserved_s = kScreeningPasses * sampling_.seconds(us) * static_cast<double>(challengers_.size());
      if (session_.ended()) {
        break;
      }
      // Families cost differently: what is too dear leaves room for what follows.
      if (spent_s() + needed_s + reserved_s > field_end_s) {
        lanes_.debug(candidate, "has no time: {:.2f} s of {:.2f} s spent, {:.2f} s reserved, {:.2f} s needed", spent_s(),
                     field_end_s, reserved_s, needed_s);
        continue;
      }
      // A vendor has many algorithms, and to check one takes longer than to time it.
      Expected<std::optional<Lane>> lane = lanes_.admit(candidate, !candidate.family->is_vendor());
      if (!lane) {
        return std::move(lane).error();
      }
      if (lane->has_value()) {
        challengers_.push_back(std::move(**lane));
      }
    }
    return {};
  }

  // What was not checked when it was admitted is checked before it races. One that is wrong may have driven out others by
  // its times: then all but it are screened again.
  Expected<void> screen() {
    for (;;) {
      Expected<bool> is_done = screen_once();
      if (!is_done) {
        return std::move(is_done).error();
      }
      if (*is_done) {
        return {};
      }
    }
  }

  // Successive thinning: each pass times all that are left and drops the clearly slower ones. It decides nothing but who
  // races. False where a finalist proved wrong.
  Expected<bool> screen_once() {
    finalists_.clear();
    std::erase_if(challengers_, [&](const Lane& lane) { return failed_ids_.contains(lane.id); });
    if (challengers_.empty()) {
      return true;
    }
    std::vector<Lane*> lanes;
    if (heuristic_) {
      lanes.push_back(&*heuristic_);
    } else if (stands_in_) {
      lanes.push_back(&*baseline_);
    }
    const std::size_t incumbents = lanes.size();
    double fastest_us = baseline_->admission.first_us;
    for (Lane& lane : challengers_) {
      lanes.push_back(&lane);
      fastest_us = lane.is_checked ? std::min(fastest_us, lane.admission.first_us) : fastest_us;
    }
    const std::int64_t calls = sampling_.calls(fastest_us);
    std::map<int, std::vector<double>> times;
    // One challenger alone needs no second pass: it races.
    for (int pass = 0; pass < kScreeningPasses && lanes.size() > incumbents + (pass == 0 ? 0 : 1);) {
      std::vector<int> order;
      for (const Lane* lane : lanes) {
        order.push_back(lane->id);
      }
      if (pass % 2 == 1) {
        std::reverse(order.begin(), order.end());
      }
      Expected<Pass> timed = session_.time(order, calls);
      if (!timed) {
        return std::move(timed).error();
      }
      if (timed->out_of_time) {
        break;
      }
      if (timed->failed.has_value()) {
        drop_failed(*timed->failed);
        std::erase_if(lanes, [&](const Lane* lane) { return lane->id == *timed->failed; });
        continue;  // The pass counts for nobody.
      }
      double best_us = 0;
      for (std::size_t i = 0; i < order.size(); ++i) {
        times[order[i]].push_back(timed->us[i]);
        const double us = median(times[order[i]]);
        best_us = best_us == 0 ? us : std::min(best_us, us);
      }
      std::erase_if(lanes, [&](const Lane* lane) {
        const bool is_incumbent = heuristic_ && lane == &*heuristic_;
        return !is_incumbent && lane != &*baseline_ && median(times[lane->id]) > kScreeningSlack[pass] * best_us;
      });
      ++pass;
    }
    std::erase_if(lanes, [&](const Lane* lane) {
      return (heuristic_ && lane == &*heuristic_) || (baseline_ && lane == &*baseline_) || failed_ids_.contains(lane->id);
    });
    std::stable_sort(lanes.begin(), lanes.end(),
                     [&](const Lane* a, const Lane* b) { return median(times[a->id]) < median(times[b->id]); });
    for (Lane* lane : lanes) {
      const std::vector<double>& seen = times[lane->id];
      lanes_.debug(lane->candidate, "screened: {:.2f} us", seen.empty() ? 0.0 : median(seen));
      if (finalists_.size() == kFinalists || seen.empty()) {
        continue;
      }
      if (!lane->is_checked) {
        Expected<bool> is_right = lanes_.check(*lane);
        if (!is_right) {
          return std::move(is_right).error();
        }
        if (!*is_right) {
          failed_ids_.insert(lane->id);
          return session_.ended();
        }
      }
      finalists_.push_back(*lane);
    }
    return true;
  }

  void drop_failed(int id) {
    if (!failed_ids_.insert(id).second) {
      return;  // Blamed already.
    }
    const auto blame_lane = [&](const std::optional<Lane>& lane) {
      if (lane && lane->id == id) {
        lanes_.blame(lane->candidate, session_.failure());
      }
    };
    blame_lane(baseline_);
    blame_lane(witness_);
    blame_lane(heuristic_);
    blame_lane(carried_);
    for (const Lane& lane : challengers_) {
      blame_lane(lane);
    }
    if (heuristic_ && heuristic_->id == id) {
      heuristic_.reset();
    }
    if (carried_ && carried_->id == id) {
      carried_.reset();
    }
  }

  Expected<void> decide() {
    std::vector<Lane> lanes{*baseline_};
    RaceOptions options;
    if (witness_ && !failed_ids_.contains(witness_->id)) {
      options.witness = static_cast<int>(lanes.size());
      lanes.push_back(*witness_);
    }
    if (heuristic_) {
      options.heuristic = static_cast<int>(lanes.size());
      lanes.push_back(*heuristic_);
    }
    if (carried_) {
      options.carried = static_cast<int>(lanes.size());
      lanes.push_back(*carried_);
    }
    std::erase_if(finalists_, [&](const Lane& lane) { return failed_ids_.contains(lane.id); });
    lanes.insert(lanes.end(), finalists_.begin(), finalists_.end());
    double fastest_us = lanes.front().admission.first_us;
    double pass_s = 0;
    for (const Lane& lane : lanes) {
      fastest_us = std::min(fastest_us, lane.admission.first_us);
    }
    const std::int64_t calls = sampling_.calls(fastest_us);
    for (const Lane& lane : lanes) {
      pass_s += static_cast<double>(calls) * lane.admission.first_us * 1e-6;
    }
    fit_to_quota(lanes, options, pass_s);
    options.contenders = static_cast<int>(lanes.size());
    // With fewer rounds than these nothing can be proven.
    const int challengers = options.contenders - 1 - (options.witness > 0 ? 1 : 0);
    const int fewest = fewest_rounds(options.error / 2, std::max(challengers, 1));
    int passes = 0;
    const PassFunction run_pass = [&](std::span<const int> order) -> Expected<Pass> {
      const double overrun = passes++ < fewest ? kOverrunUndecidable : kOverrun;
      if (session_.left_s() < pass_s || spent_s() > overrun * request_.quota_s) {
        return Pass{{}, {}, true};
      }
      return timed_pass(lanes, order, calls, pass_s);
    };
    if (pass_s < kWarmUpBelowS) {
      // The first runs met fresh pages: one more tells how many rounds the time is good for. It counts for nothing.
      std::vector<int> everyone(lanes.size());
      std::iota(everyone.begin(), everyone.end(), 0);
      const Expected<Pass> warm_up = run_pass(everyone);
      if (!warm_up) {
        return warm_up.error();
      }
      if (warm_up->failed.has_value() && *warm_up->failed != 0) {
        return decide();  // Without the lane that failed: at most once for each.
      }
    }
    const double affordable = quota_left_s() / std::max(pass_s, 1e-9);
    const int most = request_.thorough ? kMaxRoundsThorough : kMaxRounds;
    options.max_rounds = std::max(static_cast<int>(std::min<double>(affordable, most)), fewest);
    Expected<RaceResult> raced = race(options, run_pass);
    if (!raced) {
      return std::move(raced).error();
    }
    conclude(lanes, *raced);
    if (options.witness > 0) {
      compare_with_witness(raced->lanes[static_cast<std::size_t>(options.witness)],
                           raced->lanes[static_cast<std::size_t>(raced->winner)]);
    }
    return {};
  }

  // One pass over race lanes; a lane that fails is blamed. `pass_s` receives what it took.
  Expected<Pass> timed_pass(const std::vector<Lane>& lanes, std::span<const int> order, std::int64_t calls, double& pass_s) {
    std::vector<int> ids;
    for (const int lane : order) {
      ids.push_back(lanes[static_cast<std::size_t>(lane)].id);
    }
    const double before_s = session_.now_s();
    Expected<Pass> timed = session_.time(ids, calls);
    if (timed && timed->failed.has_value()) {
      drop_failed(*timed->failed);
      const auto lane = std::find(ids.begin(), ids.end(), *timed->failed);
      timed->failed = order[static_cast<std::size_t>(lane - ids.begin())];
    } else if (timed && !timed->out_of_time) {
      pass_s = (session_.now_s() - before_s) / (1 + timed->repeats);
    }
    return timed;
  }

  // Fewer lanes where the time is short: a race of two is decided after seven passes, one of five after ten.
  void fit_to_quota(std::vector<Lane>& lanes, RaceOptions& options, double& pass_s) const {
    const double left_s = quota_left_s();
    while (lanes.size() > 2) {
      const int rounds = fewest_rounds(options.error / 2, static_cast<int>(lanes.size()) - 1);
      if (pass_s * rounds <= left_s) {
        return;
      }
      // The last finalist goes first, then what was carried on; the heuristic and the baseline stay.
      pass_s *= static_cast<double>(lanes.size() - 1) / static_cast<double>(lanes.size());
      lanes.pop_back();
      if (options.carried >= static_cast<int>(lanes.size())) {
        options.carried = -1;
      }
    }
  }

  void conclude(const std::vector<Lane>& lanes, const RaceResult& raced) {
    TunePoint& point = result_.point;
    const RaceLane& baseline = raced.lanes.front();
    if (baseline.failed) {
      point.status = PointStatus::failed;
      point.reason = format("the baseline failed while it was timed: {}", session_.failure().reason);
      return;
    }
    if (raced.rounds == 0) {
      point.reason = "the time budget ended before a single comparison was complete";
      return;
    }
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      if (raced.lanes[i].median_us > 0) {
        state_.costs.record(std::string(lanes[i].candidate.family->name()), request_.shape.n, request_.shape.k, request_.m,
                            lanes[i].candidate.predicted_us, raced.lanes[i].median_us);
      }
    }
    const auto winner = static_cast<std::size_t>(raced.winner);
    const bool too_few = raced.winner == 0 && raced.undecided && raced.out_of_time &&
                         raced.rounds < fewest_rounds(RaceOptions{}.error / 2, 1);
    if (too_few) {
      point.reason = format("the time budget ended after {} rounds, too few to prove anything", raced.rounds);
      return;
    }
    const Lane& lane = lanes[winner];
    const RaceLane& stats = raced.lanes[winner];
    point.us = stats.median_us;
    point.baseline_us = baseline.median_us;
    point.rounds = stats.rounds;
    point.rel_error = lane.admission.rel_error;
    point.undecided = raced.undecided;
    point.kernel = lane.candidate.family->name();
    point.config = lane.candidate.config;
    if (raced.winner == 0) {
      point.status = PointStatus::baseline;
      point.ratio = point.ratio_lo = point.ratio_hi = 1.0;
      if (!stands_in_) {
        point.kernel = kBaselineKernel;
        point.config = {};
      } else {
        result_.winner = lane.candidate;
      }
      point.reason = describe_baseline_win(lanes, raced);
      return;
    }
    point.status = lane.candidate.family->is_vendor() ? PointStatus::vendor : PointStatus::tile;
    point.ratio = stats.ratio.mid;
    point.ratio_lo = stats.ratio.lo;
    point.ratio_hi = stats.ratio.hi;
    result_.winner = lane.candidate;
  }

  // The choice is ours either way; the baseline, which cannot serve, says what it is worth.
  void compare_with_witness(const RaceLane& witness, const RaceLane& winner) {
    TunePoint& point = result_.point;
    if (point.status != PointStatus::tile && point.status != PointStatus::baseline) {
      return;
    }
    point.status = PointStatus::tile;
    point.reason.clear();
    if (const LaneComparison compared = compare_lanes(witness, winner); compared.other_us > 0) {
      point.baseline_us = compared.other_us;
      point.ratio = compared.ratio.mid;
      point.ratio_lo = compared.ratio.lo;
      point.ratio_hi = compared.ratio.hi;
    }
  }

  static std::string describe_baseline_win(const std::vector<Lane>& lanes, const RaceResult& raced) {
    if (lanes.size() == 1) {
      return "nothing else was left to try";
    }
    std::size_t best = 1;
    for (std::size_t i = 2; i < lanes.size(); ++i) {
      if (raced.lanes[i].rounds > 0 && raced.lanes[i].ratio.mid > raced.lanes[best].ratio.mid) {
        best = i;
      }
    }
    return format("the best of the others, {}, is {:.3f}x the baseline's speed after {} rounds",
                  lanes[best].candidate.to_string(), raced.lanes[best].ratio.mid, raced.lanes[best].rounds);
  }

  Session& session_;
  const Plan& plan_;
  const PointRequest& request_;
  const Field& field_;
  SweepState& state_;
  const Sampling sampling_;
  const double start_s_;
  PointResult result_;
  PointLanes lanes_;
  bool stands_in_ = false;  // The heuristic is the baseline.
  std::optional<Lane> baseline_, heuristic_, carried_;
  std::optional<Lane> witness_;  // The baseline, where it cannot serve.
  std::vector<Lane> challengers_;
  std::vector<Lane> finalists_;
  std::set<int> failed_ids_;
};

}  // namespace

Expected<PointResult> tune_point(Session& session, const Plan& plan, const PointRequest& request, SweepState& state) {
  return PointTuner(session, plan, request, state).run();
}

}  // namespace octile
