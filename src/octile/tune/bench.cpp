// SPDX-License-Identifier: Apache-2.0
// Baseline, best vendor, choice and floor, interleaved row by row; see bench.h.
#include "octile/tune/bench.h"

#include <octile/octile.hpp>

#include "octile/core/env.h"
#include "octile/core/format.h"
#include "octile/kernels/known_devices.h"
#include "octile/tune/all_m.h"
#include "octile/tune/budget.h"
#include "octile/tune/candidates.h"
#include "octile/tune/compile_ahead.h"
#include "octile/tune/contest.h"
#include "octile/tune/random_data.h"
#include "octile/tune/run_hooks.h"
#include "octile/tune/sweep.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace octile {

namespace {

// Passes of a row: fewer than 2 give no interval, more than the usual only tighten it.
constexpr int kFewestPasses = 2;
constexpr int kUsualPasses = 20;
constexpr int kMostPasses = 40;
// Of a point among thousands: the fewest that an interval by signed ranks needs, and a few more.
constexpr int kPassesOfCurve = 8;
constexpr std::int64_t kLargestMOfCurves = std::int64_t{1} << 20;
// Passes of the trial that finds a vendor's fastest algorithm.
constexpr int kTrialPasses = 3;

// Lanes of a row's contest; the last one only where our own families are timed beside another choice.
enum LaneIndex : std::size_t { kBaseline, kChosen, kVendor, kFloor, kOwn };

struct PendingRow {
  std::size_t shape = 0;
  std::int64_t m = 0;
  Choice baseline, chosen;
  std::optional<Choice> own;  // Where curves are asked for and a family of ours is there.

  bool has_own_lane() const { return own && (own->family != chosen.family || !(own->config == chosen.config)); }
};

class Bench {
 public:
  Bench(const BenchOptions& options, const RunHooks& hooks) : options_(options), hooks_(hooks) {}

  Expected<BenchResult> run() {
    if (Expected<void> ready = set_up(); !ready) {
      return std::move(ready).error();
    }
    const std::uint64_t seed = options_.seed != 0 ? options_.seed : fresh_seed();
    Expected<std::unique_ptr<Session>> session = Session::open(options_, hooks_, measure_settings(options_, seed));
    if (!session) {
      return std::move(session).error();
    }
    session_ = std::move(*session);
    if (Expected<void> compiled = compile_choices(); !compiled) {
      return std::move(compiled).error();
    }
    while (!pending_.empty() && !session_->ended()) {
      double quota_s = 0;
      const std::size_t i = options_.all_m ? next_row_of_curve(quota_s) : next_row(quota_s);
      if (i == pending_.size()) {
        break;
      }
      const double passes_s = quota_s - row_cost_of(pending_[i]).first_s;
      const PendingRow row = std::move(pending_[i]);
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
      report(format("{} m={}", options_.shapes[row.shape].name, row.m), false);
      if (Expected<void> done = measure(row, passes_s); !done) {
        return std::move(done).error();
      }
    }
    finish();
    return std::move(result_);
  }

 private:
  Expected<void> set_up() {
    Expected<void> valid = check_run_options(options_);
    if (valid) {
      valid = check_shapes(options_.shapes);
    }
    if (!valid) {
      return valid;
    }
    Expected<Device> device = hooks_.find_device(options_.device);
    if (!device) {
      return std::move(device).error();
    }
    device_ = *device;
    if (Expected<void> limit = check_max_sms(options_, device_.info); !limit) {
      return limit;
    }
    sampling_ = Sampling(device_.info.kind);
    Expected<std::vector<std::int64_t>> m_list = ms_in_order();
    if (!m_list) {
      return std::move(m_list).error();
    }
    const Expected<bool> tuned = env::get_bool("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE");
    if (!tuned) {
      return tuned.error();
    }
    for (const TuneShape& shape : options_.shapes) {
      plans_.push_back(std::make_unique<Plan>(
          Plan::make(device_.backend, device_.info, problem_of(options_, shape), options_.tables, *tuned)));
    }
    for (const std::int64_t m : *m_list) {
      for (std::size_t s = 0; s < options_.shapes.size(); ++s) {
        Choice baseline = plans_[s]->compared_baseline(m);
        Choice chosen = plans_[s]->choose(m);
        if (chosen.family == nullptr || baseline.family == nullptr) {
          return make_error(ErrorCode::unavailable, "{} m={} has no kernel on {}: {}", options_.shapes[s].name, m,
                            device_.info.id, chosen.family == nullptr ? chosen.reason : baseline.reason);
        }
        std::optional<Choice> own;
        if (options_.all_m) {
          own = plans_[s]->own_choice(m);
        }
        if (own && own->family == nullptr) {
          own.reset();
        }
        pending_.push_back({s, m, std::move(baseline), std::move(chosen), std::move(own)});
      }
    }
    total_ = static_cast<std::int64_t>(pending_.size());
    packed_.resize(options_.shapes.size(), false);
    result_.all_m = options_.all_m;
    result_.device_name = device_.info.name;
    result_.octile_version = version();
    result_.kernel_source_hash = combined_source_hash(*device_.backend, device_.info);
    result_.date = utc_now();
    result_.protocol = format(
        "interleaved passes over baseline, choice, vendor{} and floor, forward and backward in turn; each sample >= 4 ms "
        "(on "
        "a GPU "
        "1.5 ms) on cold copies of the weight in rotation; median per lane, 95 % interval of the paired ratio by signed "
        "ranks "
        "(Student's t "
        "below 6 passes)",
        options_.all_m ? ", our own families alone" : "");
    return {};
  }

  Expected<void> compile_choices() {
    if (device_.info.kind != DeviceKind::cuda) {
      return {};
    }
    CompileList list;
    for (const PendingRow& row : pending_) {
      list.add(options_.shapes[row.shape], *row.chosen.family, row.chosen.config);
      if (row.own) {
        list.add(options_.shapes[row.shape], *row.own->family, row.own->config);
      }
    }
    report("compiling", false);
    // No compiler disturbs what is measured: these are few kernels, and a tuner has compiled most of them.
    const Expected<bool> compiled = session_->compile_ahead(list.items(), 0, kShareForCompiling * session_->left_s());
    return compiled ? Expected<void>() : Expected<void>(compiled.error());
  }

  // Small M first: cheap, and what they cost tells what the large ones will. Of curves from coarse to fine.
  Expected<std::vector<std::int64_t>> ms_in_order() {
    const bool is_gpu = device_.info.kind == DeviceKind::cuda;
    if (!options_.all_m) {
      return checked_m_list(options_.m_list, is_gpu);
    }
    if (options_.max_m < 0 || options_.max_m > kLargestMOfCurves || (options_.max_m > 0 && !options_.m_list.empty())) {
      return make_error(ErrorCode::invalid_argument, "largest M of curves: wanted 0 to {}, and 0 beside a list of M, got {}",
                        kLargestMOfCurves, options_.max_m);
    }
    const bool is_cut = options_.m_list.empty() && options_.max_m == 0 && !is_gpu;
    const std::int64_t default_largest = is_gpu ? kLargestCurveM : kLargestCurveMOnCpu;
    Expected<std::vector<std::int64_t>> ms = checked_m_list(
        options_.m_list.empty() ? curve_ms(options_.max_m > 0 ? options_.max_m : default_largest) : options_.m_list, is_gpu);
    if (!ms) {
      return ms;
    }
    if (is_cut) {
      result_.notes.push_back(format("curves end at M = {} on a CPU where no largest M is given", kLargestCurveMOnCpu));
    }
    std::vector<std::int64_t> coarse = default_m_list(is_gpu);
    coarse.push_back(ms->back());
    return coarse_to_fine(*ms, coarse);
  }

  double estimate_us(const Choice& choice, const PendingRow& row) const {
    const TuneShape& shape = options_.shapes[row.shape];
    const double predicted_us = choice.family->predict_us(device_.info, plans_[row.shape]->problem(), row.m, choice.config);
    return costs_.estimate_us(std::string(choice.family->name()), shape.n, shape.k, row.m, predicted_us);
  }

  // A weight is packed once, for the first of its rows.
  bool packs(const PendingRow& row) const {
    return !packed_[row.shape] && &row == &*std::ranges::find(pending_, row.shape, &PendingRow::shape);
  }

  struct RowCost {
    double first_s = 0;  // Before the passes.
    double pass_s = 0;
  };

  // The bare vendor takes about as long as the baseline, the floor is nothing beside them.
  RowCost row_cost_of(const PendingRow& row) const {
    const double baseline_us = estimate_us(row.baseline, row);
    const double chosen_us = estimate_us(row.chosen, row);
    const double own_us = row.has_own_lane() ? estimate_us(*row.own, row) : 0;
    return {(2 * baseline_us + chosen_us + own_us) * 1e-6 + 4 * check_s_ + (packs(row) ? pack_s_ : 0.0),
            2 * sampling_.seconds(baseline_us) + sampling_.seconds(chosen_us) + sampling_.seconds(0) +
                (row.has_own_lane() ? sampling_.seconds(own_us) : 0)};
  }

  PointCost cost_of(const PendingRow& row) const {
    const auto [first_s, pass_s] = row_cost_of(row);
    return {first_s + kFewestPasses * pass_s, first_s + (options_.all_m ? kPassesOfCurve : kUsualPasses) * pass_s};
  }

  // The first in the order from coarse to fine that fits what is left; pending_.size() where none does.
  std::size_t next_row_of_curve(double& quota_s) const {
    for (std::size_t i = 0; i < pending_.size(); ++i) {
      if (cost_of(pending_[i]).minimal_s <= session_->left_s()) {
        quota_s = session_->left_s();  // Its passes are few; only the end of the budget takes of them.
        return i;
      }
    }
    return pending_.size();
  }

  // The first row that fits beside the cheaper ones; where none does, the cheapest: a row with a wide interval tells more
  // than a missing one.
  std::size_t next_row(double& quota_s) const {
    if (options_.time_budget_s <= 0) {
      quota_s = cost_of(pending_.front()).standard_s * 3 + 10;
      return 0;
    }
    std::vector<PointCost> costs;
    costs.reserve(pending_.size());
    for (const PendingRow& row : pending_) {
      costs.push_back(cost_of(row));
    }
    std::size_t cheapest = 0;
    for (std::size_t i = 0; i < pending_.size(); ++i) {
      std::rotate(costs.begin(), costs.begin() + static_cast<std::ptrdiff_t>(i),
                  costs.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      quota_s = share_of_budget(costs, session_->left_s());
      if (quota_s > 0) {
        return i;
      }
      std::rotate(costs.begin(), costs.begin() + 1, costs.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      cheapest = costs[i].minimal_s < costs[cheapest].minimal_s ? i : cheapest;
    }
    quota_s = 0;  // The fewest passes.
    return cheapest;
  }

  static CandidateSpec spec_of(const Choice& choice) {
    return {CandidateSpec::Role::family, std::string(choice.family->name()), choice.config};
  }

  // Where a vendor's algorithms can be searched, the fastest of them in a trial of its own, so that the row's own times
  // carry no selection; elsewhere the bare product.
  Expected<CandidateSpec> best_vendor(const PendingRow& row) {
    CandidateSpec best;
    best.role = CandidateSpec::Role::bare_vendor;
    const FieldLimits limits;
    const Field field = make_field(*device_.backend, *plans_[row.shape], row.m, limits, {});
    std::vector<CandidateSpec> specs;
    for (const Candidate& candidate : field.challengers) {
      if (candidate.family->is_vendor()) {
        specs.push_back({CandidateSpec::Role::family, std::string(candidate.family->name()), candidate.config});
      }
    }
    if (specs.empty()) {
      return best;
    }
    for (const Choice* known : {&row.baseline, &row.chosen}) {
      if (known->family->is_vendor()) {
        specs.push_back(spec_of(*known));
      }
    }
    Contest trial(*session_, sampling_, row.m, std::move(specs));
    if (Expected<void> admitted = trial.admit_unchecked(estimate_us(row.baseline, row)); !admitted) {
      return std::move(admitted).error();
    }
    while (trial.passes() < kTrialPasses) {
      Expected<bool> go_on = trial.pass();
      if (!go_on) {
        return std::move(go_on).error();
      }
      if (!*go_on) {
        break;
      }
    }
    std::vector<const ContestLane*> fastest_first;
    for (const ContestLane& lane : trial.lanes()) {
      if (lane.is_running() && !lane.us.empty()) {
        fastest_first.push_back(&lane);
      }
    }
    std::ranges::stable_sort(fastest_first, {}, [](const ContestLane* lane) { return median(lane->us); });
    // Checks of whole outputs take longer than all their times: only the fastest is checked, and the next where it is wrong.
    for (const ContestLane* lane : fastest_first) {
      Expected<Admission> checked = session_->admit(0, lane->spec, row.m, true);
      if (!checked) {
        return std::move(checked).error();
      }
      if (checked->admitted) {
        return lane->spec;
      }
    }
    return best;
  }

  // Its passes may take `passes_s`. What comes before them may take longer than planned, as with a kernel that is still to
  // be compiled: that is no row's fault, and all that follow share it.
  Expected<void> measure(const PendingRow& row, double passes_s) {
    const TuneShape& shape = options_.shapes[row.shape];
    const double start_s = session_->now_s();
    if (Expected<void> set = session_->set_shape(shape.n, shape.k, plans_[row.shape]->problem().layout); !set) {
      return set;
    }
    std::vector<CandidateSpec> specs(4);
    specs[kBaseline] = spec_of(row.baseline);
    specs[kChosen] = spec_of(row.chosen);
    Expected<CandidateSpec> vendor = best_vendor(row);
    if (!vendor) {
      return std::move(vendor).error();
    }
    specs[kVendor] = std::move(*vendor);
    specs[kFloor].role = CandidateSpec::Role::floor;
    if (row.has_own_lane()) {
      specs.push_back(spec_of(*row.own));
    }
    Contest contest(*session_, sampling_, row.m, std::move(specs));
    if (Expected<void> admitted = contest.admit(); !admitted) {
      return admitted;
    }
    note_costs(row, contest, session_->now_s() - start_s);
    session_->take_conditions();  // Of the vendor's trial.
    // The number of passes is fixed before the first counts: an interval at 95 % allows no peeking.
    const double left_s = std::min(passes_s, session_->left_s());
    const double most = options_.all_m ? kPassesOfCurve : kMostPasses;
    const int passes = static_cast<int>(std::clamp<double>(left_s / std::max(contest.pass_s(), 1e-9), kFewestPasses, most));
    while (contest.passes() < passes && contest.lanes()[kBaseline].is_running() && contest.lanes()[kChosen].is_running()) {
      Expected<bool> go_on = contest.pass();
      if (!go_on) {
        return std::move(go_on).error();
      }
      if (!*go_on) {
        break;
      }
    }
    conclude(row, contest);
    return {};
  }

  void note_costs(const PendingRow& row, Contest& contest, double seconds) {
    const TuneShape& shape = options_.shapes[row.shape];
    double runs_s = 0;
    for (const ContestLane& lane : contest.lanes()) {
      runs_s += lane.admission.first_us * 1e-6;
    }
    if (packed_[row.shape]) {
      checks_s_.push_back(std::max((seconds - runs_s) / 4, 0.0));
      check_s_ = median(checks_s_);  // One kernel that had to be compiled says nothing of the others.
    } else {
      pack_s_ = std::max(seconds - runs_s, 0.01);
    }
    packed_[row.shape] = true;
    const auto record = [&](const Choice& choice, const ContestLane& lane) {
      const double predicted_us =
          choice.family->predict_us(device_.info, plans_[row.shape]->problem(), row.m, choice.config);
      costs_.record(std::string(choice.family->name()), shape.n, shape.k, row.m, predicted_us, lane.admission.first_us);
    };
    record(row.baseline, contest.lanes()[kBaseline]);
    record(row.chosen, contest.lanes()[kChosen]);
    if (row.has_own_lane()) {
      record(*row.own, contest.lanes()[kOwn]);
    }
  }

  void conclude(const PendingRow& pending, Contest& contest) {
    const std::vector<ContestLane>& lanes = contest.lanes();
    const TuneShape& shape = options_.shapes[pending.shape];
    const auto miss = [&](const std::string& reason) {
      result_.missing.push_back(format("{} m={}: {}", shape.name, pending.m, reason));
    };
    for (const std::size_t needed : {kBaseline, kChosen}) {
      if (!lanes[needed].failure.empty()) {
        miss(format("{} {}", lanes[needed].spec.kernel, lanes[needed].failure));
        return;
      }
    }
    if (contest.passes() < kFewestPasses) {
      miss(format("{} complete passes before the time ended, wanted at least {}", contest.passes(), kFewestPasses));
      return;
    }
    BenchRow row;
    row.shape = shape.name;
    row.n = shape.n;
    row.k = shape.k;
    row.m = pending.m;
    row.scope = options_.scope;
    row.layout = lanes[kChosen].admission.layout;
    // Lanes are chains of calls; only a choice in this mode uses that, and its time holds for such chains alone.
    row.chained = pdl_on(device_.info, options_.pdl) == Pdl::full &&
                  pending.chosen.config.find("PDL") == static_cast<std::int64_t>(Pdl::full);
    row.out_dtype = to_string(options_.out_dtype);
    row.accumulate = table_key(device_.info, plans_[pending.shape]->problem(), row.layout).accumulate;
    row.baseline_us = median(lanes[kBaseline].us);
    row.baseline_kernel = pending.baseline.kernel;
    row.chosen_us = median(lanes[kChosen].us);
    row.chosen_kernel = pending.chosen.kernel;
    row.chosen_config = pending.chosen.config;
    row.max_sms = options_.max_sms;
    row.choice = to_string(pending.chosen.kind);
    row.rounds = contest.passes();
    const Interval ratio = paired_ratio_95(lanes[kBaseline].us, lanes[kChosen].us);
    row.ratio = ratio.mid;
    row.ratio_lo = ratio.lo;
    row.ratio_hi = ratio.hi;
    add_vendor(lanes[kVendor], lanes[kChosen], row);
    if (pending.own) {
      add_own(*pending.own, lanes, pending.has_own_lane() ? kOwn : kChosen, row);
    }
    add_floor(lanes[kFloor], row);
    const double products = 2.0 * static_cast<double>(row.m) * static_cast<double>(row.n) * static_cast<double>(row.k);
    row.tflops = products / row.chosen_us * 1e-6;
    const double x_bytes = static_cast<double>(row.m * row.k) * (options_.scope == "gemm" ? 1 : 2);
    const double y_bytes = static_cast<double>(row.m * row.n * size_of(options_.out_dtype));
    row.gbps = (static_cast<double>(row.n * row.k) + x_bytes + y_bytes) / row.chosen_us * 1e-3;
    row.rel_error = lanes[kChosen].admission.rel_error;
    row.conditions = session_->take_conditions();
    result_.rows.push_back(std::move(row));
  }

  static void add_note(BenchRow& row, const std::string& note) { row.note += (row.note.empty() ? "" : "; ") + note; }

  // Of a lane that ran: its family is one of the backend's.
  void add_algorithm(const ContestLane& vendor, BenchRow& row) const {
    const KernelFamily& family = *find_family(*device_.backend, vendor.spec.kernel);
    row.best_vendor_config = vendor.spec.config;
    row.best_vendor_source_hash = family.source_hash();
    row.best_vendor_version = family.version();
    row.best_vendor_rel_error = vendor.admission.rel_error;
    row.best_vendor_kernel += " " + vendor.spec.config.to_json();
  }

  void add_vendor(const ContestLane& vendor, const ContestLane& chosen, BenchRow& row) const {
    if (!vendor.is_running() || vendor.us.size() != chosen.us.size()) {
      add_note(row, format("no vendor: {}", vendor.failure));
      return;
    }
    row.best_vendor_us = median(vendor.us);
    row.best_vendor_kernel = vendor.admission.kernel;
    if (vendor.spec.role == CandidateSpec::Role::family && !vendor.spec.config.values.empty()) {
      add_algorithm(vendor, row);
    }
    const Interval ratio = paired_ratio_95(vendor.us, chosen.us);
    row.vs_vendor = ratio.mid;
    row.vs_vendor_lo = ratio.lo;
    row.vs_vendor_hi = ratio.hi;
  }

  static void add_own(const Choice& choice, const std::vector<ContestLane>& lanes, std::size_t index, BenchRow& row) {
    const ContestLane& own = lanes[index];
    row.own_kernel = choice.config.values.empty() ? choice.kernel : format("{} {}", choice.kernel, choice.config.to_json());
    if (!own.is_running() || own.us.size() != lanes[kBaseline].us.size()) {
      add_note(row, format("our own families alone: {} {}", choice.kernel, own.failure));
      return;
    }
    row.own_us = median(own.us);
    const Interval ratio = paired_ratio_95(lanes[kBaseline].us, own.us);
    row.own_ratio = ratio.mid;
    row.own_ratio_lo = ratio.lo;
    row.own_ratio_hi = ratio.hi;
    if (lanes[kVendor].is_running() && lanes[kVendor].us.size() == own.us.size()) {
      const Interval over_vendor = paired_ratio_95(lanes[kVendor].us, own.us);
      row.own_vs_vendor = over_vendor.mid;
      row.own_vs_vendor_lo = over_vendor.lo;
      row.own_vs_vendor_hi = over_vendor.hi;
    }
  }

  static void add_floor(const ContestLane& floor, BenchRow& row) {
    if (!floor.is_running() || floor.us.empty()) {
      add_note(row, format("no floor: {}", floor.failure));
      return;
    }
    row.floor_us = median(floor.us);
    row.floor_share = row.floor_us / row.chosen_us;
  }

  void report(const std::string& doing, bool finished) const {
    if (!options_.progress) {
      return;
    }
    TuneProgress progress;
    progress.total = total_;
    progress.done = std::max<std::int64_t>(total_ - static_cast<std::int64_t>(pending_.size()) - (finished ? 0 : 1), 0);
    progress.elapsed_s = session_->elapsed_s();
    double needed_s = 0;
    if (options_.all_m && progress.done > 0) {
      // Thousands of estimates for every row would take longer than the rows.
      needed_s = progress.elapsed_s / static_cast<double>(progress.done) * static_cast<double>(pending_.size() + 1);
    } else if (!options_.all_m) {
      for (const PendingRow& row : pending_) {
        needed_s += cost_of(row).standard_s;
      }
    }
    progress.left_s = finished ? 0 : std::max(std::min(needed_s, session_->left_s()), 0.0);
    progress.doing = doing;
    progress.finished = finished;
    options_.progress(progress);
  }

  void add_unmeasured() {
    constexpr const char* kReason = "it did not fit the time budget";
    if (!options_.all_m) {
      for (const PendingRow& row : pending_) {
        result_.missing.push_back(format("{} m={}: {}", options_.shapes[row.shape].name, row.m, kReason));
      }
      return;
    }
    for (std::size_t s = 0; s < options_.shapes.size(); ++s) {
      const TuneShape& shape = options_.shapes[s];
      LeftOut left_out{shape.name, shape.n, shape.k, {}, session_->interrupted_by() != 0 ? "interrupted" : kReason};
      for (const PendingRow& row : pending_) {
        if (row.shape == s) {
          left_out.m.push_back(row.m);
        }
      }
      std::ranges::sort(left_out.m);
      if (!left_out.m.empty()) {
        result_.left_out.push_back(std::move(left_out));
      }
    }
  }

  void finish() {
    add_unmeasured();
    const auto shape_index = [&](const BenchRow& row) {
      for (std::size_t s = 0; s < options_.shapes.size(); ++s) {
        const TuneShape& shape = options_.shapes[s];
        if (shape.name == row.shape && shape.n == row.n && shape.k == row.k) {
          return s;
        }
      }
      return options_.shapes.size();
    };
    std::stable_sort(result_.rows.begin(), result_.rows.end(), [&](const BenchRow& a, const BenchRow& b) {
      return std::pair(shape_index(a), a.m) < std::pair(shape_index(b), b.m);
    });
    std::vector<double> ratios;
    MeasureConditions conditions;
    for (const BenchRow& row : result_.rows) {
      ratios.push_back(row.ratio);
      conditions.add(row.conditions);
    }
    if (std::string disturbed = disturbance_text(conditions); !disturbed.empty()) {
      result_.notes.push_back(std::move(disturbed));
    }
    result_.geomean_ratio = geometric_mean(ratios);
    result_.interrupted_by = session_->interrupted_by();
    result_.elapsed_s = session_->elapsed_s();
    report(result_.interrupted_by != 0 ? "interrupted" : "done", true);
  }

  const BenchOptions& options_;
  const RunHooks& hooks_;
  Device device_;
  Sampling sampling_{DeviceKind::cpu};        // The device's, once it is found.
  std::vector<std::unique_ptr<Plan>> plans_;  // Choices point into their tables.
  std::vector<PendingRow> pending_;
  std::vector<bool> packed_;  // By shape.
  CostModel costs_;
  std::vector<double> checks_s_;  // A quarter of what each row took before its passes.
  double check_s_ = 0.02;
  double pack_s_ = 1.0;
  std::int64_t total_ = 0;
  std::unique_ptr<Session> session_;
  BenchResult result_;
};

}  // namespace

Expected<BenchResult> bench_with(const BenchOptions& options, const RunHooks& hooks) { return Bench(options, hooks).run(); }

}  // namespace octile
