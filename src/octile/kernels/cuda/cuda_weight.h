// SPDX-License-Identifier: Apache-2.0
// A weight resident on a GPU. The layout "row_major" is what every family on a GPU reads.
#pragma once

#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/tensor_map.h"
#include "octile/kernels/family.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace octile::cuda {

inline constexpr std::string_view kRowMajor = "row_major";
// Channels of one request of the copy engine: the heights that a weight keeps a map for, 128 bytes each; encoding one costs
// the host less than a microsecond.
inline constexpr std::array kWeightBoxRows = {8,   16,  24,  32,  40,  48,  56,  64,  72,  80,  88,
                                              96,  104, 112, 120, 128, 136, 144, 152, 160, 168, 176,
                                              184, 192, 200, 208, 216, 224, 232, 240, 248, 256};
inline constexpr std::int64_t kWeightPadding = 16;  // Elements: 16-byte loads and cuBLASLt need rows at multiples of it.

// `value` rounded up to a multiple of `multiple`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Codes [n_padded, k_padded] e4m3, row-major, zero beyond n and k; scales [n_padded] fp32, zero beyond n; both padded to
// multiples of kWeightPadding and 256-byte aligned. A channel whose codes hold a NaN keeps them: NaN comes out.
class CudaWeight final : public PackedWeight {
 public:
  CudaWeight(const DeviceContext& context, std::unique_ptr<CudaBuffer> memory, std::int64_t n, std::int64_t k) noexcept
      : context_(&context), memory_(std::move(memory)), n_(n), k_(k) {}

  std::int64_t n() const noexcept override { return n_; }
  std::int64_t k() const noexcept override { return k_; }
  std::int64_t bytes() const noexcept override { return memory_->bytes(); }
  std::string_view layout() const noexcept override { return kRowMajor; }

  const DeviceContext& context() const noexcept { return *context_; }
  std::int64_t n_padded() const noexcept { return round_up(n_, kWeightPadding); }
  std::int64_t k_padded() const noexcept { return round_up(k_, kWeightPadding); }  // The row stride of the codes.
  CUdeviceptr codes() const noexcept { return memory_->pointer(); }
  // The codes [n, k] in boxes of kWeightBoxRows[i] x 128 bytes. All zero before sm_90 and with drivers that know no maps.
  using RowBoxes = std::array<TensorMap, kWeightBoxRows.size()>;
  const TensorMap& row_boxes(std::size_t i) const noexcept { return row_boxes_[i]; }
  void set_row_boxes(const RowBoxes& boxes) noexcept { row_boxes_ = boxes; }
  CUdeviceptr scales() const noexcept { return codes() + static_cast<CUdeviceptr>(round_up(n_padded() * k_padded(), 256)); }

 private:
  const DeviceContext* context_;
  std::unique_ptr<CudaBuffer> memory_;
  std::int64_t n_;
  std::int64_t k_;
  RowBoxes row_boxes_ = {};
};

// `weight` as a CudaWeight on the device of `context`; the Error (invalid_argument) says what came instead.
Expected<const CudaWeight*> as_cuda_weight(const PackedWeight& weight, const DeviceContext& context);

// Backend::update() for the memory of `weight`. What lies beyond n and k stays zero.
Expected<void> update_row_major(const CudaWeight& weight, const WeightSource& source, SourceMemory memory, CUstream stream);

// Copies and pads `source`, which the caller has validated. Errors: out_of_memory, failed.
Expected<std::shared_ptr<CudaWeight>> pack_row_major(const DeviceContext& context, const WeightSource& source);

}  // namespace octile::cuda
