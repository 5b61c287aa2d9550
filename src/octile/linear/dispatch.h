// SPDX-License-Identifier: Apache-2.0
// The dispatcher: kernels prepared for every M up to a limit, found by binary search.
#pragma once

#include "octile/linear/choose.h"
#include "octile/linear/weight.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace octile {

// A kernel that is ready, with the weight it reads.
struct PreparedKernel {
  const KernelFamily* family = nullptr;  // nullptr: the engine's.
  TileConfig config;
  const PackedWeight* weight = nullptr;
  std::int64_t max_m = 0;
  std::unique_ptr<Kernel> kernel;
};

// Everything that run() needs for M in [1, max_m]; immutable once published.
struct Dispatch {
  std::int64_t max_m = 0;
  bool is_fallback = false;                    // Made by create(), not by prepare().
  std::vector<std::int64_t> starts;            // Ascending, the first is 1.
  std::vector<const PreparedKernel*> serving;  // For each interval.
  std::vector<Choice> choices;                 // For each interval, for explain().
  std::vector<bool> untuned;                   // For each interval: no entry of a table serves it.
  std::vector<std::unique_ptr<PreparedKernel>> kernels;

  const Dispatch* older = nullptr;  // What served before; kept, for calls and graphs that began with it.

  // Index of the interval that holds m. Precondition: 1 <= m <= max_m.
  std::size_t interval_of(std::int64_t m) const noexcept;
  // Precondition as above.
  const PreparedKernel& kernel_of(std::int64_t m) const noexcept { return *serving[interval_of(m)]; }
  // Workspace of the worst M up to m.
  std::int64_t workspace_bytes(std::int64_t m) const noexcept;
  // Workspace of a call with `rows` >= 1 rows: of its chunks of max_m and of the rest.
  std::int64_t call_bytes(std::int64_t rows) const noexcept;
};

// What a call looks like but for M: the trial run of each kernel is made of it.
struct CallShape {
  DType x_dtype = DType::bf16;
  bool raw = true;  // Raw activations; codes with their scales may come in any case.
  float static_scale = 0.0F;
  QuantizeOptions quantize;
  const float* bias = nullptr;  // On the device.
};

// Prepares every kernel that `plan` chooses up to max_m and runs each once. Where a choice's kernel cannot be prepared, or
// its weight layout was not packed, the baseline or a heuristic on a packed layout replaces it, and the choice says so.
// Errors: of the last kernel tried; of the baseline itself where the kill switch is off.
Expected<std::unique_ptr<Dispatch>> make_dispatch(const Plan& plan, const Fp8Weight::Impl& weight, const CallShape& call,
                                                  std::int64_t max_m);

}  // namespace octile
