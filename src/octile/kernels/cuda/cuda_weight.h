// SPDX-License-Identifier: Apache-2.0
// A weight resident on a GPU. The layout "row_major" is what every family on a GPU reads; "slab64" (slab64.h) is for our own
// on Hopper.
#pragma once

#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/slab64.h"
#include "octile/kernels/cuda/tensor_map.h"
#include "octile/kernels/family.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

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

// The layout that a kernel of `problem` reads in families that read both.
constexpr std::string_view hopper_layout(const Problem& problem) noexcept {
  return problem.layout == WeightLayout::slab64 ? kSlab64 : kRowMajor;
}

// Codes [n_padded, k_padded] e4m3, row-major with zeros beyond n and k, or [n, k] in slabs; scales [n_padded] fp32, zero
// beyond n; both padded to multiples of kWeightPadding and 256-byte aligned. A channel whose codes hold a NaN keeps them:
// NaN comes out.
class CudaWeight final : public PackedWeight {
 public:
  CudaWeight(const DeviceContext& context, std::string_view layout, std::unique_ptr<CudaBuffer> memory, std::int64_t n,
             std::int64_t k) noexcept
      : context_(&context), layout_(layout), memory_(std::move(memory)), n_(n), k_(k) {}

  std::int64_t n() const noexcept override { return n_; }
  std::int64_t k() const noexcept override { return k_; }
  std::int64_t bytes() const noexcept override { return memory_->bytes(); }
  std::string_view layout() const noexcept override { return layout_; }

  const DeviceContext& context() const noexcept { return *context_; }
  std::int64_t n_padded() const noexcept { return round_up(n_, kWeightPadding); }
  std::int64_t k_padded() const noexcept { return round_up(k_, kWeightPadding); }  // The row stride of the codes.
  CUdeviceptr codes() const noexcept { return memory_->pointer(); }
  // The codes in boxes: row-major in those of kWeightBoxRows[i] x 128 bytes, slabs in those of slab_box(i). All zero before
  // sm_90 and with drivers that know no maps.
  const TensorMap& box(std::size_t i) const noexcept { return boxes_[i]; }
  void set_boxes(std::vector<TensorMap> boxes) noexcept { boxes_ = std::move(boxes); }
  // Of a weight in slabs: what fills it.
  const LoadedKernel& rows_to_slabs() const noexcept { return rows_to_slabs_; }
  void set_rows_to_slabs(LoadedKernel kernel) noexcept { rows_to_slabs_ = std::move(kernel); }
  CUdeviceptr scales() const noexcept { return codes() + static_cast<CUdeviceptr>(round_up(n_padded() * k_padded(), 256)); }

 private:
  const DeviceContext* context_;
  std::string_view layout_;  // kRowMajor or kSlab64.
  std::unique_ptr<CudaBuffer> memory_;
  std::int64_t n_;
  std::int64_t k_;
  std::vector<TensorMap> boxes_;
  LoadedKernel rows_to_slabs_;
};

// `weight` as a CudaWeight on the device of `context`; the Error (invalid_argument) says what came instead.
Expected<const CudaWeight*> as_cuda_weight(const PackedWeight& weight, const DeviceContext& context);

// Backend::update() for the memory of `weight`. What lies beyond n and k stays zero.
Expected<void> update_weight(const CudaWeight& weight, const WeightSource& source, SourceMemory memory, CUstream stream);
// Backend::unpack().
Expected<void> unpack_weight(const CudaWeight& weight, const UnpackTarget& target, CUstream stream);

// Copies and pads `source`, which the caller has validated. Errors: out_of_memory, failed.
Expected<std::shared_ptr<CudaWeight>> pack_row_major(const DeviceContext& context, const WeightSource& source);
// The same in slabs, by way of a buffer of a few of them that is freed at the end. Errors: invalid_argument for a shape that
// has no whole slabs, and of load_rows_to_slabs().
Expected<std::shared_ptr<CudaWeight>> pack_slab64(const DeviceContext& context, const WeightSource& source);

}  // namespace octile::cuda
