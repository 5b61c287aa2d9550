// SPDX-License-Identifier: Apache-2.0
// The tuner's coordinator: what to measure next and for how long, the journal, the tables. See tune.h and docs/tuning.md.
#include "octile/tune/tune.h"

#include "octile/core/format.h"
#include "octile/core/log.h"
#include "octile/table/table_store.h"
#include "octile/tune/compile_ahead.h"
#include "octile/tune/point.h"
#include "octile/tune/random_data.h"
#include "octile/tune/run_hooks.h"
#include "octile/tune/session.h"
#include "octile/tune/signal_watch.h"
#include "octile/tune/sweep.h"
#include "octile/tune/sweep_plan.h"
#include "octile/tune/sweep_queue.h"
#include "octile/tune/sweep_result.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

namespace octile {

namespace {

// A device whose worker cannot be started again after so many attempts leaves the run.
constexpr int kStartAttempts = 3;
constexpr std::chrono::milliseconds kPauseBetweenAttempts{500};
// A point at which the machinery failed so often, though the device is there, ends the run.
constexpr int kPointAttempts = 3;
// What waits for kernels looks so often whether the run has ended meanwhile.
constexpr std::chrono::milliseconds kLookAround{100};

// One device and what it is at.
struct Lane {
  std::string device;
  std::unique_ptr<Session> session;
  std::optional<double> start_s;  // On the device's clock.
  std::set<std::string> packed;   // See PointRequest.
  std::string doing;              // Empty: it waits.
  double busy_until_s = 0;        // By its point's quota.
  double waited_s = 0;            // For compilers.
  double elapsed_s = 0;           // Once it is through.
  bool is_lost = false;
};

class Sweep {
 public:
  Sweep(const TuneOptions& options, const RunHooks& hooks) : options_(options), hooks_(hooks) {}

  Expected<TuneSummary> run() {
    Expected<SweepPlan> plan = make_sweep_plan(options_, hooks_.find_device);
    if (!plan) {
      return std::move(plan).error();
    }
    plan_ = std::move(*plan);
    if (std::ranges::all_of(plan_.weights, [](const SweptWeight& weight) { return weight.share.own.empty(); })) {
      summary_.notes.push_back(format("shard {} holds no point: there are fewer than shards", options_.shard.to_string()));
      return std::move(summary_);
    }
    if (Expected<void> opened = open_journal(); !opened) {
      return std::move(opened).error();
    }
    settings_ = measure_settings(options_, options_.seed != 0 ? options_.seed : fresh_seed());
    queue_.emplace(options_, plan_);
    done_ = queue_->measured_before();
    for (const std::string& device : plan_.devices) {
      lanes_.push_back({device, nullptr, std::nullopt, {}, {}, 0, 0, 0, false});
    }
    if (lanes_.size() > 1 && options_.time_budget_s <= 0 && options_.uses.empty()) {
      queue_->sort_longest_first(cost_on(lanes_.front()));
    }
    signals_.emplace();
    start_compiling();
    run_lanes();
    compiler_.reset();
    if (stopped_by_ && !was_started_) {
      return *stopped_by_;
    }
    if (stopped_by_) {
      return make_error(stopped_by_->code, "{} (what was measured is kept in {}; --resume goes on from it)",
                        stopped_by_->message, journal_->path());
    }
    return finish();
  }

 private:
  Expected<void> open_journal() {
    JournalContent content;
    const DeviceInfo& device = plan_.device.info;
    HardKeys keys = hard_keys_of_run(*plan_.device.backend, device, options_);
    // A shard's journals have a name of their own, so that shards in one directory never meet each other's.
    std::string label = device.name;
    if (!options_.shard.is_whole()) {
      keys["shard"] = options_.shard.to_string();
      label += format(".shard-{}-of-{}", options_.shard.index, options_.shard.count);
    }
    Expected<Journal> journal =
        Journal::open(plan_.directory, label, keys, plan_.request_text(options_), options_.resume, content, summary_.notes);
    if (!journal) {
      return std::move(journal).error();
    }
    journal_ = std::move(*journal);
    for (const TunePoint& point : content.points) {
      for (SweptWeight& weight : plan_.weights) {
        if (weight.shape.n == point.shape.n && weight.shape.k == point.shape.k) {
          weight.points.push_back(point);
        }
      }
      for (const std::string& kernel : point.worked) {
        ++state_.families[kernel].admitted;
      }
    }
    for (const FailedCandidate& failed : content.failed) {
      summary_.failed.push_back(failed);
      const auto shape = std::ranges::find(options_.shapes, failed.shape, &TuneShape::name);
      note_failed(state_, shape != options_.shapes.end() ? *shape : TuneShape{failed.shape, 0, 0}, failed);
    }
    return {};
  }

  // --- Devices: one thread each, which take turns at everything but waiting for a worker. `turn_` is held throughout. ---

  void run_lanes() {
    if (hooks_.in_process) {
      run_simulated_lanes();
      return;
    }
    std::exception_ptr thrown;  // Out of a thread it would end the process.
    const auto run_lane = [this, &thrown](Lane& lane) {
      std::unique_lock lock(turn_);
      try {
        bool goes_on = !thrown && start(lane, 1);
        while (goes_on && !thrown) {
          const Step made = step(lane, lock);
          goes_on = made != Step::ended;
          if (made == Step::waits && !thrown) {
            changed_.wait(lock);
          }
        }
      } catch (...) {
        thrown = std::current_exception();
      }
      end(lane);
    };
    std::vector<std::thread> threads;
    threads.reserve(lanes_.size());
    std::vector<Lane*> without_thread;
    if (lanes_.size() == 1) {
      without_thread.push_back(&lanes_.front());
    }
    for (Lane& lane : std::span(lanes_).subspan(without_thread.size())) {
      // A worker dies with the thread that started it, so that a lane's thread lives as long as its worker is needed.
      try {
        threads.emplace_back([&run_lane, &lane] { run_lane(lane); });
      } catch (const std::system_error&) {
        without_thread.push_back(&lane);
      }
    }
    // One after the other, in this thread: slower, and nothing is lost.
    for (Lane* lane : without_thread) {
      run_lane(*lane);
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    if (thrown) {
      std::rethrow_exception(thrown);
    }
  }

  // In this process each device has a clock of its own: whichever is behind goes next.
  void run_simulated_lanes() {
    std::unique_lock lock(turn_);
    std::vector<Lane*> active;
    for (Lane& lane : lanes_) {
      if (start(lane, 1)) {
        active.push_back(&lane);
      }
    }
    while (!active.empty()) {
      const auto next = std::ranges::min_element(active, {}, [](const Lane* lane) { return lane->session->elapsed_s(); });
      if (step(**next, lock) != Step::worked) {
        active.erase(next);
      }
    }
    std::ranges::for_each(lanes_, [this](Lane& lane) { end(lane); });
  }

  // A fresh session of the lane. False: the device leaves the run.
  bool start(Lane& lane, int attempts) {
    RunOptions options = options_;
    options.device = lane.device;
    lane.session.reset();
    lane.packed.clear();
    if (!lane.start_s) {
      lane.start_s = hooks_.clock_s(lane.device);
    }
    std::optional<Error> error;
    for (int attempt = 0; attempt < attempts && signals_->caught() == 0; ++attempt) {
      if (attempt > 0) {
        turn_.unlock();
        std::this_thread::sleep_for(kPauseBetweenAttempts);
        turn_.lock();
      }
      Expected<std::unique_ptr<Session>> session =
          Session::open(options, hooks_, settings_, {.turn = &turn_, .start_s = lane.start_s});
      if (session) {
        lane.session = std::move(*session);
        was_started_ = true;
        return true;
      }
      error = std::move(session).error();
    }
    if (error) {
      lose(lane, *error);
    }
    return false;
  }

  void lose(Lane& lane, const Error& error) {
    lane.is_lost = true;
    if (std::ranges::all_of(lanes_, &Lane::is_lost)) {
      if (!stopped_by_) {
        stopped_by_ = lanes_.size() == 1
                          ? error
                          : Error{error.code, format("every device left the run, {} last: {}", lane.device, error.message)};
      }
    } else {
      summary_.notes.push_back(
          format("{} left the run, which went on with the other devices: {}", lane.device, error.message));
      log_warning("{}", summary_.notes.back());
    }
  }

  void end(Lane& lane) {
    if (lane.start_s) {
      lane.elapsed_s = hooks_.clock_s(lane.device) - *lane.start_s;
    }
    lane.session.reset();
    changed_.notify_all();
  }

  enum class Step {
    worked,
    waits,  // Until another device is through with what it is at.
    ended,
  };

  Step step(Lane& lane, std::unique_lock<std::mutex>& lock) {
    if (stopped_by_ || lane.session->ended()) {
      return Step::ended;
    }
    if (queue_->is_empty() && in_flight_ == 0) {
      if (!queue_->add_borders()) {
        return Step::ended;
      }
      add_kernels();
      changed_.notify_all();
      return Step::worked;
    }
    if (is_worth_waiting(lane)) {
      wait_for_kernels(lane, lock);
      return Step::worked;
    }
    lane.doing.clear();
    const std::unique_ptr<PendingPoint> point = queue_->take(cost_on(lane), time_left(lane));
    if (point == nullptr) {
      return in_flight_ > 0 ? Step::waits : Step::ended;
    }
    ++in_flight_;
    const bool goes_on = measure(lane, std::move(*point));
    --in_flight_;
    lane.doing.clear();
    changed_.notify_all();
    return goes_on ? Step::worked : Step::ended;
  }

  TimeLeft time_left(const Lane& asking) const {
    TimeLeft left{asking.session->left_s(), 0};
    for (const Lane& lane : lanes_) {
      if (lane.session != nullptr) {
        const double busy_s = lane.doing.empty() ? 0.0 : std::max(lane.busy_until_s - lane.session->now_s(), 0.0);
        left.all_s += std::max(lane.session->left_s() - busy_s, 0.0);
      }
    }
    return left;
  }

  // --- Kernels of devices that compile at run time: every one of the fields, in the order of the queue. What was carried to
  // a point was in the field of another. ---

  void start_compiling() {
    // On simulated time nothing goes on meanwhile.
    if (!plan_.is_gpu() || hooks_.in_process) {
      return;
    }
    RunOptions options = options_;
    options.device = plan_.devices.front();
    compiler_.emplace(options, hooks_, settings_,
                      CompileAhead::Links{&turn_, &changed_, hooks_.clock_s(plan_.devices.front())},
                      static_cast<int>(lanes_.size()));
    const std::lock_guard lock(turn_);
    add_kernels();
  }

  // Those of all points that wait.
  void add_kernels() {
    if (!compiler_) {
      return;
    }
    for (const PendingPoint& point : queue_->pending()) {
      const TuneShape& shape = plan_.weights[point.weight].shape;
      for (const std::optional<Candidate>* incumbent : {&point.field.baseline, &point.field.heuristic}) {
        if (incumbent->has_value()) {
          compiler_->add(shape, *(*incumbent)->family, (*incumbent)->config);
        }
      }
      for (const Candidate& challenger : point.field.challengers) {
        compiler_->add(shape, *challenger.family, challenger.config);
      }
      kernels_needed_[{point.weight, point.m}] = compiler_->added();
    }
  }

  // The point that is next in the queue lacks kernels, which come faster from all compilers than one at a time while it is
  // measured.
  bool is_worth_waiting(const Lane& lane) const {
    if (!compiler_ || queue_->is_empty()) {
      return false;
    }
    const PendingPoint& next = queue_->pending().front();
    const bool has_time = options_.time_budget_s <= 0 || lane.waited_s < kShareForCompiling * options_.time_budget_s;
    return has_time && !compiler_->has(kernels_needed_.at({next.weight, next.m}));
  }

  void wait_for_kernels(Lane& lane, std::unique_lock<std::mutex>& lock) {
    if (lane.doing.empty()) {
      lane.doing = "compiling";
      report(lane.doing, false);
    }
    const double before_s = lane.session->now_s();
    changed_.wait_for(lock, kLookAround);
    lane.waited_s += lane.session->now_s() - before_s;
  }

  PointRequest request_for(const PendingPoint& pending, Lane& lane) const {
    const SweptWeight& weight = plan_.weights[pending.weight];
    PointRequest request;
    request.shape = weight.shape;
    request.m = pending.m;
    request.field = &pending.field;
    request.quota_s = pending.quota_s;
    request.thorough = options_.thorough;
    request.packed = &lane.packed;
    const auto first = lane.packed.lower_bound(place_of(weight.shape));
    request.is_packed = first != lane.packed.end() && first->starts_with(place_of(weight.shape));
    return request;
  }

  SweepQueue::CostOf cost_on(Lane& lane) const {
    return [this, &lane](const PendingPoint& point) {
      return estimate_cost(plan_.device.info, request_for(point, lane), state_);
    };
  }

  // What won at the nearest smaller M, as far as it is a kernel of its own; where no smaller M was measured, as when the
  // longest come first, at the nearest larger one.
  std::optional<Candidate> carried_to(const SweptWeight& weight, std::int64_t m) const {
    const bool is_upward = std::ranges::any_of(weight.points, [&](const TunePoint& point) { return point.m < m; });
    const TunePoint* nearest = nullptr;
    for (const TunePoint& point : weight.points) {
      const bool is_winner = point.status == PointStatus::tile || point.status == PointStatus::vendor;
      const bool is_beside = is_upward ? point.m < m : point.m > m;
      if (is_winner && is_beside && (nearest == nullptr || (point.m > nearest->m) == is_upward)) {
        nearest = &point;
      }
    }
    if (nearest == nullptr) {
      return std::nullopt;
    }
    const KernelFamily* family = find_family(*plan_.device.backend, nearest->kernel);
    return family == nullptr ? std::nullopt : std::optional<Candidate>({family, nearest->config, 0});
  }

  // `doing` says all where there is one device, or the run is at its end.
  void report(const std::string& doing, bool finished) {
    if (!options_.progress) {
      return;
    }
    TuneProgress progress;
    progress.done = done_;
    progress.total = queue_->total();
    progress.doing = doing;
    progress.finished = finished;
    if (finished) {
      progress.elapsed_s = summary_.elapsed_s;
      options_.progress(progress);
      return;
    }
    // A sum over thousands of points at every point would cost more than it tells.
    const std::vector<PendingPoint>& pending = queue_->pending();
    const std::size_t stride = 1 + pending.size() / 256;
    const SweepQueue::CostOf cost_of = cost_on(lanes_.front());
    double needed_s = 0;
    for (std::size_t i = 0; i < pending.size(); i += stride) {
      needed_s += cost_of(pending[i]).standard_s * static_cast<double>(stride);
    }
    double left_s = 0;
    int devices = 0;
    std::string all_doing;
    for (const Lane& lane : lanes_) {
      if (lane.session != nullptr) {
        ++devices;
        left_s = std::max(left_s, lane.session->left_s());
        progress.elapsed_s = std::max(progress.elapsed_s, lane.session->elapsed_s());
        all_doing +=
            format("{}{} {}", all_doing.empty() ? "" : ", ", lane.device, lane.doing.empty() ? "waits" : lane.doing);
      }
    }
    progress.left_s = std::max(std::min(needed_s / std::max(devices, 1), left_s), 0.0);
    if (lanes_.size() > 1) {
      progress.doing = format("{} devices: {}", devices, all_doing);
    }
    options_.progress(progress);
  }

  // False: the device leaves the run, or the run ends.
  bool measure(Lane& lane, PendingPoint pending) {
    SweptWeight& weight = plan_.weights[pending.weight];
    PointRequest request = request_for(pending, lane);
    request.carried = carried_to(weight, pending.m);
    lane.doing = format("{} m={}", weight.shape.name, pending.m);
    lane.busy_until_s = lane.session->now_s() + pending.quota_s;
    report(lane.doing, false);
    const Expected<PointResult> result = tune_point(*lane.session, weight.plan, request, state_);
    if (!result) {
      return try_again(lane, std::move(pending), result.error());
    }
    // On a device that is gone everything fails. Whether a kernel is to blame shows when the device is opened anew; until
    // then the result does not count.
    if (const Expected<void> revived = lane.session->revive(); !revived) {
      return try_again(lane, std::move(pending), revived.error());
    }
    if (result->point.status == PointStatus::failed && !result->failed.empty() && !start(lane, kStartAttempts)) {
      queue_->put_back(std::move(pending));
      return false;
    }
    const Expected<void> recorded = record(pending, *result);
    if (!recorded) {
      stopped_by_ = recorded.error();
    }
    return recorded.has_value();
  }

  // The machinery failed at a point: nothing of it counts. The device gets a fresh worker, or leaves the run.
  bool try_again(Lane& lane, PendingPoint pending, const Error& error) {
    log_warning("{}: {} failed: {}; a new worker is started", lane.device, lane.doing, error.message);
    const bool is_there = start(lane, kStartAttempts);
    if (is_there && ++pending.failed_attempts == kPointAttempts) {
      stopped_by_ = error;
    }
    queue_->put_back(std::move(pending));
    return is_there && !stopped_by_;
  }

  Expected<void> record(const PendingPoint& pending, const PointResult& result) {
    SweptWeight& weight = plan_.weights[pending.weight];
    for (const FailedCandidate& failed : result.failed) {
      summary_.failed.push_back(failed);
      note_failed(state_, weight.shape, failed);
      if (Expected<void> written = journal_->append(failed); !written) {
        return written;
      }
    }
    if (result.point.status == PointStatus::no_budget) {
      if (!result.point.reason.empty()) {
        no_budget_reasons_[{pending.weight, pending.m}] = result.point.reason;
      }
      return {};
    }
    ++done_;
    weight.points.push_back(result.point);
    return journal_->append(result.point);
  }

  Expected<TuneSummary> finish() {
    for (const Lane& lane : lanes_) {
      summary_.elapsed_s = std::max(summary_.elapsed_s, lane.elapsed_s);
    }
    summary_.interrupted_by = signals_->caught();
    conclude_sweep(options_, plan_, state_, no_budget_reasons_, summary_);
    if (summary_.interrupted_by != 0) {
      summary_.journal = journal_->path();
      report("interrupted", true);
      return std::move(summary_);
    }
    report("writing tables", true);
    signals_.reset();
    for (const SweptWeight& weight : plan_.weights) {
      const Expected<bool> written = write_swept_table(options_, plan_, state_, weight);
      if (!written) {
        return make_error(written.error().code, "{} (what was measured is kept in {})", written.error().message,
                          journal_->path());
      }
      if (*written) {
        summary_.files.push_back(weight.path);
      }
    }
    clear_table_cache();
    if (Expected<void> removed = journal_->remove(); !removed) {
      summary_.notes.push_back(removed.error().message);
    }
    return std::move(summary_);
  }

  const TuneOptions& options_;
  const RunHooks& hooks_;
  SweepPlan plan_;
  std::optional<Journal> journal_;
  MeasureSettings settings_;
  std::optional<SignalWatch> signals_;
  std::mutex turn_;
  std::condition_variable changed_;  // Something was measured, put back, or a device left.
  std::vector<Lane> lanes_;
  std::optional<SweepQueue> queue_;
  std::map<std::pair<std::size_t, std::int64_t>, std::size_t> kernels_needed_;  // Weight, M: so many of the compiler's.
  int in_flight_ = 0;
  bool was_started_ = false;         // Some device was.
  std::optional<Error> stopped_by_;  // Ends the run.
  SweepState state_;
  NoBudgetReasons no_budget_reasons_;
  std::int64_t done_ = 0;
  TuneSummary summary_;
  std::optional<CompileAhead> compiler_;  // Goes first: its thread uses the above.
};

}  // namespace

const char* to_string(PointStatus status) noexcept {
  switch (status) {
    case PointStatus::tile:
      return "tile";
    case PointStatus::vendor:
      return "vendor";
    case PointStatus::baseline:
      return "baseline";
    case PointStatus::no_budget:
      return "no budget";
    case PointStatus::failed:
      return "failed";
  }
  return "unknown";
}

Expected<TuneSummary> tune_with(const TuneOptions& options, const RunHooks& hooks) { return Sweep(options, hooks).run(); }

}  // namespace octile
