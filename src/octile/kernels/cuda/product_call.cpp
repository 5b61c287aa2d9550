// SPDX-License-Identifier: Apache-2.0
#include "octile/kernels/cuda/product_call.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/known_devices.h"
#include "octile/quant/quantize.h"

namespace octile::cuda {

Expected<const CudaWeight*> check_product_call(std::string_view family, const DeviceContext& context, const Problem& problem,
                                               const PackedWeight& weight, const LaunchArgs& args,
                                               std::int64_t workspace_bytes) {
  const auto ours = as_cuda_weight(weight, context);
  if (!ours) {
    return ours.error();
  }
  if (weight.n() != problem.n || weight.k() != problem.k) {
    return make_error(ErrorCode::invalid_argument, "{}: prepared for a weight [{}, {}], got [{}, {}]", family, problem.n,
                      problem.k, weight.n(), weight.k());
  }
  const std::int64_t m = args.activation.x.rows;
  if (auto ok = check_output_view(args.y, m, problem.n, problem.out_dtype); !ok) {
    return ok.error();
  }
  if (args.workspace_bytes < workspace_bytes) {
    return make_error(ErrorCode::invalid_argument, "{}: want a workspace of {} bytes for M = {}, got {}", family,
                      workspace_bytes, m, args.workspace_bytes);
  }
  if (m > 0 && to_device_pointer(args.workspace) % 256 != 0) {
    return make_error(ErrorCode::invalid_argument, "{}: want a 256-byte aligned workspace, got {}", family, args.workspace);
  }
  return *ours;
}

OutputRows output_rows(const MatrixView& y) noexcept {
  const std::int64_t stride = y.rows == 1 ? y.cols : y.row_stride;
  const auto quad_bytes = static_cast<CUdeviceptr>(4 * size_of(y.dtype));
  const bool aligned = to_device_pointer(y.data) % quad_bytes == 0 && (y.rows == 1 || stride % 4 == 0);
  return {stride, aligned ? 1U : 0U};
}

PdlMode pdl_mode_on(const DeviceInfo& device, PdlMode wanted) noexcept {
  constexpr int kOldestCapability = 90;
  return compute_capability(device.arch) >= kOldestCapability ? wanted : PdlMode::off;
}

bool product_starts_early(PdlMode mode, const DeviceCodes& codes) noexcept {
  return mode == PdlMode::full || (mode == PdlMode::consume && codes.launched);
}

}  // namespace octile::cuda
