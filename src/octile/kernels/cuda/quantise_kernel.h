// SPDX-License-Identifier: Apache-2.0
// Activations on a GPU: raw rows quantised by our kernel, or given codes brought into the form the products read.
#pragma once

#include "octile/kernels/cuda/cuda_module.h"
#include "octile/kernels/family.h"

#include <cstdint>

namespace octile::cuda {

// e4m3 codes [m, k] in device memory as every product reads them: base and row stride multiples of 16 bytes.
struct DeviceCodes {
  CUdeviceptr codes = 0;
  std::int64_t stride = 0;  // Bytes between rows.
  CUdeviceptr scales = 0;   // [m] fp32.
  bool launched = false;    // Whether a kernel was enqueued to make them; it triggers dependents early (PDL).
  bool behind_producer =
      false;  // Whether the kernel just before is a producer of ours, which triggers dependents early, too.
};

// Bytes between rows of codes that QuantiseKernel makes: K rounded up to a multiple of 16, the bytes from K on zero.
std::int64_t codes_stride(std::int64_t k) noexcept;

// The quantiser for one device and K, for bf16 and fp16 rows, and the copy of codes whose rows don't start at multiples of
// 16 bytes.
class QuantiseKernel {
 public:
  // Slow: compiles (or takes from the cache) and loads.
  static Expected<QuantiseKernel> prepare(const DeviceContext& context, std::int64_t k);

  // Device bytes run() needs for up to `m` rows, a multiple of 256.
  std::int64_t workspace_bytes(std::int64_t m) const noexcept;

  // Enqueues what `activation` needs on `stream` and says where the codes will be. `workspace`: 256-byte aligned,
  // workspace_bytes(rows). `pdl`: the kernel may start before the one before it has ended (it waits before its first read).
  // The device's context must be current. M = 0 enqueues nothing. Errors: invalid_argument for views and options that break
  // the contract.
  Expected<DeviceCodes> run(const Activation& activation, void* workspace, CUstream stream, bool pdl) const;

 private:
  Expected<void> quantise(const Activation& activation, const DeviceCodes& target, CUstream stream, bool pdl) const;
  Expected<void> copy(const Activation& activation, const DeviceCodes& target, CUstream stream, bool pdl) const;

  // Few rows want a row's latency short: many threads a row. Many rows want bytes in flight: few threads with several
  // vectors each.
  struct Variant {
    LoadedKernel bf16;
    LoadedKernel fp16;
    unsigned threads = 0;
  };
  static Expected<Variant> load_variant(const DeviceContext& context, std::int64_t k, std::int64_t most_threads);

  Variant few_rows_;
  Variant many_rows_;
  LoadedKernel copy_;
  std::int64_t fewest_many_ = 0;  // Rows from which many_rows_ serves.
  std::int64_t k_ = 0;
};

}  // namespace octile::cuda
