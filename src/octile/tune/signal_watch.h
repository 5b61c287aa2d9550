// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM as something to poll for, while a run is in progress.
#pragma once

#include <csignal>

namespace octile {

// Catches both signals for its life and restores what was there before. One at a time in a process; a second one made while
// the first lives only looks on.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const noexcept;      // Readable once a signal came; never read from, so it stays readable.
  int caught() const noexcept;  // The first signal that came, or 0.

 private:
  bool owner_ = false;
  struct sigaction previous_int_{};
  struct sigaction previous_term_{};
};

}  // namespace octile
