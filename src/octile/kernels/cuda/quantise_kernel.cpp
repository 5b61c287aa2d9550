// SPDX-License-Identifier: Apache-2.0
// Launches of quantise.cuh.
#include "octile/kernels/cuda/quantise_kernel.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/quant/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace octile::cuda {
namespace {

// QuantiseParams and CopyCodesParams of quantise.cuh.
struct QuantiseParams {
  CUdeviceptr x;
  CUdeviceptr codes;
  CUdeviceptr scales;
  std::int64_t k;
  std::int64_t x_stride;
  std::int64_t codes_stride;
  std::int64_t codes_width;
  float floor;
  float upper_bound;
  float static_scale;
  std::uint32_t reciprocal;
  std::uint32_t x_aligned;
  std::uint32_t codes_aligned;
};
static_assert(sizeof(QuantiseParams) == 80);

struct CopyCodesParams {
  CUdeviceptr source;
  CUdeviceptr target;
  std::int64_t k;
  std::int64_t source_stride;
  std::int64_t width;
};
static_assert(sizeof(CopyCodesParams) == 40);

constexpr std::int64_t kVectorElements = 8;
constexpr std::int64_t kThreadsForFewRows = 512;
constexpr std::int64_t kThreadsForManyRows = 128;
constexpr unsigned kCopyThreads = 256;
constexpr std::int64_t kMaxVectors = 8;  // A thread keeps up to 64 elements; longer rows are read twice.
constexpr std::int64_t kMaxRows = std::numeric_limits<std::int32_t>::max();  // Blocks of a grid along x.

Expected<LoadedKernel> load(const DeviceContext& context, std::int64_t threads, std::int64_t vectors, int in_type,
                            const char* kernel) {
  CompileRequest request;
  request.source = "quantise.cuh";
  request.defines = {format("THREADS={}", threads), format("VECTORS={}", vectors), format("IN_TYPE={}", in_type)};
  request.kernel = kernel;
  return compile_and_load(context, std::move(request));
}

bool is_multiple(std::int64_t value, std::int64_t of) { return value % of == 0; }
bool is_aligned(CUdeviceptr pointer, std::uint64_t to) { return pointer % to == 0; }

}  // namespace

std::int64_t codes_stride(std::int64_t k) noexcept { return round_up(k, kWeightPadding); }

Expected<QuantiseKernel::Variant> QuantiseKernel::load_variant(const DeviceContext& context, std::int64_t k,
                                                               std::int64_t most_threads) {
  const std::int64_t vectors_a_row = (codes_stride(k) + kVectorElements - 1) / kVectorElements;
  const auto enough = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(vectors_a_row)));
  // As many threads as a row has vectors within [32, most_threads], more where that leaves a thread too many vectors to
  // keep.
  std::int64_t threads = std::clamp<std::int64_t>(enough, 32, most_threads);
  while (threads < kThreadsForFewRows && vectors_a_row > threads * kMaxVectors) {
    threads *= 2;
  }
  const std::int64_t vectors = std::clamp<std::int64_t>((vectors_a_row + threads - 1) / threads, 1, kMaxVectors);
  Variant variant;
  variant.threads = static_cast<unsigned>(threads);
  for (const int in_type : {0, 1}) {
    auto loaded = load(context, threads, vectors, in_type, "octile_quantise");
    if (!loaded) {
      return loaded.error();
    }
    (in_type == 0 ? variant.bf16 : variant.fp16) = std::move(*loaded);
  }
  return variant;
}

Expected<QuantiseKernel> QuantiseKernel::prepare(const DeviceContext& context, std::int64_t k) {
  QuantiseKernel result;
  result.k_ = k;
  result.fewest_many_ = std::int64_t{2} * context.info.sm_count;
  auto few_rows = load_variant(context, k, kThreadsForFewRows);
  if (!few_rows) {
    return few_rows.error();
  }
  result.few_rows_ = std::move(*few_rows);
  auto many_rows = load_variant(context, k, kThreadsForManyRows);
  if (!many_rows) {
    return many_rows.error();
  }
  result.many_rows_ = std::move(*many_rows);
  auto copy = load(context, kCopyThreads, 1, 0, "octile_copy_codes");
  if (!copy) {
    return copy.error();
  }
  result.copy_ = std::move(*copy);
  return result;
}

std::int64_t QuantiseKernel::workspace_bytes(std::int64_t m) const noexcept {
  return round_up(m * codes_stride(k_), 256) + round_up(m * static_cast<std::int64_t>(sizeof(float)), 256);
}

Expected<DeviceCodes> QuantiseKernel::run(const Activation& activation, void* workspace, CUstream stream, bool pdl) const {
  const ConstMatrixView& x = activation.x;
  const bool has_codes = activation.scales != nullptr;
  if (!has_codes && x.dtype != DType::bf16 && x.dtype != DType::fp16) {
    return make_error(ErrorCode::invalid_argument, "activations on a GPU: want bf16 or fp16, got {}", to_string(x.dtype));
  }
  if (auto ok = has_codes ? check_codes_view(x, k_) : check_activation_view(x, k_); !ok) {
    return ok.error();
  }
  if (x.rows > kMaxRows) {
    return make_error(ErrorCode::invalid_argument, "activations: want at most {} rows a call, got {}", kMaxRows, x.rows);
  }
  DeviceCodes target;
  const CUdeviceptr memory = to_device_pointer(workspace);
  target.codes = memory;
  target.stride = codes_stride(k_);
  target.scales = memory + static_cast<CUdeviceptr>(round_up(x.rows * target.stride, 256));
  if (x.rows == 0) {
    return target;
  }
  if (has_codes) {
    target.scales = to_device_pointer(activation.scales);
    const CUdeviceptr source = to_device_pointer(x.data);
    const bool in_form = is_aligned(source, kWeightPadding) && (x.rows == 1 || is_multiple(x.row_stride, kWeightPadding));
    if (in_form) {
      target.codes = source;
      target.stride = x.rows == 1 ? codes_stride(k_) : x.row_stride;
      target.behind_producer = activation.behind_producer;
      return target;
    }
    if (auto ok = copy(activation, target, stream, pdl); !ok) {
      return ok.error();
    }
  } else if (auto ok = quantise(activation, target, stream, pdl); !ok) {
    return ok.error();
  }
  target.launched = true;
  return target;
}

Expected<void> QuantiseKernel::quantise(const Activation& activation, const DeviceCodes& target, CUstream stream,
                                        bool pdl) const {
  if (activation.static_scale != 0.0F) {
    if (!std::isfinite(activation.static_scale) || activation.static_scale < 0.0F) {
      return make_error(ErrorCode::invalid_argument,
                        "static activation scale: want a finite value > 0 (0: per token), got {}", activation.static_scale);
    }
  } else if (auto ok = check_quantize_options(activation.quantize); !ok) {
    return ok;
  }
  const ConstMatrixView& x = activation.x;
  QuantiseParams params = {};
  params.x = to_device_pointer(x.data);
  params.codes = target.codes;
  params.scales = target.scales;
  params.k = k_;
  params.x_stride = x.rows == 1 ? k_ : x.row_stride;
  params.codes_stride = target.stride;
  params.codes_width = target.stride;
  params.floor = activation.quantize.floor;
  params.upper_bound = activation.quantize.upper_bound;
  params.static_scale = activation.static_scale;
  // A static scale is always divided by: the reciprocal belongs to the engines' per-token kernels.
  params.reciprocal = activation.static_scale == 0.0F && activation.quantize.division == Division::reciprocal ? 1 : 0;
  params.x_aligned = is_aligned(params.x, 16) && (x.rows == 1 || is_multiple(x.row_stride, kVectorElements)) ? 1 : 0;
  params.codes_aligned = 1;
  LaunchShape shape;
  shape.grid = {static_cast<unsigned>(x.rows), 1, 1};
  const Variant& variant = x.rows < fewest_many_ ? few_rows_ : many_rows_;
  shape.block = {variant.threads, 1, 1};
  shape.pdl = pdl;
  return launch_with(x.dtype == DType::bf16 ? variant.bf16 : variant.fp16, shape, stream, params);
}

Expected<void> QuantiseKernel::copy(const Activation& activation, const DeviceCodes& target, CUstream stream,
                                    bool pdl) const {
  CopyCodesParams params = {};
  params.source = to_device_pointer(activation.x.data);
  params.target = target.codes;
  params.k = k_;
  params.source_stride = activation.x.rows == 1 ? k_ : activation.x.row_stride;
  params.width = target.stride;
  LaunchShape shape;
  shape.grid = {static_cast<unsigned>(activation.x.rows), 1, 1};
  shape.block = {kCopyThreads, 1, 1};
  shape.pdl = pdl;
  return launch_with(copy_, shape, stream, params);
}

}  // namespace octile::cuda
