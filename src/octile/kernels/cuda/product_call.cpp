// SPDX-License-Identifier: Apache-2.0
#include "octile/kernels/cuda/product_call.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/warmup.h"
#include "octile/quant/quantize.h"

namespace octile::cuda {

Expected<const CudaWeight*> check_product_call(std::string_view family, const DeviceContext& context, const Problem& problem,
                                               const PackedWeight& weight, const LaunchArgs& args,
                                               std::int64_t workspace_bytes, std::string_view layout) {
  const auto ours = as_cuda_weight(weight, context);
  if (!ours) {
    return ours.error();
  }
  if (weight.layout() != layout) {
    return make_error(ErrorCode::invalid_argument, "{}: want a weight in layout {}, got layout {}", family, layout,
                      weight.layout());
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

Expected<const CudaWeight*> check_vendor_call(std::string_view family, const DeviceContext& context, const Problem& problem,
                                              std::int64_t max_m, const PackedWeight& weight, const LaunchArgs& args,
                                              std::int64_t workspace_bytes) {
  const std::int64_t m = args.activation.x.rows;
  if (m > max_m) {
    return make_error(ErrorCode::not_prepared, "{}: prepared for up to {} rows, got {}", family, max_m, m);
  }
  if ((args.bias != nullptr) != problem.bias) {
    return make_error(ErrorCode::invalid_argument, "{}: prepared {} a bias, got {}", family,
                      problem.bias ? "for" : "without", args.bias != nullptr ? "one" : "none");
  }
  return check_product_call(family, context, problem, weight, args, m == 0 ? 0 : workspace_bytes);
}

Expected<DeviceCodes> with_zero_tail(const DeviceContext& context, const Activation& activation, const DeviceCodes& codes,
                                     std::int64_t k, void* workspace, CUstream stream) {
  const std::int64_t rows = activation.x.rows;
  if (activation.scales == nullptr || codes.launched || k % kWeightPadding == 0 || rows == 0) {
    return codes;
  }
  DeviceCodes copied = codes;
  copied.codes = to_device_pointer(workspace);
  copied.stride = codes_stride(k);
  const Driver& driver = *context.driver;
  if (const CUresult result =
          driver.memset_d8_async(copied.codes, 0, static_cast<std::size_t>(rows * copied.stride), stream);
      result != CUDA_SUCCESS) {
    return device_error(context, result, "zeroing codes behind K");
  }
  if (const CUresult result =
          copy_rows_async(driver, copied.codes, copied.stride, codes.codes, codes.stride, k, rows, stream);
      result != CUDA_SUCCESS) {
    return device_error(context, result, "copying codes to rows of whole vectors");
  }
  return copied;
}

OutputRows output_rows(const MatrixView& y, int neighbours) noexcept {
  const std::int64_t stride = y.rows == 1 ? y.cols : y.row_stride;
  const auto bytes = static_cast<CUdeviceptr>(neighbours * size_of(y.dtype));
  const bool aligned = to_device_pointer(y.data) % bytes == 0 && (y.rows == 1 || stride % neighbours == 0);
  return {stride, aligned ? 1U : 0U};
}

Expected<TensorMapEncoder> tensor_map_encoder_for(const DeviceContext& context) {
  return CompileRecorder::active() != nullptr ? TensorMapEncoder{} : find_tensor_map_encoder(context);
}

bool product_starts_early(Pdl mode, const DeviceCodes& codes) noexcept {
  return mode == Pdl::full || (mode == Pdl::consume && (codes.launched || codes.behind_producer));
}

}  // namespace octile::cuda
