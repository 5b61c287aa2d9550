// SPDX-License-Identifier: Apache-2.0
// Waiting on one word of memory, and a queue of threads that are served in the order they came: no lock object, no
// allocation, and a sleep in the kernel only where watching the word for a while did not help.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace octile::cpu {

// How long an idle thread watches for work before it sleeps. Waking a sleeper costs 5 to 60 us (the most in virtual
// machines), the gap between two kernels of one layer about 1 us. A longer watch would take the core from other libraries'
// threads.
inline constexpr std::chrono::microseconds kWatch{50};

inline void pause_briefly() {
#if defined(__x86_64__)
  for (int i = 0; i < 16; ++i) {
    __builtin_ia32_pause();
  }
#else
  std::this_thread::yield();
#endif
}

// Returns when `word` no longer holds `old`, with the new value.
inline std::uint32_t wait_until_changed(const std::atomic<std::uint32_t>& word, std::uint32_t old, bool watch) {
  std::uint32_t now = word.load(std::memory_order_acquire);
  if (watch && now == old) {
    const auto deadline = std::chrono::steady_clock::now() + kWatch;
    do {
      pause_briefly();
      now = word.load(std::memory_order_acquire);
    } while (now == old && std::chrono::steady_clock::now() < deadline);
  }
  while (now == old) {
    word.wait(old, std::memory_order_acquire);
    now = word.load(std::memory_order_acquire);
  }
  return now;
}

class FutexTurn {
 public:
  // Waits until every caller that came earlier has ended its turn.
  void begin(bool watch) {
    const std::uint32_t mine = next_.fetch_add(1, std::memory_order_relaxed);
    for (std::uint32_t now = serving_.load(std::memory_order_acquire); now != mine;) {
      now = wait_until_changed(serving_, now, watch);
    }
  }
  // By the thread whose turn it is.
  void end() {
    serving_.fetch_add(1, std::memory_order_release);
    serving_.notify_all();
  }
  // In a forked child, where the threads that were waiting or working do not exist.
  void reset_after_fork() noexcept {
    next_.store(0, std::memory_order_relaxed);
    serving_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint32_t> next_{0};
  std::atomic<std::uint32_t> serving_{0};
};

}  // namespace octile::cpu
