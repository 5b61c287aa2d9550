// SPDX-License-Identifier: Apache-2.0
// Timing on the CPU: a plain loop around calls that are done when they return.
#include "octile/kernels/cpu/timed_loop.h"

#include "octile/core/format.h"
#include "octile/kernels/cpu/onednn_family.h"
#include "octile/kernels/cpu/thread_pool.h"

#include <chrono>
#include <utility>

namespace octile::cpu {
namespace {

class TimedLoop final : public TimedSequence {
 public:
  explicit TimedLoop(std::vector<TimedCall> calls) : calls_(std::move(calls)) {}

  Expected<double> time_us() override {
    // The threads that the calls need are awake when the clock starts, as they are between two calls, and nobody else's
    // are: each loop ends the OpenMP threads it has used, which would spin on through the next candidate's time.
    if (uses_onednn_) {
      wake_onednn_threads();
    } else {
      ThreadPool::instance().run(ThreadPool::instance().size(), [](int) {});
    }
    const std::uint64_t before = onednn_calls();
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (Expected<void> done = calls_[i](nullptr); !done) {
        return make_error(done.error().code, "timed call {} of {}: {}", i + 1, calls_.size(), done.error().message);
      }
    }
    const std::chrono::duration<double, std::micro> all = std::chrono::steady_clock::now() - begin;
    uses_onednn_ = onednn_calls() != before;
    if (uses_onednn_) {
      release_onednn_threads();
    }
    return all.count() / static_cast<double>(calls_.size());
  }

 private:
  std::vector<TimedCall> calls_;
  bool uses_onednn_ = false;  // As the last time_us() found.
};

}  // namespace

Expected<std::unique_ptr<TimedSequence>> make_timed_loop(std::vector<TimedCall> calls) {
  if (calls.empty()) {
    return make_error(ErrorCode::invalid_argument, "a timed sequence wants at least one call, got none");
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (!calls[i]) {
      return make_error(ErrorCode::invalid_argument, "timed call {} of {} is empty", i + 1, calls.size());
    }
  }
  return std::unique_ptr<TimedSequence>(std::make_unique<TimedLoop>(std::move(calls)));
}

}  // namespace octile::cpu
