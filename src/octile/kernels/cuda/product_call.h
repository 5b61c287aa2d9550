// SPDX-License-Identifier: Apache-2.0
// What the calls of our own product kernels have in common.
#pragma once

#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/pdl_mode.h"
#include "octile/kernels/cuda/quantise_kernel.h"
#include "octile/kernels/family.h"

#include <cstdint>
#include <string_view>

namespace octile::cuda {

// The weight of a call that fits what was prepared: weight on this device and of the problem's shape, output [m, n] of its
// type, a 256-byte aligned workspace of `workspace_bytes`. Errors (invalid_argument) print what was wanted and what came.
Expected<const CudaWeight*> check_product_call(std::string_view family, const DeviceContext& context, const Problem& problem,
                                               const PackedWeight& weight, const LaunchArgs& args,
                                               std::int64_t workspace_bytes);

// Elements between rows of y, and whether four neighbouring outputs can be stored at once.
struct OutputRows {
  std::int64_t stride = 0;
  std::uint32_t aligned = 0;
};
OutputRows output_rows(const MatrixView& y) noexcept;

// `wanted`, or off where the device has no programmatic dependent launch.
PdlMode pdl_mode_on(const DeviceInfo& device, PdlMode wanted) noexcept;
// Whether the product starts before the kernel before it has ended, requesting weights at once. Behind our own quantiser
// nothing can have written the weights; behind a foreign kernel only the caller knows.
bool product_starts_early(PdlMode mode, const DeviceCodes& codes) noexcept;

}  // namespace octile::cuda
