// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM as something to poll for, while a run is in progress.
#pragma once

namespace octile {

// Catches both signals while any object lives, and restores what was there before when the last one dies. All objects of a
// process see the same: the first signal that came since the first of them was made.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  int fd() const noexcept;      // Readable once a signal came; never read from, so it stays readable.
  int caught() const noexcept;  // The first signal that came, or 0.
};

}  // namespace octile
