// SPDX-License-Identifier: Apache-2.0
// What the calls of our own product kernels have in common.
#pragma once

#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/quantise_kernel.h"
#include "octile/kernels/cuda/tensor_map.h"
#include "octile/kernels/family.h"

#include <cstdint>
#include <string_view>

namespace octile::cuda {

// The weight of a call that fits what was prepared: weight on this device, in `layout` and of the problem's shape, output
// [m, n] of its type, a 256-byte aligned workspace of `workspace_bytes`. Errors (invalid_argument) print what was wanted and
// what came.
Expected<const CudaWeight*> check_product_call(std::string_view family, const DeviceContext& context, const Problem& problem,
                                               const PackedWeight& weight, const LaunchArgs& args,
                                               std::int64_t workspace_bytes, std::string_view layout = kRowMajor);

// The same for a vendor's kernel, which was prepared for up to `max_m` rows, and with or without a bias.
Expected<const CudaWeight*> check_vendor_call(std::string_view family, const DeviceContext& context, const Problem& problem,
                                              std::int64_t max_m, const PackedWeight& weight, const LaunchArgs& args,
                                              std::int64_t workspace_bytes);

// `codes` as QuantiseKernel::run() left them, for a product that reads whole vectors of 16 codes: a caller's rows whose K is
// no multiple of 16 go on with whatever lies behind them, NaN perhaps, and are copied to `workspace` (where the quantiser
// would have put them) with zeros behind. Enqueues a fill and a copy, or nothing. The device's context must be current.
Expected<DeviceCodes> with_zero_tail(const DeviceContext& context, const Activation& activation, const DeviceCodes& codes,
                                     std::int64_t k, void* workspace, CUstream stream);

// Elements between rows of y, and whether `neighbours` outputs of a row can be stored at once.
struct OutputRows {
  std::int64_t stride = 0;
  std::uint32_t aligned = 0;
};
OutputRows output_rows(const MatrixView& y, int neighbours = 4) noexcept;

// The encoder of the device's driver; an empty one where kernels are only recorded (CompileRecorder): there may be no driver
// then, and what was prepared is never run. Errors (unavailable): of find_tensor_map_encoder().
Expected<TensorMapEncoder> tensor_map_encoder_for(const DeviceContext& context);

// Whether the product starts before the kernel before it has ended, requesting weights at once. Behind our own quantiser
// or producer nothing can have written the weights; behind a foreign kernel only the caller knows.
bool product_starts_early(Pdl mode, const DeviceCodes& codes) noexcept;

// What of `mode` a call may do: nothing where the weight may still be being written.
constexpr Pdl allowed_pdl(Pdl mode, const LaunchArgs& args) noexcept { return args.fenced ? Pdl::off : mode; }

}  // namespace octile::cuda
