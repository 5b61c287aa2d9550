// SPDX-License-Identifier: Apache-2.0
// Workers of another rank's run; see worker_host.h.
#include "octile/tune/worker_host.h"

#include "octile/core/format.h"
#include "octile/tune/line_socket.h"
#include "octile/tune/protocol.h"
#include "octile/tune/signal_watch.h"
#include "octile/tune/worker_process.h"

#include <nlohmann/json.hpp>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace octile {

using nlohmann::json;

namespace {

constexpr int kCoordinator = 0;
// While every worker is at work, the only message to expect is that one be killed.
constexpr double kBusyPauseS = 5e-3;
// How long the coordinator may take to end the run once this rank was interrupted.
constexpr std::chrono::seconds kInterruptedFor{20};
// A worker whose socket is closed is given so long to end by itself.
constexpr double kEndingS = 1.0;

struct Hosted {
  std::unique_ptr<WorkerProcess> process;
  LineSocket socket;
  bool is_at_work = false;  // It was asked and has not answered.
};

class WorkerHost {
 public:
  WorkerHost(const Postbox& postbox, const std::vector<std::string>& command) : postbox_(postbox), command_(command) {}

  Expected<void> run() {
    const SignalWatch signals;
    std::optional<std::chrono::steady_clock::time_point> last_moment;
    while (!is_over_) {
      wait(signals.fd(), last_moment.has_value());
      Expected<void> done;
      if (signals.caught() != 0 && !last_moment) {
        last_moment = std::chrono::steady_clock::now() + kInterruptedFor;
        done = post({{"interrupted", signals.caught()}});
      }
      if (last_moment && std::chrono::steady_clock::now() > *last_moment) {
        return make_error(ErrorCode::failed, "interrupted by signal {}, and rank 0 did not end the run", signals.caught());
      }
      if (done) {
        done = pass_lines_on();
      }
      if (done) {
        done = take_letters();
      }
      if (!done) {
        return done;
      }
    }
    workers_.clear();
    return post({{"farewell", true}});
  }

 private:
  Expected<void> post(const json& message) {
    return postbox_.send(kCoordinator, message.dump(-1, ' ', false, json::error_handler_t::replace));
  }

  void wait(int signal_fd, bool is_interrupted) const {
    // poll() ignores negative descriptors. The signal's stays readable for ever.
    std::vector<pollfd> polled{{is_interrupted ? -1 : signal_fd, POLLIN, 0}};
    bool all_at_work = !workers_.empty();
    for (const auto& [id, worker] : workers_) {
      polled.push_back(worker.socket.poll_request());
      all_at_work = all_at_work && worker.is_at_work;
    }
    const double pause_s = all_at_work ? kBusyPauseS : postbox_.poll_interval_s;
    const std::timespec pause{0, static_cast<long>(pause_s * 1e9)};
    ::ppoll(polled.data(), polled.size(), &pause, nullptr);
  }

  Expected<void> pass_lines_on() {
    for (auto worker = workers_.begin(); worker != workers_.end();) {
      auto& [id, hosted] = *worker;
      hosted.socket.flush();
      for (const std::string& line : hosted.socket.read()) {
        const Expected<json> text = parse_line(line);
        hosted.is_at_work = text && text->contains("step");
        if (Expected<void> sent = post({{"worker", id}, {"line", line}}); !sent) {
          return sent;
        }
      }
      if (!hosted.socket.has_ended()) {
        ++worker;
        continue;
      }
      const std::string how = hosted.process->end(kEndingS);
      if (Expected<void> sent = post({{"worker", id}, {"ended", how}}); !sent) {
        return sent;
      }
      worker = workers_.erase(worker);
    }
    return {};
  }

  Expected<void> take_letters() {
    const Expected<std::vector<Letter>> letters = postbox_.receive();
    if (!letters) {
      return letters.error();
    }
    for (const Letter& letter : *letters) {
      const Expected<json> message = parse_line(letter.text);
      if (!message) {
        return message.error();
      }
      if (Expected<void> done = take(*message); !done) {
        return done;
      }
    }
    return {};
  }

  Expected<void> take(const json& message) {
    if (message.contains("finish")) {
      is_over_ = true;
      return {};
    }
    if (const int id = json_get(message, "start", 0); id != 0) {
      auto process = std::make_unique<WorkerProcess>(command_);
      const Expected<int> fd = process->start();
      if (!fd) {
        return post({{"worker", id}, {"ended", fd.error().message}});
      }
      workers_.emplace(id, Hosted{std::move(process), LineSocket(*fd), false});
      return {};
    }
    const auto worker = workers_.find(json_get(message, "worker", json_get(message, "end", 0)));
    if (worker == workers_.end()) {
      return {};  // It has ended already, and that was said.
    }
    if (message.contains("line")) {
      worker->second.is_at_work = true;
      worker->second.socket.write(json_get(message, "line", std::string()));
      return {};
    }
    const std::string how = worker->second.process->end(json_get(message, "patience_s", 0.0));
    const int id = worker->first;
    workers_.erase(worker);
    return post({{"worker", id}, {"ended", how}});
  }

  const Postbox& postbox_;
  const std::vector<std::string>& command_;
  std::map<int, Hosted> workers_;
  bool is_over_ = false;
};

}  // namespace

Expected<void> serve_workers(const Postbox& postbox, const std::vector<std::string>& command) {
  return WorkerHost(postbox, command).run();
}

}  // namespace octile
