// SPDX-License-Identifier: Apache-2.0
// Creating, keeping and running oneDNN's primitives.
#include "octile/kernels/cpu/onednn_matmuls.h"

#include "octile/core/format.h"
#include "octile/kernels/cpu/futex_turn.h"
#include "octile/kernels/cpu/onednn_family.h"
#include "octile/kernels/cpu/onednn_loader.h"
#include "octile/kernels/cpu/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace octile::cpu {
namespace {

FutexTurn turn;
std::atomic<std::uint64_t> calls{0};
thread_local bool has_openmp_threads = false;  // This thread has started OpenMP threads through the component.

// OpenMP libraries do not survive fork(): a child that inherits the record of threads which do not exist waits for them for
// ever. So the forking thread ends its own first. Other threads' records stay behind in threads the child does not have.
void watch_for_fork() {
  static const int registered = pthread_atfork(release_onednn_threads, nullptr, [] { turn.reset_after_fork(); });
  static_cast<void>(registered);
}

int threads() { return ThreadPool::instance().size(); }

OctileOnednnShape shape_of(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype) {
  return {
      .m = m, .n = n, .k = k, .dtype = dtype == DType::bf16 ? OCTILE_ONEDNN_BF16 : OCTILE_ONEDNN_F32, .threads = threads()};
}

// The error texts of the component, with the shape they are about.
Error onednn_error(const OctileOnednnShape& shape, const OctileOnednnError& error) {
  return make_error(ErrorCode::failed, "{} (M={}, N={}, K={}, {} threads)", error.text, shape.m, shape.n, shape.k,
                    shape.threads);
}

}  // namespace

OnednnTurn::OnednnTurn() {
  watch_for_fork();
  turn.begin(false);
  has_openmp_threads = true;
}
OnednnTurn::~OnednnTurn() { turn.end(); }

void run_on_onednn_threads(std::int64_t count, void (*work)(const void* context, std::int64_t index), const void* context) {
  struct Job {
    std::int64_t count;
    void (*work)(const void* context, std::int64_t index);
    const void* context;
    std::atomic<std::int64_t> next{0};
  };
  Job job{.count = count, .work = work, .context = context};
  onednn_component().api->parallel(
      threads(),
      [](void* data, int) {
        auto* shared = static_cast<Job*>(data);
        for (std::int64_t i = 0; (i = shared->next.fetch_add(1, std::memory_order_relaxed)) < shared->count;) {
          shared->work(shared->context, i);
        }
      },
      &job);
}

Expected<std::shared_ptr<const OnednnMatmuls>> OnednnMatmuls::prepare(std::int64_t n, std::int64_t k, std::int64_t max_m) {
  static std::mutex mutex;
  static std::map<std::tuple<std::int64_t, std::int64_t, DType>, std::weak_ptr<OnednnMatmuls>> shapes;
  if (max_m < 1) {
    return make_error(ErrorCode::invalid_argument, "onednn: want max_m >= 1, got {}", max_m);
  }
  const DType dtype = onednn_value_dtype();
  std::shared_ptr<OnednnMatmuls> matmuls;
  {
    const std::scoped_lock lock(mutex);
    std::weak_ptr<OnednnMatmuls>& known = shapes[{n, k, dtype}];
    matmuls = known.lock();
    if (matmuls == nullptr) {
      matmuls.reset(new OnednnMatmuls(n, k, dtype));
      known = matmuls;
    }
  }
  if (Expected<void> grown = matmuls->grow(max_m); !grown) {
    return grown.error();
  }
  return std::shared_ptr<const OnednnMatmuls>(std::move(matmuls));
}

OnednnMatmuls::~OnednnMatmuls() {
  for (const Slot& slot : slots_) {
    if (OctileOnednnMatmul* matmul = slot.matmul.load(std::memory_order_acquire); matmul != nullptr) {
      onednn_component().api->destroy(matmul);
    }
  }
}

std::int64_t OnednnMatmuls::rows_for(std::int64_t m) noexcept {
  if (m <= kLastExactRows) {
    return std::max<std::int64_t>(m, 1);
  }
  return std::min((m + kRowStep - 1) / kRowStep * kRowStep, kMostRows);
}

std::size_t OnednnMatmuls::slot_of(std::int64_t m) noexcept {
  const std::int64_t rows = rows_for(m);
  return static_cast<std::size_t>(rows <= kLastExactRows ? rows - 1
                                                         : kLastExactRows - 1 + (rows - kLastExactRows) / kRowStep);
}

Expected<void> OnednnMatmuls::grow(std::int64_t max_m) {
  const OctileOnednnApi& api = *onednn_component().api;
  const std::scoped_lock lock(growing_);
  const OnednnTurn mine;
  std::int64_t scratchpad_bytes = 0;
  for (std::int64_t m = 1; m <= rows_for(max_m); m = rows_for(m + 1)) {
    Slot& slot = slots_[slot_of(m)];
    if (slot.matmul.load(std::memory_order_relaxed) == nullptr) {
      const OctileOnednnShape shape = shape_of(m, n_, k_, dtype_);
      OctileOnednnMatmul* matmul = nullptr;
      OctileOnednnError error{};
      if (api.create(&shape, &matmul, &error) != 0) {
        return onednn_error(shape, error);
      }
      slot.scratchpad_bytes = std::max(scratchpad_bytes, api.scratchpad_bytes(matmul));
      slot.matmul.store(matmul, std::memory_order_release);
    }
    scratchpad_bytes = slot.scratchpad_bytes;
    if (m == kMostRows) {
      break;
    }
  }
  return {};
}

std::int64_t OnednnMatmuls::scratchpad_bytes(std::int64_t m) const noexcept { return slots_[slot_of(m)].scratchpad_bytes; }

Expected<void> OnednnMatmuls::execute(std::int64_t m, const void* x, const OnednnWeight& weight, float* sums,
                                      void* scratchpad) const {
  OctileOnednnMatmul* matmul = slots_[slot_of(m)].matmul.load(std::memory_order_acquire);
  if (matmul == nullptr) {
    return make_error(ErrorCode::not_prepared, "onednn: {} rows were not prepared for N={}, K={}", m, n_, k_);
  }
  OctileOnednnError error{};
  if (onednn_component().api->execute(matmul, x, weight.handle(), sums, scratchpad, &error) != 0) {
    return onednn_error(shape_of(m, n_, k_, dtype_), error);
  }
  calls.fetch_add(1, std::memory_order_relaxed);
  return {};
}

std::uint64_t onednn_calls() noexcept { return calls.load(std::memory_order_relaxed); }

void wake_onednn_threads() {
  if (has_openmp_threads) {
    onednn_component().api->parallel(threads(), [](void*, int) {}, nullptr);
  }
}

void release_onednn_threads() {
  if (has_openmp_threads) {
    onednn_component().api->release_threads();
  }
}

}  // namespace octile::cpu
