// SPDX-License-Identifier: Apache-2.0
// One worker process over a socket pair; see worker_client.h.
#include "octile/tune/worker_client.h"

#include "octile/core/format.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

namespace octile {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_until(Clock::time_point moment) { return std::chrono::duration<double>(moment - Clock::now()).count(); }

Clock::time_point from_now(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

WorkerClient::WorkerClient(WorkerLauncher launcher) : launcher_(std::move(launcher)) {}

WorkerClient::~WorkerClient() { stop(); }

Expected<void> WorkerClient::start() {
  stop();
  const Expected<int> fd = launcher_.start();
  if (!fd) {
    return fd.error();
  }
  fd_ = *fd;
  return {};
}

std::string WorkerClient::stop(double patience_s) {
  if (fd_ < 0) {
    return {};
  }
  // Told first: what hangs in the middle of an answer must not wait for a reader.
  ::shutdown(fd_, SHUT_RDWR);
  std::string how = launcher_.end(patience_s);
  ::close(std::exchange(fd_, -1));
  pending_.clear();
  return how;
}

WorkerReply WorkerClient::ask(const std::string& line, WorkerLimits& limits,
                              const std::function<bool(const std::string&)>& is_answer) {
  const std::string text = line + "\n";
  std::size_t sent = 0;
  const bool has_deadline = limits.deadline_s > 0;
  const Clock::time_point deadline = from_now(has_deadline ? limits.deadline_s : 0);
  Clock::time_point step_end = from_now(limits.step_timeout_s);
  while (true) {
    for (std::size_t end = pending_.find('\n'); end != std::string::npos; end = pending_.find('\n')) {
      std::string received = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      if (is_answer(received)) {
        return {WorkerReply::Status::answered, std::move(received), {}};
      }
      step_end = from_now(limits.step_timeout_s);
    }
    const double step_left = seconds_until(step_end);
    const double left = has_deadline ? std::min(step_left, seconds_until(deadline)) : step_left;
    if (left <= 0) {
      stop();
      return step_left <= 0
                 ? WorkerReply{WorkerReply::Status::timed_out, {}, format("no answer in {:.3g} s", limits.step_timeout_s)}
                 : WorkerReply{WorkerReply::Status::out_of_time, {}, "the time budget ended"};
    }
    const bool sending = sent < text.size();
    std::array<pollfd, 3> fds{{{fd_, static_cast<short>(sending ? POLLIN | POLLOUT : POLLIN), 0},
                               {limits.signal_fd, POLLIN, 0},
                               {limits.stop_fd, POLLIN, 0}}};
    const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(std::min(std::ceil(left * 1000), 60'000.0)));
    if (ready < 0 && errno != EINTR) {
      return {WorkerReply::Status::died, {}, format("poll: {}; {}", std::strerror(errno), stop())};
    }
    if (ready <= 0) {
      continue;
    }
    if (((fds[1].revents | fds[2].revents) & POLLIN) != 0) {
      stop();
      return {WorkerReply::Status::interrupted, {}, "interrupted"};
    }
    if ((fds[0].revents & POLLIN) != 0) {
      std::array<char, 4096> buffer{};
      const ssize_t n = ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (n > 0) {
        pending_.append(buffer.data(), static_cast<std::size_t>(n));
        continue;
      }
      if (n == 0 || errno != EINTR) {
        // Closed: it is ending, or lives on without its socket. Give it a moment, so that its own status is seen.
        return {WorkerReply::Status::died, {}, stop(1.0)};
      }
      continue;
    }
    if ((fds[0].revents & POLLOUT) != 0) {
      const ssize_t n = ::send(fd_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) {
        sent += static_cast<std::size_t>(n);
        continue;
      }
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        continue;
      }
      return {WorkerReply::Status::died, {}, stop()};
    }
    if ((fds[0].revents & (POLLHUP | POLLERR)) != 0) {
      return {WorkerReply::Status::died, {}, stop()};
    }
  }
}

}  // namespace octile
