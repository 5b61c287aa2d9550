// SPDX-License-Identifier: Apache-2.0
// One device's measuring session as the coordinator sees it: candidates are admitted and timed in the worker, a worker that
// dies is replaced, and whatever was running then is blamed and left out.
#pragma once

#include <octile/error.hpp>

#include "octile/tune/conditions.h"
#include "octile/tune/measure.h"
#include "octile/tune/race.h"
#include "octile/tune/run_hooks.h"
#include "octile/tune/signal_watch.h"
#include "octile/tune/worker_client.h"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octile {

// Settings of a run as the worker needs them. `device_default` accumulation is settled by the family itself.
MeasureSettings measure_settings(const RunOptions& options, std::uint64_t seed);

// What a session shares with those of other devices of the same run.
struct SessionLinks {
  // Held by whoever calls a session, which lets go of it while it waits for its worker: threads with a session each take
  // turns at everything else.
  std::mutex* turn = nullptr;
  std::optional<double> start_s;  // When the run began, on the device's clock; not set: now.
  int stop_fd = -1;               // Readable: what is asked of the worker is given up.
};

class Session {
 public:
  // On options.device. Errors: those of the worker's start and of opening the device.
  static Expected<std::unique_ptr<Session>> open(const RunOptions& options, const RunHooks& hooks,
                                                 const MeasureSettings& settings, const SessionLinks& links = {});
  ~Session();

  // The run's clock, and what ends it. Once ended, admit() and time() do nothing but say so.
  double now_s() const { return hooks_.clock_s(device_); }
  double elapsed_s() const { return now_s() - start_s_; }
  double left_s() const;  // Of the budget; a large number without one.
  int interrupted_by() const noexcept { return signals_.caught(); }
  bool ended() const { return interrupted_by() != 0 || left_s() <= 0; }

  // Compiles what these need, on all cores but `spare_cores`, for at most `limit_s`; `progress` hears how many of them, from
  // the first on, are through, while the turn of SessionLinks is let go of. False where that is not all: the worker died,
  // hung or was killed, and is replaced when it is next asked. What a candidate's compilation fails at shows when it is
  // admitted.
  Expected<bool> compile_ahead(std::span<const CompileItem> items, int spare_cores, double limit_s,
                               const std::function<void(std::size_t)>& progress = {});
  // `layout`: of the weights of our families that read several.
  Expected<void> set_shape(std::int64_t n, std::int64_t k, WeightLayout layout = WeightLayout::automatic);
  Expected<void> forget_candidates();

  // What became of a candidate. kind: "wrong", "error" (Admission), "crash", "hang"; "" with admitted = false: the run
  // ended.
  Expected<Admission> admit(int id, const CandidateSpec& spec, std::int64_t m, bool check);
  // One pass over admitted candidates, `calls` calls a sample; one that was disturbed is taken again, as far as RepeatRule
  // and the budget go. A candidate that fails is blamed in `failure()`.
  Expected<Pass> time(std::span<const int> order, std::int64_t calls);
  // What the passes since the last call ran under.
  MeasureConditions take_conditions() { return std::exchange(conditions_, {}); }
  // After a death: starts a new worker at once, so that it shows whether the device is still there. Errors: as open().
  Expected<void> revive() { return is_open_ || ended() ? Expected<void>() : start(); }
  // Kind and reason of the candidate that last failed in time().
  const Admission& failure() const noexcept { return failure_; }

 private:
  struct Live {
    CandidateSpec spec;
    std::int64_t m = 0;
  };

  Session(const RunOptions& options, const RunHooks& hooks, const MeasureSettings& settings, const SessionLinks& links);
  Expected<void> start();
  Expected<std::optional<int>> restore();
  struct Patience {
    double limit_s = 0;                                              // In all, beside the budget's.
    std::function<void(const nlohmann::json&)> announced = nullptr;  // Sees what the worker says before it answers.
  };
  WorkerReply ask(const nlohmann::json& request, const Patience& patience);
  WorkerReply ask(const nlohmann::json& request);
  Expected<nlohmann::json> ask_or_fail(const nlohmann::json& request);
  Expected<Pass> time_once(std::span<const int> order, std::int64_t calls, PassConditions& conditions);
  Expected<Admission> admit_once(int id, const CandidateSpec& spec, std::int64_t m, bool check);

  std::string device_;
  RunHooks hooks_;
  MeasureSettings settings_;
  double budget_s_;
  double step_timeout_s_;
  double run_timeout_s_;
  double start_s_;
  std::mutex* turn_;
  int stop_fd_;
  SignalWatch signals_;
  WorkerPlace place_;
  WorkerClient client_;
  std::unique_ptr<WorkerServer> server_;  // In process.
  bool is_open_ = false;
  std::int64_t n_ = 0;
  std::int64_t k_ = 0;
  WeightLayout layout_ = WeightLayout::automatic;
  std::map<int, Live> live_;
  Admission failure_;
  RepeatRule repeats_;
  MeasureConditions conditions_;
  std::string last_step_;
  int last_id_ = -1;
};

}  // namespace octile
