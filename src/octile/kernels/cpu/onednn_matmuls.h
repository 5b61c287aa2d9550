// SPDX-License-Identifier: Apache-2.0
// oneDNN's primitives for one weight shape, the turn in which they are run, and the threads they run on.
#pragma once

#include "octile/kernels/cpu/onednn_abi.h"
#include "octile/kernels/cpu/onednn_weight.h"

#include <octile/types.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace octile::cpu {

// The primitives that were created for one (N, K): at M = 1, 2, ..., 256, then 264, 272, ..., 1024. Shared by every kernel
// of the shape in the process, grown by whichever asks for more.
class OnednnMatmuls {
 public:
  static constexpr std::int64_t kLastExactRows = 256;
  static constexpr std::int64_t kRowStep = 8;
  static constexpr std::int64_t kMostRows = 1024;

  // The shape's primitives for every M in [1, max_m], created where they are missing (about 0.1 ms each).
  // Precondition: the component is available.
  static Expected<std::shared_ptr<const OnednnMatmuls>> prepare(std::int64_t n, std::int64_t k, std::int64_t max_m);

  ~OnednnMatmuls();
  OnednnMatmuls(const OnednnMatmuls&) = delete;
  OnednnMatmuls& operator=(const OnednnMatmuls&) = delete;

  // Rows of the primitive that serves m rows, m >= 1; kMostRows for more than that.
  static std::int64_t rows_for(std::int64_t m) noexcept;

  DType dtype() const noexcept { return dtype_; }  // Of both operands.
  std::int64_t value_bytes() const noexcept { return size_of(dtype_); }
  // For m rows or fewer, m within what was prepared.
  std::int64_t scratchpad_bytes(std::int64_t m) const noexcept;

  // sums[rows_for(m), n] = x[rows_for(m), k] * weight^T. By the thread whose OnednnTurn it is.
  Expected<void> execute(std::int64_t m, const void* x, const OnednnWeight& weight, float* sums, void* scratchpad) const;

 private:
  static constexpr std::size_t kSlots = kLastExactRows + (kMostRows - kLastExactRows) / kRowStep;
  struct Slot {
    std::atomic<OctileOnednnMatmul*> matmul{nullptr};
    std::int64_t scratchpad_bytes = 0;  // Of this slot or any before it.
  };

  OnednnMatmuls(std::int64_t n, std::int64_t k, DType dtype) noexcept : n_(n), k_(k), dtype_(dtype) {}
  static std::size_t slot_of(std::int64_t m) noexcept;
  Expected<void> grow(std::int64_t max_m);

  std::int64_t n_;
  std::int64_t k_;
  DType dtype_;
  std::mutex growing_;
  std::array<Slot, kSlots> slots_;  // Created in order: the first null one ends what was prepared.
};

// Makes the thread the only one that uses oneDNN, in the order the threads came, and ends that when destroyed.
class OnednnTurn {
 public:
  OnednnTurn();
  ~OnednnTurn();
  OnednnTurn(const OnednnTurn&) = delete;
  OnednnTurn& operator=(const OnednnTurn&) = delete;
};

// Calls work(context, index) for index in [0, count), each once, on oneDNN's OpenMP threads. By the thread whose turn it is.
void run_on_onednn_threads(std::int64_t count, void (*work)(const void* context, std::int64_t index), const void* context);
template <class Work>
void run_on_onednn_threads(std::int64_t count, const Work& work) {
  run_on_onednn_threads(
      count, [](const void* context, std::int64_t index) { (*static_cast<const Work*>(context))(index); }, &work);
}

}  // namespace octile::cpu
