// SPDX-License-Identifier: Apache-2.0
// Re-measures what tables promise; see verify.h.
#include "octile/tune/verify.h"

#include "octile/core/format.h"
#include "octile/table/table_store.h"
#include "octile/tune/contest.h"
#include "octile/tune/random_data.h"
#include "octile/tune/run_hooks.h"
#include "octile/tune/sweep.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <limits>
#include <memory>
#include <set>
#include <utility>

namespace octile {

namespace {

// Passes behind a first opinion, and behind a verdict that fails a table.
constexpr int kFirstPasses = 8;
constexpr int kVerdictPasses = 30;
// Probability that `verify` fails a table in which every entry is as fast as the baseline.
constexpr double kFalseAlarm = 0.05;
// Where an entry has no upper end, or a very large one, its end is checked here.
constexpr std::int64_t kLargestCheckedM = 8192;
constexpr std::int64_t kLargestCheckedMOnCpu = 2048;  // A call at 8192 takes seconds there.

// One entry at one M.
struct Check {
  std::size_t plan = 0;
  std::size_t entry = 0;
  std::int64_t m = 0;
};

std::string key_of(const TileTable& table, const TableEntry& entry) {
  return table.field_format ? std::to_string(entry.m_lo) : format("[{}, {}]", entry.m_lo, entry.m_hi);
}

class Verify {
 public:
  Verify(const VerifyOptions& options, const RunHooks& hooks) : options_(options), hooks_(hooks) {}

  Expected<VerifyResult> run() {
    if (Expected<void> ready = set_up(); !ready) {
      return std::move(ready).error();
    }
    const std::uint64_t seed = options_.seed != 0 ? options_.seed : fresh_seed();
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
    result_.elapsed_s = session_->elapsed_s();
    report({}, true);
    return std::move(result_);
  }

 private:
  Expected<void> set_up() {
    if (Expected<void> valid = check_run_options(options_); !valid) {
      return valid;
    }
    Expected<Device> device = hooks_.find_device(options_.device);
    if (!device) {
      return std::move(device).error();
    }
    device_ = *device;
    result_.device_name = device_.info.name;
    std::vector<TuneShape> shapes = options_.shapes;
    if (shapes.empty()) {
      shapes = shapes_with_tables();
    }
    std::set<std::string> files;
    for (const TuneShape& shape : shapes) {
      if (shape.n < 1 || shape.k < 1) {
        return make_error(ErrorCode::invalid_argument, "shape {}: wanted n and k >= 1, got n = {}, k = {}", shape.name,
                          shape.n, shape.k);
      }
      add_plan(shape, files);
    }
    if (files.empty() && result_.findings.empty()) {
      std::string searched;
      for (const std::string& directory : table_search_path(options_.tables)) {
        searched += format("{}{}", searched.empty() ? "" : ", ", directory);
      }
      return make_error(ErrorCode::invalid_argument, "no table of {} to verify{} in {}", device_.info.name,
                        options_.shapes.empty() ? "" : " for these shapes", searched);
    }
    // Small M first, so that a short budget checks what decoding uses.
    std::stable_sort(checks_.begin(), checks_.end(), [](const Check& a, const Check& b) { return a.m < b.m; });
    return {};
  }

  // Every (n, k) of which a file of this device lies in a directory of the search path.
  std::vector<TuneShape> shapes_with_tables() const {
    std::set<std::pair<std::int64_t, std::int64_t>> found;
    const auto look_at = [&](const std::filesystem::path& directory) {
      std::error_code missing;
      for (const auto& file : std::filesystem::directory_iterator(directory, missing)) {
        const std::optional<TableFileName> name = parse_table_file_name(file.path().filename().string());
        if (name && name->key.device_name == device_.info.name) {
          found.emplace(name->key.n, name->key.k);
        }
      }
    };
    for (const std::string& directory : table_search_path(options_.tables)) {
      look_at(directory);
      look_at(std::filesystem::path(directory) / device_.info.name);
    }
    std::vector<TuneShape> shapes;
    for (const auto& [n, k] : found) {
      shapes.push_back({format("{}x{}", n, k), n, k});
    }
    return shapes;
  }

  void add_plan(const TuneShape& shape, std::set<std::string>& files) {
    auto plan = std::make_unique<Plan>(
        Plan::make(device_.backend, device_.info, problem_of(options_, shape), options_.tables, true));
    for (const Finding& finding : plan->lookup().findings) {
      result_.findings.push_back(finding);
    }
    const TileTable* table = plan->lookup().table.get();
    if (table == nullptr || !files.insert(table->file).second) {
      return;
    }
    if (!plan->table_refusal().empty()) {
      result_.findings.push_back({table->file, "", "hard_key", plan->table_refusal()});
      return;
    }
    add_checks(*plan, *table);
    plans_.push_back(std::move(plan));
  }

  void add_checks(const Plan& plan, const TileTable& table) {
    const std::vector<TableSegment> segments = segments_of(table);
    bool is_stale_said = false;
    for (std::size_t i = 0; i < table.entries.size(); ++i) {
      const TableEntry& entry = table.entries[i];
      if (!entry.left_out.empty()) {
        continue;  // A finding of reading the file already.
      }
      if (!plan.skip_reason(i).empty()) {
        result_.findings.push_back({table.file, key_of(table, entry), "illegal", plan.skip_reason(i)});
        continue;
      }
      const Choice choice = plan.choose(entry.m_lo);
      if (choice.stale && !std::exchange(is_stale_said, true)) {
        result_.advice.push_back({table.file, "", "stale", choice.reason});
      }
      for (const std::int64_t m : ends_of(segments, entry)) {
        checks_.push_back({plans_.size(), i, m});
      }
    }
  }

  // The key itself and both ends of what the entry serves: in a field table that reaches half way to the neighbours' keys,
  // and from the last key up to any M, where a tile for decoding may serve prefill.
  std::set<std::int64_t> ends_of(const std::vector<TableSegment>& segments, const TableEntry& entry) const {
    const std::int64_t largest = device_.info.kind == DeviceKind::cuda ? kLargestCheckedM : kLargestCheckedMOnCpu;
    std::set<std::int64_t> ends{entry.m_lo};
    for (const TableSegment& segment : segments) {
      if (segment.entry == &entry) {
        ends.insert(std::max(segment.m_lo, std::int64_t{1}));
        ends.insert(std::max(segment.m_lo, std::min(segment.m_hi, std::max(entry.m_lo, largest))));
      }
    }
    return ends;
  }

  Expected<void> measure(const Check& check) {
    const Plan& plan = *plans_[check.plan];
    const TileTable& table = *plan.lookup().table;
    const TableEntry& entry = table.entries[check.entry];
    const Choice chosen = plan.choose(check.m);
    const Choice baseline = plan.baseline_choice(check.m, {});
    if (chosen.family == nullptr) {
      return {};  // An engine's baseline: only the engine can run it.
    }
    if (Expected<void> set = session_->set_shape(plan.problem().n, plan.problem().k); !set) {
      return set;
    }
    const bool is_compared = chosen.kind != ChoiceKind::baseline && baseline.family != nullptr;
    std::vector<CandidateSpec> specs;
    if (is_compared) {
      specs.push_back({CandidateSpec::Role::family, std::string(baseline.family->name()), baseline.config});
    }
    specs.push_back({CandidateSpec::Role::family, std::string(chosen.family->name()), chosen.config});
    Contest contest(*session_, Sampling(device_.info.kind), check.m, std::move(specs));
    if (Expected<void> admitted = contest.admit(); !admitted) {
      return admitted;
    }
    VerifiedEntry verified;
    verified.file = table.file;
    verified.key = key_of(table, entry);
    verified.n = plan.problem().n;
    verified.k = plan.problem().k;
    verified.m = check.m;
    verified.kernel = chosen.kernel;
    const auto finding = [&](const std::string& kind, const std::string& message) {
      result_.findings.push_back({table.file, verified.key, kind, format("M = {}: {}", check.m, message)});
    };
    const ContestLane& lane = contest.lanes().back();
    if (!lane.admission.admitted) {
      if (!lane.admission.kind.empty()) {
        finding(lane.admission.kind, lane.admission.reason);
      }
      return {};
    }
    verified.rel_error = lane.admission.rel_error;
    if (is_compared && contest.lanes().front().is_running()) {
      if (Expected<void> timed = compare(contest, verified, finding); !timed) {
        return timed;
      }
    }
    result_.entries.push_back(std::move(verified));
    return {};
  }

  // A first opinion; where it looks bad, more passes at a level that allows for the number of checks.
  template <class AddFinding>
  Expected<void> compare(Contest& contest, VerifiedEntry& verified, const AddFinding& finding) {
    const ContestLane& baseline = contest.lanes().front();
    const ContestLane& lane = contest.lanes().back();
    int wanted = kFirstPasses;
    while (contest.passes() < wanted && baseline.is_running() && lane.is_running() &&
           session_->left_s() > contest.pass_s()) {
      Expected<bool> go_on = contest.pass();
      if (!go_on) {
        return std::move(go_on).error();
      }
      if (!*go_on) {
        break;
      }
      if (contest.passes() == kFirstPasses && paired_ratio_95(baseline.us, lane.us).hi < 1) {
        wanted = kVerdictPasses;
      }
    }
    if (!lane.failure.empty()) {
      finding(lane.failure.substr(0, lane.failure.find(':')), lane.failure);
      return {};
    }
    if (lane.us.size() < 2) {
      result_.advice.push_back(
          {verified.file, verified.key, "not_timed", format("M = {}: the time budget left no room to time it", verified.m)});
      return {};
    }
    const Interval ratio = paired_ratio_95(baseline.us, lane.us);
    verified.us = median(lane.us);
    verified.baseline_us = median(baseline.us);
    verified.ratio = ratio.mid;
    verified.ratio_lo = ratio.lo;
    verified.ratio_hi = ratio.hi;
    verified.rounds = contest.passes();
    if (wanted == kVerdictPasses && contest.passes() == kVerdictPasses) {
      std::vector<double> differences;
      for (std::size_t i = 0; i < lane.us.size(); ++i) {
        differences.push_back(std::log(baseline.us[i]) - std::log(lane.us[i]));
      }
      const double tail = kFalseAlarm / static_cast<double>(checks_.size());
      if (signed_rank_interval(differences, tail).hi < 0) {
        finding("loses", format("it takes {:.2f} us, the baseline {:.2f} us: {:.3f}x [{:.3f}, {:.3f}], slower beyond doubt",
                                verified.us, verified.baseline_us, ratio.mid, ratio.lo, ratio.hi));
      }
    }
    return {};
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
