// SPDX-License-Identifier: Apache-2.0
// The worker process; see worker.h.
#include "octile/tune/worker.h"

#include "octile/core/format.h"
#include "octile/tune/conditions.h"
#include "octile/tune/protocol.h"

#include <nlohmann/json.hpp>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

namespace octile {

using nlohmann::json;

namespace {

json failure(const Error& error) {
  return {{"ok", false}, {"code", static_cast<int>(error.code)}, {"message", error.message}};
}

json open_device(const json& request, const DeviceFinder& finder, std::unique_ptr<Measurer>& measurer) {
  Expected<Device> device = finder(json_get(request, "device", std::string()));
  if (!device) {
    return failure(device.error());
  }
  Expected<MeasureSettings> settings = settings_from_json(request.value("settings", json()));
  if (!settings) {
    return failure(settings.error());
  }
  measurer = std::make_unique<Measurer>(*device, *settings);
  return {{"ok", true}};
}

json admit(const json& request, Measurer& measurer, const LineSink& sink) {
  Expected<CandidateSpec> spec = spec_from_json(request.value("spec", json()));
  if (!spec) {
    return failure(spec.error());
  }
  const PhaseCallback phase = [&](std::string_view step) { sink(json{{"step", step}}.dump()); };
  Expected<Admission> admission = measurer.admit(json_get(request, "id", -1), *spec, json_get(request, "m", std::int64_t{0}),
                                                 json_get(request, "check", true), phase);
  if (!admission) {
    return failure(admission.error());
  }
  return {{"ok", true}, {"admission", to_json(*admission)}};
}

json compile(const json& request, const Measurer& measurer, const LineSink& sink) {
  sink(json{{"step", "compile"}}.dump());
  std::vector<CompileItem> items;
  for (const json& item : request.value("items", json::array())) {
    Expected<CandidateSpec> spec = spec_from_json(item.value("spec", json()));
    if (!spec) {
      return failure(spec.error());
    }
    items.push_back({json_get(item, "n", std::int64_t{0}), json_get(item, "k", std::int64_t{0}), std::move(*spec)});
  }
  measurer.compile_ahead(items, json_get(request, "spare_cores", 0),
                         [&](std::size_t count) { sink(json{{"step", "compile"}, {"compiled", count}}.dump()); });
  return {{"ok", true}};
}

// Times the candidates of "order", announcing each; stops at the first that fails. What the device ran under meanwhile comes
// with the times.
json time_order(const json& request, Measurer& measurer, const LineSink& sink) {
  const auto calls = json_get(request, "calls", std::int64_t{1});
  json times = json::array();
  PassConditions pass;
  pass.before = measurer.conditions();
  const auto start = std::chrono::steady_clock::now();
  for (const json& item : request.value("order", json::array())) {
    const int id = item.is_number_integer() ? item.get<int>() : -1;
    sink(json{{"step", "time"}, {"id", id}}.dump());
    Expected<double> us = measurer.time_us(id, calls);
    if (!us) {
      return {{"ok", true}, {"us", times}, {"failed", id}, {"message", us.error().message}};
    }
    times.push_back(*us);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  pass.after = measurer.conditions();
  // Threads of a CPU count its cores; a GPU is fed by one.
  const int cores = measurer.device().kind == DeviceKind::cpu ? measurer.device().sm_count : 1;
  pass.disturbed = disturbance(pass.before, pass.after, took.count(), cores);
  return {{"ok", true}, {"us", times}, {"conditions", to_json(pass)}};
}

bool send_line(const std::string& line) {
  std::string text = line + "\n";
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = ::send(STDIN_FILENO, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return false;
    }
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

WorkerServer::WorkerServer(DeviceFinder finder) : finder_(std::move(finder)) {}

void WorkerServer::serve(std::string_view line, const LineSink& sink) {
  const Expected<json> request = parse_line(line);
  json answer;
  if (!request) {
    answer = failure(request.error());
  } else {
    const auto command = json_get(*request, "command", std::string());
    if (command == "open") {
      answer = open_device(*request, finder_, measurer_);
    } else if (measurer_ == nullptr) {
      answer = failure(make_error(ErrorCode::invalid_argument, "\"{}\" before \"open\"", command));
    } else if (command == "shape") {
      const Expected<WeightLayout> layout = layout_of_request(*request);
      const Expected<void> done = layout ? measurer_->set_shape(json_get(*request, "n", std::int64_t{0}),
                                                                json_get(*request, "k", std::int64_t{0}), *layout)
                                         : Expected<void>(layout.error());
      answer = done ? json{{"ok", true}} : failure(done.error());
    } else if (command == "admit") {
      answer = admit(*request, *measurer_, sink);
    } else if (command == "time") {
      answer = time_order(*request, *measurer_, sink);
    } else if (command == "compile") {
      answer = compile(*request, *measurer_, sink);
    } else if (command == "forget") {
      measurer_->forget_candidates();
      answer = {{"ok", true}};
    } else {
      answer = failure(make_error(ErrorCode::invalid_argument, "unknown command \"{}\"", command));
    }
  }
  sink(answer.dump(-1, ' ', false, json::error_handler_t::replace));
}

int serve_worker(int parent_pid, const DeviceFinder& finder) {
  // The kernel kills this process when the one that started it dies, also while it hangs in a candidate. Where the parent
  // died before this call, it is no longer the parent.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent_pid) {
    return 1;
  }
  ::signal(SIGINT, SIG_IGN);  // Ctrl-C is the coordinator's to handle.
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  WorkerServer server(finder);
  std::string pending;
  bool peer_is_there = true;
  while (peer_is_there) {
    char buffer[4096];
    const ssize_t n = ::recv(STDIN_FILENO, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      break;
    }
    pending.append(buffer, static_cast<std::size_t>(n));
    for (std::size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n')) {
      const std::string line = pending.substr(0, end);
      pending.erase(0, end + 1);
      server.serve(line, [&](const std::string& text) { peer_is_there = send_line(text) && peer_is_there; });
    }
  }
  return 0;
}

}  // namespace octile
