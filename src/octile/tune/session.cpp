// SPDX-License-Identifier: Apache-2.0
// Asking the worker, blaming and replacing it; see session.h.
#include "octile/tune/session.h"

#include "octile/tune/sweep.h"

#include "octile/core/format.h"
#include "octile/core/log.h"
#include "octile/tune/protocol.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace octile {

using nlohmann::json;

namespace {

constexpr double kNoBudgetS = 1e9;
// A worker keeps the machine code of what it compiles at once, some 50 KB a kernel. Four weights at the 17 M of a GPU's
// default are 1400 items, half of them kernels of their own.
constexpr std::size_t kMostCompiledAtOnce = 2048;
// A budget is kept within 10 %: at 6 % over it, whatever is still running is cut off.
constexpr double kHardOverrun = 1.06;

// Lets the other threads of the run have their turn while it lives.
class TurnPause {
 public:
  explicit TurnPause(std::mutex* turn) : turn_(turn) {
    if (turn_ != nullptr) {
      turn_->unlock();
    }
  }
  ~TurnPause() {
    if (turn_ != nullptr) {
      turn_->lock();
    }
  }
  TurnPause(const TurnPause&) = delete;
  TurnPause& operator=(const TurnPause&) = delete;

 private:
  std::mutex* turn_;
};

}  // namespace

MeasureSettings measure_settings(const RunOptions& options, std::uint64_t seed) {
  MeasureSettings settings;
  settings.problem = problem_of(options, {});
  settings.quantized_input = options.scope == "gemm";
  settings.seed = seed;
  return settings;
}

Session::Session(const RunOptions& options, const RunHooks& hooks, const MeasureSettings& settings,
                 const SessionLinks& links)
    : device_(options.device),
      hooks_(hooks),
      settings_(settings),
      budget_s_(options.time_budget_s),
      step_timeout_s_(options.candidate_timeout_s),
      // A hang must not eat the budget whole.
      run_timeout_s_(budget_s_ > 0 ? std::min(options.candidate_timeout_s, std::max(budget_s_ / 6, 10.0))
                                   : options.candidate_timeout_s),
      start_s_(links.start_s.value_or(hooks.clock_s(options.device))),
      turn_(links.turn),
      stop_fd_(links.stop_fd),
      place_(hooks.place ? hooks.place(options.device) : WorkerPlace{launcher_here(options.worker_command), options.device}),
      client_(place_.launcher) {
  if (hooks.in_process) {
    server_ = std::make_unique<WorkerServer>(hooks.find_device);
  }
}

Session::~Session() = default;

double Session::left_s() const { return budget_s_ > 0 ? budget_s_ - elapsed_s() : kNoBudgetS; }

Expected<std::unique_ptr<Session>> Session::open(const RunOptions& options, const RunHooks& hooks,
                                                 const MeasureSettings& settings, const SessionLinks& links) {
  std::unique_ptr<Session> session(new Session(options, hooks, settings, links));
  if (Expected<void> started = session->start(); !started) {
    return std::move(started).error();
  }
  return session;
}

WorkerReply Session::ask(const json& request) { return ask(request, {kNoBudgetS}); }

// Asks and waits. Announcements set last_step_ and last_id_.
WorkerReply Session::ask(const json& request, const Patience& patience) {
  last_step_.clear();
  const std::string line = request.dump();
  WorkerLimits limits;
  const auto is_answer = [&](const std::string& text) {
    const Expected<json> received = parse_line(text);
    if (!received || !received->contains("step")) {
      return true;
    }
    last_step_ = json_get(*received, "step", std::string());
    last_id_ = json_get(*received, "id", last_id_);
    // Packing and preparing may take long for good reasons, a single run may not.
    const bool is_run = last_step_ == "run" || last_step_ == "time";
    limits.step_timeout_s = is_run ? run_timeout_s_ : step_timeout_s_;
    if (patience.announced) {
      patience.announced(*received);
    }
    return false;
  };
  if (server_ != nullptr) {
    WorkerReply reply;
    server_->serve(line, [&](const std::string& text) {
      if (is_answer(text)) {
        reply.line = text;
      }
    });
    return reply;
  }
  limits.step_timeout_s = step_timeout_s_;
  if (budget_s_ > 0 || patience.limit_s < kNoBudgetS) {
    const double budget_left_s = budget_s_ > 0 ? budget_s_ * kHardOverrun - elapsed_s() : kNoBudgetS;
    limits.deadline_s = std::max(std::min(budget_left_s, patience.limit_s), 0.001);
  }
  limits.signal_fd = signals_.fd();
  limits.stop_fd = stop_fd_;
  const WorkerReply reply = [&] {
    const TurnPause pause(turn_);
    return client_.ask(line, limits, is_answer);
  }();
  is_open_ = is_open_ && reply.status == WorkerReply::Status::answered;
  return reply;
}

// For questions that no candidate can be blamed for.
Expected<json> Session::ask_or_fail(const json& request) {
  const WorkerReply reply = ask(request);
  if (reply.status == WorkerReply::Status::died || reply.status == WorkerReply::Status::timed_out) {
    return make_error(ErrorCode::failed, "the worker process failed at \"{}\": {}",
                      json_get(request, "command", std::string()), reply.reason);
  }
  if (reply.status != WorkerReply::Status::answered) {
    return json{{"ok", true}, {"ended", true}};
  }
  Expected<json> answer = parse_line(reply.line);
  if (!answer) {
    return make_error(ErrorCode::failed, "the worker process did not answer \"{}\": {}",
                      json_get(request, "command", std::string()), answer.error().message);
  }
  if (!json_get(*answer, "ok", false)) {
    return Error{static_cast<ErrorCode>(json_get(*answer, "code", static_cast<int>(ErrorCode::failed))),
                 json_get(*answer, "message", std::string("the worker process failed without a reason"))};
  }
  return answer;
}

Expected<void> Session::start() {
  if (server_ == nullptr) {
    if (Expected<void> started = client_.start(); !started) {
      return started;
    }
  }
  is_open_ = true;
  Expected<json> answer = ask_or_fail({{"command", "open"}, {"device", place_.device}, {"settings", to_json(settings_)}});
  if (answer && n_ > 0) {
    answer = ask_or_fail(shape_request(n_, k_, layout_));
  }
  if (!answer) {
    return std::move(answer).error();
  }
  return {};
}

// After a death: a new worker with the candidates that were live. The result names one that failed on the way.
Expected<std::optional<int>> Session::restore() {
  if (is_open_) {
    return std::optional<int>();
  }
  if (Expected<void> started = start(); !started) {
    return std::move(started).error();
  }
  for (const auto& [id, live] : std::map<int, Live>(live_)) {
    Expected<Admission> again = admit_once(id, live.spec, live.m, false);
    if (!again) {
      return std::move(again).error();
    }
    if (!again->admitted) {
      failure_ = *again;
      live_.erase(id);
      return std::optional<int>(id);
    }
  }
  return std::optional<int>();
}

Expected<bool> Session::compile_ahead(std::span<const CompileItem> items, int spare_cores, double limit_s,
                                      const std::function<void(std::size_t)>& progress) {
  const double end_s = now_s() + limit_s;
  for (std::size_t first = 0; first < items.size(); first += kMostCompiledAtOnce) {
    json list = json::array();
    for (const CompileItem& item : items.subspan(first, std::min(kMostCompiledAtOnce, items.size() - first))) {
      list.push_back({{"n", item.n}, {"k", item.k}, {"spec", to_json(item.spec)}});
    }
    if (!is_open_) {
      if (Expected<void> started = start(); !started) {
        return std::move(started).error();
      }
    }
    Patience patience{end_s - now_s()};
    if (progress) {
      patience.announced = [&](const json& announcement) {
        if (const std::size_t count = json_get(announcement, "compiled", std::size_t{0}); count > 0) {
          progress(first + count);
        }
      };
    }
    const WorkerReply reply =
        ask({{"command", "compile"}, {"items", std::move(list)}, {"spare_cores", spare_cores}}, patience);
    if (reply.status == WorkerReply::Status::died || reply.status == WorkerReply::Status::timed_out) {
      log_warning("compiling ahead failed: {}; kernels are compiled one at a time", reply.reason);
    }
    if (reply.status != WorkerReply::Status::answered) {
      return false;
    }
  }
  return true;
}

Expected<void> Session::set_shape(std::int64_t n, std::int64_t k, WeightLayout layout) {
  live_.clear();
  n_ = n;
  k_ = k;
  layout_ = layout;
  if (!is_open_) {
    return start();
  }
  Expected<json> answer = ask_or_fail(shape_request(n, k, layout));
  return answer ? Expected<void>() : Expected<void>(std::move(answer).error());
}

Expected<void> Session::forget_candidates() {
  live_.clear();
  if (!is_open_) {
    return {};
  }
  Expected<json> answer = ask_or_fail({{"command", "forget"}});
  return answer ? Expected<void>() : Expected<void>(std::move(answer).error());
}

Expected<Admission> Session::admit_once(int id, const CandidateSpec& spec, std::int64_t m, bool check) {
  const WorkerReply reply = ask({{"command", "admit"}, {"id", id}, {"spec", to_json(spec)}, {"m", m}, {"check", check}});
  Admission admission;
  admission.kernel = spec.kernel;
  switch (reply.status) {
    case WorkerReply::Status::out_of_time:
    case WorkerReply::Status::interrupted:
      return admission;
    case WorkerReply::Status::died:
      admission.kind = "crash";
      admission.reason = format("the process that ran it ended in the step \"{}\": {}", last_step_, reply.reason);
      return admission;
    case WorkerReply::Status::timed_out:
      admission.kind = "hang";
      admission.reason = format("{} in the step \"{}\"; killed", reply.reason, last_step_);
      return admission;
    case WorkerReply::Status::answered:
      break;
  }
  Expected<json> answer = parse_line(reply.line);
  if (!answer) {
    return std::move(answer).error();
  }
  if (!json_get(*answer, "ok", false)) {
    return Error{static_cast<ErrorCode>(json_get(*answer, "code", static_cast<int>(ErrorCode::failed))),
                 json_get(*answer, "message", std::string())};
  }
  return admission_from_json((*answer)["admission"]);
}

Expected<Admission> Session::admit(int id, const CandidateSpec& spec, std::int64_t m, bool check) {
  if (ended()) {
    return Admission{};
  }
  // A candidate that cannot be restored is left out by the pass that would time it.
  while (!is_open_) {
    if (Expected<std::optional<int>> restored = restore(); !restored) {
      return std::move(restored).error();
    }
  }
  Expected<Admission> admission = admit_once(id, spec, m, check);
  if (admission && admission->admitted) {
    live_[id] = {spec, m};
  }
  return admission;
}

Expected<Pass> Session::time(std::span<const int> order, std::int64_t calls) {
  Pass kept;
  for (int repeats = 0;; ++repeats) {
    PassConditions met;
    const double before_s = now_s();
    Expected<Pass> pass = time_once(order, calls, met);
    if (pass && pass->out_of_time && repeats > 0) {
      // There was no time for the repeat: what was disturbed counts.
      --conditions_.repeated;
      ++conditions_.disturbed;
      ++conditions_.passes;
      return kept;
    }
    if (!pass || pass->out_of_time || pass->failed) {
      return pass;
    }
    pass->repeats = repeats;
    const bool is_time = !ended() && left_s() > now_s() - before_s;
    const bool counts = !repeats_.takes_again(!met.disturbed.empty() && is_time);
    conditions_.add(met, counts);
    if (counts) {
      return pass;
    }
    kept = *std::move(pass);
  }
}

Expected<Pass> Session::time_once(std::span<const int> order, std::int64_t calls, PassConditions& conditions) {
  Pass pass;
  if (ended()) {
    pass.out_of_time = true;
    return pass;
  }
  Expected<std::optional<int>> lost = restore();
  if (!lost) {
    return std::move(lost).error();
  }
  for (const int id : order) {
    if (!live_.contains(id)) {
      pass.failed = id;  // It failed while a new worker was being filled; failure_ says how.
      return pass;
    }
  }
  last_id_ = order.front();
  const WorkerReply reply =
      ask({{"command", "time"}, {"order", std::vector<int>(order.begin(), order.end())}, {"calls", calls}});
  failure_ = {};
  switch (reply.status) {
    case WorkerReply::Status::out_of_time:
    case WorkerReply::Status::interrupted:
      pass.out_of_time = true;
      return pass;
    case WorkerReply::Status::died:
      failure_.kind = "crash";
      failure_.reason = format("the process that ran it ended while it was timed: {}", reply.reason);
      break;
    case WorkerReply::Status::timed_out:
      failure_.kind = "hang";
      failure_.reason = format("{} while it was timed; killed", reply.reason);
      break;
    case WorkerReply::Status::answered: {
      Expected<json> answer = parse_line(reply.line);
      if (!answer) {
        return std::move(answer).error();
      }
      if (!json_get(*answer, "ok", false)) {
        return make_error(ErrorCode::failed, "timing failed: {}", json_get(*answer, "message", std::string()));
      }
      conditions = pass_conditions_from_json(answer->value("conditions", json()));
      for (const json& us : answer->value("us", json::array())) {
        pass.us.push_back(us.is_number() ? us.get<double>() : 0.0);
      }
      if (!answer->contains("failed")) {
        if (pass.us.size() != order.size() || *std::min_element(pass.us.begin(), pass.us.end()) <= 0) {
          return make_error(ErrorCode::failed, "wanted {} positive times from the worker, got {}", order.size(), reply.line);
        }
        return pass;
      }
      last_id_ = json_get(*answer, "failed", last_id_);
      failure_.kind = "error";
      failure_.reason = json_get(*answer, "message", std::string());
    }
  }
  pass.failed = last_id_;
  live_.erase(last_id_);
  return pass;
}

}  // namespace octile
