// SPDX-License-Identifier: Apache-2.0
// A handler that writes to a pipe; see signal_watch.h.
#include "octile/tune/signal_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

namespace octile {

namespace {

std::atomic<int> caught_signal{0};
std::atomic<bool> is_watched{false};
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
  bool free = false;
  if (!is_watched.compare_exchange_strong(free, true)) {
    return;
  }
  owner_ = true;
  caught_signal = 0;
  if (::pipe2(signal_pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    signal_pipe = {-1, -1};  // poll() ignores negative descriptors; caught() still tells.
  }
  struct sigaction action{};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &previous_int_);
  ::sigaction(SIGTERM, &action, &previous_term_);
}

SignalWatch::~SignalWatch() {
  if (!owner_) {
    return;
  }
  ::sigaction(SIGINT, &previous_int_, nullptr);
  ::sigaction(SIGTERM, &previous_term_, nullptr);
  for (int& fd : signal_pipe) {
    if (fd >= 0) {
      ::close(fd);
    }
    fd = -1;
  }
  is_watched = false;
}

int SignalWatch::fd() const noexcept { return owner_ ? signal_pipe[0] : -1; }
int SignalWatch::caught() const noexcept { return owner_ ? caught_signal.load() : 0; }

}  // namespace octile
