// SPDX-License-Identifier: Apache-2.0
// A handler that writes to a pipe; see signal_watch.h.
#include "octile/tune/signal_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>

namespace octile {

namespace {

std::mutex watch_mutex;
int watches = 0;
struct sigaction previous_int{};
struct sigaction previous_term{};
std::atomic<int> caught_signal{0};
// Written while no handler is installed and no watch lives.
std::array<int, 2> signal_pipe{-1, -1};

void on_signal(int signal_number) {
  const int saved_errno = errno;
  int none = 0;
  caught_signal.compare_exchange_strong(none, signal_number);
  const char byte = 0;
  if (::write(signal_pipe[1], &byte, 1) < 0) {
    // A full pipe is readable already.
  }
  errno = saved_errno;
}

}  // namespace

SignalWatch::SignalWatch() {
  const std::lock_guard lock(watch_mutex);
  if (watches++ > 0) {
    return;
  }
  caught_signal = 0;
  if (::pipe2(signal_pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    signal_pipe = {-1, -1};  // poll() ignores negative descriptors; caught() still tells.
  }
  struct sigaction action{};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &previous_int);
  ::sigaction(SIGTERM, &action, &previous_term);
}

SignalWatch::~SignalWatch() {
  const std::lock_guard lock(watch_mutex);
  if (--watches > 0) {
    return;
  }
  ::sigaction(SIGINT, &previous_int, nullptr);
  ::sigaction(SIGTERM, &previous_term, nullptr);
  for (int& fd : signal_pipe) {
    if (fd >= 0) {
      ::close(fd);
    }
    fd = -1;
  }
}

int SignalWatch::fd() const noexcept { return signal_pipe[0]; }
int SignalWatch::caught() const noexcept { return caught_signal.load(); }

}  // namespace octile
