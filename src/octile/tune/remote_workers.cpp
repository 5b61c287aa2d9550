// SPDX-License-Identifier: Apache-2.0
// Sockets of this process and messages to other ranks, tied together; see remote_workers.h.
#include "octile/tune/remote_workers.h"

#include "octile/core/format.h"
#include "octile/core/log.h"
#include "octile/tune/protocol.h"

#include <nlohmann/json.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <set>

namespace octile {

using nlohmann::json;

namespace {

// A host that does not answer for so long when it is told to end a worker is taken for lost.
constexpr double kAnswerS = 10;
constexpr double kFarewellS = 5;
constexpr std::chrono::milliseconds kIdlePause{10};

std::chrono::duration<double> seconds(double s) { return std::chrono::duration<double>(s); }

}  // namespace

bool dismiss(const Postbox& postbox) {
  std::set<int> waiting;
  for (int rank = 1; rank < postbox.size; ++rank) {
    if (!postbox.send(rank, json{{"finish", true}}.dump())) {
      return false;
    }
    waiting.insert(rank);
  }
  const auto end = std::chrono::steady_clock::now() + seconds(kFarewellS);
  while (!waiting.empty() && std::chrono::steady_clock::now() < end) {
    const Expected<std::vector<Letter>> letters = postbox.receive();
    if (!letters) {
      return false;
    }
    for (const Letter& letter : *letters) {
      if (const Expected<json> message = parse_line(letter.text); message && message->contains("farewell")) {
        waiting.erase(letter.from);
      }
    }
    std::this_thread::sleep_for(seconds(postbox.poll_interval_s));
  }
  return waiting.empty();
}

RemoteWorkers::RemoteWorkers(Postbox postbox)
    : postbox_(std::move(postbox)), wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_([this] { run(); }) {}

RemoteWorkers::~RemoteWorkers() {
  finish();
  ::close(wake_fd_);
}

bool RemoteWorkers::finish() {
  if (!thread_.joinable()) {
    return !broken_;
  }
  {
    const std::lock_guard lock(mutex_);
    is_finishing_ = true;
  }
  wake();
  thread_.join();
  if (!broken_ && !dismiss(postbox_)) {
    broken_ = "not every rank said farewell";
  }
  return !broken_;
}

WorkerLauncher RemoteWorkers::launcher(int rank, std::string device) {
  const auto id = std::make_shared<int>(0);  // Of the worker that runs; 0: none.
  return {[this, rank, device = std::move(device), id] { return start(rank, device, *id); },
          [this, id](double patience_s) { return *id == 0 ? std::string() : end(std::exchange(*id, 0), patience_s); }};
}

Expected<int> RemoteWorkers::start(int rank, const std::string& device, int& id) {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return make_error(ErrorCode::failed, "cannot make a socket pair for a worker of rank {}: {}", rank,
                      std::strerror(errno));
  }
  {
    const std::lock_guard lock(mutex_);
    LineSocket socket(ends[1]);
    if (broken_) {
      ::close(ends[0]);
      return make_error(ErrorCode::failed, "cannot start a worker on rank {}: {}", rank, *broken_);
    }
    id = next_id_++;
    remotes_.emplace(id, Remote{rank, std::move(socket), std::nullopt});
    outbox_.emplace_back(rank, json{{"start", id}, {"device", device}}.dump());
  }
  wake();
  return ends[0];
}

std::string RemoteWorkers::end(int id, double patience_s) {
  std::unique_lock lock(mutex_);
  Remote& remote = remotes_.at(id);
  const auto has_ended = [&] { return remote.ended.has_value(); };
  if (!has_ended()) {
    outbox_.emplace_back(remote.rank, json{{"end", id}, {"patience_s", patience_s}}.dump());
    wake();
    ended_.wait_for(lock, seconds(patience_s + kAnswerS), has_ended);
  }
  std::string how = remote.ended.value_or(format("rank {} does not answer", remote.rank));
  remotes_.erase(id);
  return how;
}

void RemoteWorkers::wake() {
  const std::uint64_t one = 1;
  if (::write(wake_fd_, &one, sizeof one) < 0) {
    // Full: it is readable already.
  }
}

void RemoteWorkers::run() {
  while (true) {
    std::vector<pollfd> polled{{wake_fd_, POLLIN, 0}};
    {
      const std::lock_guard lock(mutex_);
      if (is_finishing_) {
        return;
      }
      for (const auto& [id, remote] : remotes_) {
        polled.push_back(remote.socket.poll_request());
      }
    }
    // A message cannot be polled for: it is looked for again and again, only rarely while no worker is there to send one.
    const double pause_s = polled.size() > 1 ? postbox_.poll_interval_s : seconds(kIdlePause.count() * 1e-3).count();
    const std::timespec pause{0, static_cast<long>(pause_s * 1e9)};
    ::ppoll(polled.data(), polled.size(), &pause, nullptr);
    std::uint64_t count = 0;
    if (::read(wake_fd_, &count, sizeof count) < 0) {
      // Nobody has woken it.
    }
    const std::lock_guard lock(mutex_);
    if (!broken_) {
      forward_lines();
    }
  }
}

void RemoteWorkers::forward_lines() {
  const auto post = [&](int rank, const std::string& text) {
    if (const Expected<void> sent = postbox_.send(rank, text); !sent) {
      give_up(sent.error().message);
    }
  };
  for (const auto& [rank, text] : std::exchange(outbox_, {})) {
    post(rank, text);
  }
  for (auto& [id, remote] : remotes_) {
    for (const std::string& line : remote.socket.read()) {
      post(remote.rank, json{{"worker", id}, {"line", line}}.dump(-1, ' ', false, json::error_handler_t::replace));
    }
  }
  const Expected<std::vector<Letter>> letters = postbox_.receive();
  if (!letters) {
    give_up(letters.error().message);
    return;
  }
  for (const Letter& letter : *letters) {
    take(letter);
  }
  for (auto& [id, remote] : remotes_) {
    remote.socket.flush();
  }
}

void RemoteWorkers::take(const Letter& letter) {
  const Expected<json> message = parse_line(letter.text);
  if (!message) {
    log_warning("rank {}: {}", letter.from, message.error().message);
    return;
  }
  if (const int signal_number = json_get(*message, "interrupted", 0); signal_number == SIGINT || signal_number == SIGTERM) {
    // Whoever interrupts one rank means the run: it ends in good order, as if the signal had come to this process.
    log_warning("rank {} was interrupted by signal {}: the run ends", letter.from, signal_number);
    ::kill(::getpid(), signal_number);
    return;
  }
  const auto remote = remotes_.find(json_get(*message, "worker", 0));
  if (remote == remotes_.end()) {
    return;  // Of a worker that was given up.
  }
  if (message->contains("line")) {
    remote->second.socket.write(json_get(*message, "line", std::string()));
  } else if (message->contains("ended")) {
    remote->second.ended = json_get(*message, "ended", std::string());
    remote->second.socket.shut();
    ended_.notify_all();
  }
}

void RemoteWorkers::give_up(const std::string& reason) {
  broken_ = format("messages between the hosts fail: {}", reason);
  for (auto& [id, remote] : remotes_) {
    if (!remote.ended) {
      remote.ended = broken_;
      remote.socket.shut();
    }
  }
  ended_.notify_all();
}

}  // namespace octile
