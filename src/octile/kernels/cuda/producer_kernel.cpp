// SPDX-License-Identifier: Apache-2.0
// Launches of producers.cuh.
#include "octile/kernels/cuda/producer_kernel.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/warmup.h"
#include "octile/kernels/known_devices.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

namespace octile::cuda {
namespace {

// QuantiseRule and ProducerParams of quantise_row.cuh and producers.cuh.
struct QuantiseRule {
  float floor;
  float upper_bound;
  float static_scale;
  std::uint32_t reciprocal;
};
struct ProducerParams {
  CUdeviceptr x;
  CUdeviceptr gamma;
  CUdeviceptr residual_in;
  CUdeviceptr residual_out;
  CUdeviceptr out;
  CUdeviceptr scales;
  std::int64_t x_stride;
  std::int64_t residual_in_stride;
  std::int64_t residual_out_stride;
  std::int64_t out_stride;
  QuantiseRule rule;
  float epsilon;
  float inverse_k;
  std::uint32_t k;
  std::uint32_t x_aligned;
  std::uint32_t residual_in_aligned;
  std::uint32_t residual_out_aligned;
  std::uint32_t out_aligned;
  std::uint32_t reserved;
};
static_assert(sizeof(ProducerParams) == 128);

constexpr std::int64_t kVectorElements = 8;
constexpr std::int64_t kMostKept = 8;
constexpr std::int64_t kPeriod = 512;  // Vectors after which RMSNorm's order of additions begins anew.
constexpr std::int64_t kMostThreads = 512;
constexpr std::int64_t kMostCluster = 8;
constexpr std::int64_t kFewestOfCluster = 64;  // Vectors that make a block of a cluster worth while.
constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();

std::int64_t vectors_of(std::int64_t k) { return (k + kVectorElements - 1) / kVectorElements; }
std::int64_t divide_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }
unsigned to_unsigned(std::int64_t value) { return static_cast<unsigned>(value); }

// RMSNorm: 128, 256 or 512 threads, each with whole periods.
ProducerLayout norm_layout(std::int64_t vectors, std::int64_t threads) {
  const std::int64_t local = kPeriod / threads;
  const std::int64_t kept = std::min(local * divide_up(vectors, kPeriod), kMostKept);
  return {to_unsigned(threads), 1, to_unsigned(kept)};
}

// SwiGLU: as many threads of `cluster` blocks as a row has vectors, within the limits.
ProducerLayout swiglu_layout(std::int64_t vectors, std::int64_t cluster, std::int64_t most_threads) {
  const std::int64_t of_block = divide_up(vectors, cluster);
  const std::int64_t threads = std::clamp<std::int64_t>(round_up(of_block, 32), 32, most_threads);
  const std::int64_t kept = std::min(divide_up(of_block, threads), kMostKept);
  return {to_unsigned(threads), to_unsigned(cluster), to_unsigned(kept)};
}

bool has_clusters(const DeviceInfo& device) { return compute_capability(device.arch) >= 90; }

// Where a matrix begins and whether it and all its rows do so at multiples of `bytes`.
struct Rows {
  CUdeviceptr data = 0;
  std::int64_t stride = 0;
  bool aligned = true;
};
Rows rows_of(const void* data, DType dtype, std::int64_t rows, std::int64_t row_stride, std::uint64_t bytes) {
  const CUdeviceptr pointer = to_device_pointer(data);
  const auto stride_bytes = static_cast<std::uint64_t>(row_stride * size_of(dtype));
  return {pointer, row_stride, pointer % bytes == 0 && (rows == 1 || stride_bytes % bytes == 0)};
}

class CudaProducer final : public Producer {
 public:
  CudaProducer(const DeviceContext& context, const ProducerSpec& spec, const ProducerLayouts& layouts)
      : context_(&context), spec_(spec), layouts_(layouts) {
    spec_.gamma = nullptr;
    starts_early_ = pdl_on(context.info, spec.pdl) == Pdl::full;
    fewest_many_ = std::int64_t{2} * context.info.sm_count;
  }

  Expected<void> load() {
    for (const auto& [layout, kernel] :
         {std::pair{&layouts_.few, &few_}, std::pair{&layouts_.many, &many_}, std::pair{&layouts_.any, &any_}}) {
      auto loaded = compile_and_load(*context_, producer_request(spec_, *layout));
      if (!loaded) {
        return loaded.error();
      }
      *kernel = std::move(*loaded);
    }
    return {};
  }

  // gamma[k] of the type, with zeros behind it up to a whole vector.
  Expected<void> upload_gamma(const void* gamma) {
    if (CompileRecorder::active() != nullptr) {  // A kernel that is only recorded has no memory.
      return {};
    }
    const std::int64_t element = size_of(spec_.dtype);
    std::vector<std::byte> padded(static_cast<std::size_t>(round_up(spec_.k, kVectorElements) * element));
    std::memcpy(padded.data(), gamma, static_cast<std::size_t>(spec_.k * element));
    auto memory = allocate_device(*context_, static_cast<std::int64_t>(padded.size()));
    if (!memory) {
      return memory.error();
    }
    gamma_ = std::move(*memory);
    return upload_bytes(*context_, gamma_->pointer(), padded.data(), static_cast<std::int64_t>(padded.size()));
  }

  Expected<void> run(const ProducerCall& call) const override {
    const std::int64_t m = call.x.rows;
    if (m == 0) {
      return {};
    }
    const Rows x = rows_of(call.x.data, call.x.dtype, m, call.x.row_stride, 16);
    const Rows out = rows_of(call.out.data, call.out.dtype, m, call.out.row_stride, call.quantized ? 8 : 16);
    Rows in;
    Rows sum;
    if (call.adds) {
      in = rows_of(call.residual_in.data, spec_.dtype, m, call.residual_in.row_stride, 16);
      sum = rows_of(call.residual_out.data, spec_.dtype, m, call.residual_out.row_stride, 16);
    }
    ProducerParams params = {};
    params.x = x.data;
    params.x_stride = x.stride;
    // SwiGLU's second half begins at k.
    params.x_aligned = x.aligned && (spec_.kind == ProducerKind::rms_norm || spec_.k % kVectorElements == 0) ? 1 : 0;
    params.gamma = gamma_ == nullptr ? 0 : gamma_->pointer();
    params.residual_in = in.data;
    params.residual_in_stride = in.stride;
    params.residual_in_aligned = in.aligned ? 1 : 0;
    params.residual_out = sum.data;
    params.residual_out_stride = sum.stride;
    params.residual_out_aligned = sum.aligned ? 1 : 0;
    params.out = out.data;
    params.out_stride = out.stride;
    params.out_aligned = out.aligned ? 1 : 0;
    params.scales = call.quantized ? to_device_pointer(call.scales) : 0;
    params.rule = {spec_.quantize.floor, spec_.quantize.upper_bound, spec_.static_scale,
                   // A static scale is always divided by: the reciprocal belongs to the engines' per-token kernels.
                   spec_.static_scale == 0.0F && spec_.quantize.division == Division::reciprocal ? 1U : 0U};
    params.epsilon = spec_.epsilon;
    params.inverse_k = 1.0F / static_cast<float>(spec_.k);
    params.k = static_cast<std::uint32_t>(spec_.k);
    const bool all_aligned = params.x_aligned != 0 && in.aligned && sum.aligned && out.aligned;
    return enqueue(m, all_aligned, params, static_cast<CUstream>(call.stream));
  }

 private:
  Expected<void> enqueue(std::int64_t m, bool all_aligned, const ProducerParams& params, CUstream stream) const {
    const bool few = m < fewest_many_;
    const ProducerLayout& kept = few ? layouts_.few : layouts_.many;
    const bool keeps = all_aligned && kept.keeps(spec_.k);
    const ProducerLayout& layout = keeps ? kept : layouts_.any;
    if (m > kMostBlocks / layout.cluster) {
      return make_error(ErrorCode::invalid_argument, "{}: want at most {} rows a call, got {}", to_string(spec_.kind),
                        kMostBlocks / layout.cluster, m);
    }
    LaunchShape shape;
    shape.grid = {static_cast<unsigned>(m) * layout.cluster, 1, 1};
    shape.block = {layout.threads, 1, 1};
    shape.cluster = {layout.cluster, 1, 1};
    shape.pdl = starts_early_;
    const CurrentContext current(*context_);
    if (auto made = current.made(); !made) {
      return made;
    }
    return launch_with(!keeps ? any_ : few ? few_ : many_, shape, stream, params);
  }

  const DeviceContext* context_;
  ProducerSpec spec_;
  ProducerLayouts layouts_;
  bool starts_early_ = false;
  std::int64_t fewest_many_ = 0;  // Rows from which layouts_.many serves.
  LoadedKernel few_;
  LoadedKernel many_;
  LoadedKernel any_;
  std::unique_ptr<CudaBuffer> gamma_;
};

}  // namespace

ProducerLayouts producer_layouts(const DeviceInfo& device, ProducerKind kind, std::int64_t k) {
  const std::int64_t vectors = vectors_of(k);
  ProducerLayouts layouts;
  if (kind == ProducerKind::rms_norm) {
    const auto enough = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(vectors)));
    layouts.few = norm_layout(vectors, std::clamp<std::int64_t>(enough, 128, kMostThreads));
    std::int64_t threads = 128;
    while (threads < kMostThreads && !norm_layout(vectors, threads).keeps(vectors * kVectorElements)) {
      threads *= 2;
    }
    layouts.many = norm_layout(vectors, threads);
    layouts.any = {kMostThreads, 1, 0};
    return layouts;
  }
  const auto worth = static_cast<std::uint64_t>(std::max<std::int64_t>(vectors / kFewestOfCluster, 1));
  const std::int64_t cluster = has_clusters(device) ? std::min<std::int64_t>(std::bit_floor(worth), kMostCluster) : 1;
  layouts.few = swiglu_layout(vectors, cluster, kMostThreads);
  std::int64_t threads = 128;
  while (threads < kMostThreads && vectors > threads * kMostKept) {
    threads *= 2;
  }
  layouts.many = swiglu_layout(vectors, 1, threads);
  layouts.any = {256, 1, 0};
  return layouts;
}

CompileRequest producer_request(const ProducerSpec& spec, const ProducerLayout& layout) {
  const bool norm = spec.kind == ProducerKind::rms_norm;
  CompileRequest request;
  request.source = "producers.cuh";
  request.defines = {format("KIND={}", norm ? 0 : 1), format("THREADS={}", layout.threads),
                     format("CLUSTER={}", layout.cluster), format("KEPT={}", layout.kept),
                     format("IN_TYPE={}", spec.dtype == DType::bf16 ? 0 : 1)};
  request.kernel = norm ? "octile_rms_norm" : "octile_swiglu";
  return request;
}

Expected<std::unique_ptr<Producer>> prepare_producer(const DeviceContext& context, const ProducerSpec& spec) {
  return prepare_producer(context, spec, producer_layouts(context.info, spec.kind, spec.k));
}

Expected<std::unique_ptr<Producer>> prepare_producer(const DeviceContext& context, const ProducerSpec& spec,
                                                     const ProducerLayouts& layouts) {
  auto producer = std::make_unique<CudaProducer>(context, spec, layouts);
  if (auto loaded = producer->load(); !loaded) {
    return loaded.error();
  }
  if (spec.kind == ProducerKind::rms_norm) {
    if (auto uploaded = producer->upload_gamma(spec.gamma); !uploaded) {
      return uploaded.error();
    }
  }
  return std::unique_ptr<Producer>(std::move(producer));
}

}  // namespace octile::cuda
