// SPDX-License-Identifier: Apache-2.0
// Re-measures what tables promise; see verify.h.
#include "octile/tune/verify.h"

#include "octile/core/format.h"
#include "octile/tune/all_m.h"
#include "octile/tune/contest.h"
#include "octile/tune/random_data.h"
#include "octile/tune/run_hooks.h"
#include "octile/tune/sweep.h"
#include "octile/tune/verify_fix.h"
#include "octile/tune/verify_plans.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>

namespace octile {

namespace {

// Passes behind a first opinion, fewer where there are thousands of checks, and behind a verdict that fails a table.
constexpr int kFirstPasses = 8;
constexpr int kFirstPassesOfEveryM = 5;
constexpr int kVerdictPasses = 30;
// Probability that `verify` fails a table in which every entry is as fast as the baseline.
constexpr double kFalseAlarm = 0.05;
// What beats a choice by no more than the tuner's margin would not have replaced it.
constexpr double kTunersMargin = 0.02;
// Where an entry has no upper end, or a very large one, its end is checked here.
constexpr std::int64_t kLargestCheckedM = 8192;
constexpr std::int64_t kLargestCheckedMOnCpu = 2048;  // A call at 8192 takes seconds there.

// One M of one table.
struct Check {
  std::size_t plan = 0;
  std::int64_t m = 0;
};

// What a choice is held against.
struct Rival {
  CandidateSpec spec;
  std::string name;
  double margin = 0;  // The choice loses where it is slower by more than this.
};

// A choice loses to this rival, as far as a first opinion goes.
struct Suspicion {
  Rival rival;
  double excess = 0;
};

class Verify {
 public:
  Verify(const VerifyOptions& options, const RunHooks& hooks) : options_(options), hooks_(hooks) {}

  Expected<VerifyResult> run() {
    Expected<VerifyPlans> found = find_verify_plans(options_, hooks_);
    if (!found) {
      return std::move(found).error();
    }
    device_ = found->device;
    plans_ = std::move(found->plans);
    result_.all_m = options_.all_m;
    result_.device_name = device_.info.name;
    result_.findings = std::move(found->findings);
    result_.advice = std::move(found->advice);
    const std::uint64_t seed = options_.seed != 0 ? options_.seed : fresh_seed();
    plan_checks(seed);
    Expected<std::unique_ptr<Session>> session = Session::open(options_, hooks_, measure_settings(options_, seed));
    if (!session) {
      return std::move(session).error();
    }
    session_ = std::move(*session);
    for (const Check& check : checks_) {
      if (session_->ended()) {
        break;
      }
      report(check, false);
      if (Expected<void> done = measure(check); !done) {
        return std::move(done).error();
      }
      ++done_;
    }
    result_.interrupted_by = session_->interrupted_by();
    if (done_ < checks_.size() && result_.interrupted_by == 0) {
      result_.advice.push_back(
          {"", "", "not_checked",
           format("the time budget ended: {} of {} checks were not made", checks_.size() - done_, checks_.size())});
    }
    if (options_.all_m) {
      add_cliffs();
    }
    report({}, true);
    const double left_s = session_->left_s();
    result_.elapsed_s = session_->elapsed_s();
    session_.reset();
    if (options_.fix && result_.interrupted_by == 0) {
      Expected<void> fixed = fix_losses(options_, hooks_, plans_, left_s, result_);
      if (!fixed) {
        return std::move(fixed).error();
      }
    }
    return std::move(result_);
  }

 private:
  void plan_checks(std::uint64_t seed) {
    for (std::size_t p = 0; p < plans_.size(); ++p) {
      const TileTable& table = *plans_[p]->lookup().table;
      const std::set<std::int64_t> ms = options_.all_m ? every_m(seed) : ends_of(*plans_[p], table);
      for (const std::int64_t m : ms) {
        checks_.push_back({p, m});
      }
    }
    // Whatever part of the checks a budget leaves is spread over all M.
    const auto order = [&](const Check& check) {
      return options_.all_m ? scattered(check.m - 1, options_.largest_random_m) : check.m;
    };
    std::ranges::stable_sort(checks_, {}, order);
  }

  std::int64_t largest_m() const { return device_.info.kind == DeviceKind::cuda ? kLargestCheckedM : kLargestCheckedMOnCpu; }

  std::int64_t largest_random_m() const {
    return device_.info.kind == DeviceKind::cuda ? options_.largest_random_m
                                                 : std::min(options_.largest_random_m, kLargestCheckedMOnCpu);
  }

  std::set<std::int64_t> every_m(std::uint64_t seed) const {
    std::set<std::int64_t> ms;
    for (std::int64_t m = 1; m <= options_.every_m_up_to; ++m) {
      ms.insert(m);
    }
    std::vector<std::int64_t> above;
    for (std::int64_t m = options_.every_m_up_to + 1; m <= largest_random_m(); ++m) {
      above.push_back(m);
    }
    std::mt19937_64 generator(seed);
    std::ranges::sample(above, std::inserter(ms, ms.end()), options_.random_ms, generator);
    return ms;
  }

  // The key itself and both ends of what an entry serves: in a field table that reaches half way to the neighbours' keys,
  // and from the last key up to any M, where a tile for decoding may serve prefill. Small M come first, so that a short
  // budget checks what decoding uses.
  std::set<std::int64_t> ends_of(const Plan& plan, const TileTable& table) const {
    const std::vector<TableSegment> segments = segments_of(table);
    std::set<std::int64_t> ends;
    for (std::size_t i = 0; i < table.entries.size(); ++i) {
      const TableEntry& entry = table.entries[i];
      if (!entry.left_out.empty() || !plan.skip_reason(i).empty()) {
        continue;  // Findings already.
      }
      ends.insert(entry.m_lo);
      for (const TableSegment& segment : segments) {
        if (segment.entry == &entry) {
          ends.insert(std::max(segment.m_lo, std::int64_t{1}));
          ends.insert(std::max(segment.m_lo, std::min(segment.m_hi, std::max(entry.m_lo, largest_m()))));
        }
      }
    }
    return ends;
  }

  static CandidateSpec spec_of(const Choice& choice) {
    return {CandidateSpec::Role::family, std::string(choice.family->name()), choice.config};
  }

  // The baseline first, where it is another kernel; with all_m the heuristic and what serves on both sides.
  std::vector<Rival> rivals_of(const Plan& plan, std::int64_t m, const Choice& chosen) const {
    std::vector<Rival> rivals;
    const auto add = [&](const Choice& choice, const std::string& name, double margin) {
      const auto is_same = [&](const Rival& rival) {
        return rival.spec.kernel == choice.family->name() && rival.spec.config == choice.config;
      };
      const bool is_choice = chosen.family == choice.family && chosen.config == choice.config;
      if (!is_choice && std::ranges::none_of(rivals, is_same)) {
        rivals.push_back({spec_of(choice), name, margin});
      }
    };
    const Choice baseline = plan.compared_baseline(m);
    if (chosen.kind != ChoiceKind::baseline && baseline.family != nullptr) {
      add(baseline, "the baseline", 0);
    }
    if (!options_.all_m) {
      return rivals;
    }
    const auto add_other = [&](const Choice& choice) {
      const bool is_legal = choice.family != nullptr && choice.family->check(plan.device(), plan.problem(), choice.config);
      if (is_legal) {
        add(choice, format("{} {}", choice.kernel, choice.config.to_json()), kTunersMargin);
      }
    };
    add_other(plan.heuristic_choice(m, {}, {}));
    const std::vector<std::int64_t> starts = plan.breakpoints(options_.largest_random_m);
    const auto next = std::ranges::upper_bound(starts, m);
    if (next != starts.end()) {
      add_other(plan.choose(*next));
    }
    if (const auto own = std::prev(next); own != starts.begin()) {
      add_other(plan.choose(*std::prev(own)));
    }
    return rivals;
  }

  Expected<void> measure(const Check& check) {
    const Plan& plan = *plans_[check.plan];
    const TileTable& table = *plan.lookup().table;
    const Choice chosen = plan.choose(check.m);
    if (chosen.family == nullptr) {
      return {};  // An engine's baseline: only the engine can run it.
    }
    if (Expected<void> set = session_->set_shape(plan.problem().n, plan.problem().k, plan.problem().layout); !set) {
      return set;
    }
    const std::vector<Rival> rivals = rivals_of(plan, check.m, chosen);
    std::vector<CandidateSpec> specs;
    for (const Rival& rival : rivals) {
      specs.push_back(rival.spec);
    }
    specs.push_back(spec_of(chosen));
    Contest contest(*session_, Sampling(device_.info.kind), check.m, std::move(specs));
    if (Expected<void> admitted = contest.admit(); !admitted) {
      return admitted;
    }
    VerifiedEntry verified;
    verified.file = table.file;
    verified.key = chosen.table_key.empty() ? "gap" : chosen.table_key;
    verified.n = plan.problem().n;
    verified.k = plan.problem().k;
    verified.m = check.m;
    verified.kernel = chosen.kernel;
    verified.config = chosen.config;
    const ContestLane& lane = contest.lanes().back();
    if (!lane.admission.admitted) {
      if (!lane.admission.kind.empty()) {
        add_finding(verified, lane.admission.kind, lane.admission.reason);
      }
      return {};
    }
    verified.rel_error = lane.admission.rel_error;
    if (options_.all_m || (!rivals.empty() && contest.lanes().front().is_running())) {
      if (Expected<void> timed = compare(contest, rivals, verified); !timed) {
        return timed;
      }
    }
    result_.entries.push_back(std::move(verified));
    return {};
  }

  void add_finding(const VerifiedEntry& verified, const std::string& kind, const std::string& message) {
    result_.findings.push_back({verified.file, verified.key, kind, format("M = {}: {}", verified.m, message)});
  }

  Expected<void> run_passes(Contest& contest, int passes) {
    const ContestLane& lane = contest.lanes().back();
    while (contest.passes() < passes && lane.is_running() && session_->left_s() > contest.pass_s()) {
      Expected<bool> go_on = contest.pass();
      if (!go_on) {
        return std::move(go_on).error();
      }
      if (!*go_on) {
        break;
      }
    }
    return {};
  }

  // A first opinion; where a rival looks faster, a duel on fresh data at a level that allows for the number of checks.
  Expected<void> compare(Contest& contest, const std::vector<Rival>& rivals, VerifiedEntry& verified) {
    if (Expected<void> done = run_passes(contest, options_.all_m ? kFirstPassesOfEveryM : kFirstPasses); !done) {
      return done;
    }
    const ContestLane& lane = contest.lanes().back();
    if (!lane.failure.empty()) {
      add_finding(verified, lane.failure.substr(0, lane.failure.find(':')), lane.failure);
      return {};
    }
    if (lane.us.size() < 2) {
      result_.advice.push_back(
          {verified.file, verified.key, "not_timed", format("M = {}: the time budget left no room to time it", verified.m)});
      return {};
    }
    verified.us = median(lane.us);
    verified.rounds = contest.passes();
    std::optional<Suspicion> worst;
    for (std::size_t i = 0; i < rivals.size(); ++i) {
      const ContestLane& rival = contest.lanes()[i];
      if (!rival.is_running() || rival.us.size() != lane.us.size()) {
        continue;
      }
      if (rivals[i].margin == 0) {
        set_baseline(rival, lane, verified);
      }
      const double excess = paired_ratio_95(lane.us, rival.us).lo / (1 + rivals[i].margin);
      if (excess > 1 && (!worst || excess > worst->excess)) {
        worst = Suspicion{rivals[i], excess};
      }
    }
    return worst ? duel(contest, *worst, verified) : Expected<void>();
  }

  static void set_baseline(const ContestLane& baseline, const ContestLane& lane, VerifiedEntry& verified) {
    const Interval ratio = paired_ratio_95(baseline.us, lane.us);
    verified.baseline_us = median(baseline.us);
    verified.ratio = ratio.mid;
    verified.ratio_lo = ratio.lo;
    verified.ratio_hi = ratio.hi;
  }

  Expected<void> duel(const Contest& first, const Suspicion& suspicion, VerifiedEntry& verified) {
    const Rival& rival = suspicion.rival;
    Contest contest(*session_, Sampling(device_.info.kind), verified.m, {rival.spec, first.lanes().back().spec});
    Expected<void> done = contest.admit();
    if (done) {
      done = run_passes(contest, kVerdictPasses);
    }
    if (!done) {
      return done;
    }
    const ContestLane& other = contest.lanes().front();
    const ContestLane& lane = contest.lanes().back();
    if (contest.passes() < kVerdictPasses || other.us.size() != lane.us.size()) {
      return {};  // No verdict: the time ended, or one of the two failed.
    }
    verified.us = median(lane.us);
    verified.rounds = contest.passes();
    if (rival.margin == 0) {
      set_baseline(other, lane, verified);
    }
    std::vector<double> differences;
    for (std::size_t i = 0; i < lane.us.size(); ++i) {
      differences.push_back(std::log(lane.us[i]) - std::log(other.us[i]));
    }
    const double tail = kFalseAlarm / static_cast<double>(checks_.size());
    if (signed_rank_interval(differences, tail).lo > std::log1p(rival.margin)) {
      const Interval ratio = paired_ratio_95(other.us, lane.us);
      verified.beaten_by = rival.name;
      add_finding(verified, "loses",
                  format("it takes {:.2f} us, {} {:.2f} us: {:.3f}x [{:.3f}, {:.3f}], slower beyond doubt", verified.us,
                         rival.name, median(other.us), ratio.mid, ratio.lo, ratio.hi));
    }
    return {};
  }

  void add_cliffs() {
    std::map<std::string, std::map<std::int64_t, CurvePoint>> curves;
    for (const VerifiedEntry& entry : result_.entries) {
      if (entry.us > 0) {
        curves[entry.file][entry.m] = {entry.m, entry.us, entry.kernel};
      }
    }
    for (const auto& [file, by_m] : curves) {
      std::vector<CurvePoint> curve;
      for (const auto& [m, point] : by_m) {
        curve.push_back(point);
      }
      result_.cliffs.push_back({file, find_cliffs(curve)});
    }
  }

  void report(const Check& check, bool finished) const {
    if (!options_.progress) {
      return;
    }
    TuneProgress progress;
    progress.total = static_cast<std::int64_t>(checks_.size());
    progress.done = static_cast<std::int64_t>(done_);
    progress.elapsed_s = session_->elapsed_s();
    const double per_check_s = done_ > 0 ? progress.elapsed_s / static_cast<double>(done_) : 1.0;
    progress.left_s =
        finished ? 0
                 : std::max(std::min(per_check_s * static_cast<double>(checks_.size() - done_), session_->left_s()), 0.0);
    progress.finished = finished;
    if (!finished) {
      const Problem& problem = plans_[check.plan]->problem();
      progress.doing = format("{}x{} m={}", problem.n, problem.k, check.m);
    }
    options_.progress(progress);
  }

  const VerifyOptions& options_;
  const RunHooks& hooks_;
  Device device_;
  std::vector<std::unique_ptr<Plan>> plans_;
  std::vector<Check> checks_;
  std::size_t done_ = 0;
  std::unique_ptr<Session> session_;
  VerifyResult result_;
};

}  // namespace

Expected<VerifyResult> verify_with(const VerifyOptions& options, const RunHooks& hooks) {
  return Verify(options, hooks).run();
}

}  // namespace octile
