// SPDX-License-Identifier: Apache-2.0
// A weight resident on a GPU. The layout "row_major" is what cuBLASLt and ada_mma read.
#pragma once

#include "octile/kernels/cuda/driver.h"
#include "octile/kernels/family.h"

#include <cstdint>
#include <memory>
#include <string_view>

namespace octile::cuda {

inline constexpr std::string_view kRowMajor = "row_major";
inline constexpr std::int64_t kWeightPadding = 16;  // Bytes: rows start at multiples of it, as 16-byte loads need.

// Codes [n_padded, k_padded] e4m3, row-major, zero beyond n and k; scales [n_padded] fp32, zero beyond n. Both paddings are to
// multiples of 16, and the allocation is 256-byte aligned. A channel whose codes hold a NaN keeps its codes: NaN comes out.
struct CudaWeight final : PackedWeight {
  CudaWeight(const DeviceContext& device_context, std::int64_t rows, std::int64_t cols) noexcept;
  ~CudaWeight() override;
  CudaWeight(const CudaWeight&) = delete;
  CudaWeight& operator=(const CudaWeight&) = delete;

  std::int64_t n() const noexcept override { return n_; }
  std::int64_t k() const noexcept override { return k_; }
  std::int64_t bytes() const noexcept override { return allocated_bytes; }
  std::string_view layout() const noexcept override { return kRowMajor; }

  const DeviceContext* context;
  std::int64_t n_padded;
  std::int64_t k_padded;  // The row stride of the codes, too.
  CUdeviceptr codes = 0;
  CUdeviceptr scales = 0;
  std::int64_t allocated_bytes = 0;

 private:
  std::int64_t n_;
  std::int64_t k_;
};

// `weight` as a CudaWeight on the device of `context`; the Error says what came instead.
Expected<const CudaWeight*> as_cuda_weight(const PackedWeight& weight, const DeviceContext& context);

// Copies and pads. Scales of any of WeightSource's types and counts.
Expected<std::shared_ptr<PackedWeight>> pack_row_major(const DeviceContext& context, const WeightSource& source);

}  // namespace octile::cuda
