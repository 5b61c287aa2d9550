// SPDX-License-Identifier: Apache-2.0
// One worker process over a socket pair; see worker_client.h.
#include "octile/tune/worker_client.h"

#include "octile/core/format.h"

#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
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

WorkerClient::WorkerClient(std::vector<std::string> command) : command_(std::move(command)) {
  if (command_.empty()) {
    command_ = {"/proc/self/exe", "worker"};
  }
}

WorkerClient::~WorkerClient() { stop(); }

Expected<void> WorkerClient::start() {
  stop();
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return make_error(ErrorCode::failed, "cannot make a socket pair for the worker: {}", std::strerror(errno));
  }
  std::vector<std::string> arguments = command_;
  arguments.emplace_back("--parent");
  arguments.push_back(std::to_string(::getpid()));
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&files, ends[1], STDIN_FILENO);
  // A process group of its own: the terminal's Ctrl-C reaches the coordinator alone, and children of a worker end with it.
  // Signals as a fresh process has them, whatever this one blocks or ignores.
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int status = ::posix_spawn(&pid, argv[0], &files, &attributes, argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  ::close(ends[1]);
  if (status != 0) {
    ::close(ends[0]);
    return make_error(ErrorCode::failed, "cannot start the worker \"{}\": {}", command_[0], std::strerror(status));
  }
  pid_ = pid;
  fd_ = ends[0];
  return {};
}

std::string WorkerClient::reap() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  ::close(std::exchange(fd_, -1));
  pending_.clear();
  if (WIFSIGNALED(status)) {
    return format("killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  }
  return format("exit status {}", WEXITSTATUS(status));
}

std::string WorkerClient::stop() {
  if (!running()) {
    return {};
  }
  ::kill(-pid_, SIGKILL);  // The group, and the process itself where it has not made its group yet.
  ::kill(pid_, SIGKILL);
  return reap();
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
    std::array<pollfd, 2> fds{
        {{fd_, static_cast<short>(sending ? POLLIN | POLLOUT : POLLIN), 0}, {limits.signal_fd, POLLIN, 0}}};
    const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(std::min(std::ceil(left * 1000), 60'000.0)));
    if (ready < 0 && errno != EINTR) {
      return {WorkerReply::Status::died, {}, format("poll: {}; {}", std::strerror(errno), stop())};
    }
    if (ready <= 0) {
      continue;
    }
    if ((fds[1].revents & POLLIN) != 0) {
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
        ::shutdown(fd_, SHUT_RDWR);
        for (int i = 0; i < 100; ++i) {
          siginfo_t info{};
          if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_) {
            return {WorkerReply::Status::died, {}, reap()};
          }
          ::usleep(10'000);
        }
        return {WorkerReply::Status::died, {}, stop()};
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
