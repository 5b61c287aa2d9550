// SPDX-License-Identifier: Apache-2.0
// The vendor on sm_90: cuBLASLt's row-wise e4m3 product, its own choice or a searched algorithm.
//
//   x bf16/fp16 --quantise--> codes, scales --cublasLtMatmul--> y              N % 16 = 0, no bias: two launches
//                                              \--> scratch [M, N16] --> y     else: a copy, or the epilogue kernel for a
//                                              bias
#include "octile/kernels/cuda/cublaslt_family.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/cublaslt.h"
#include "octile/kernels/cuda/cublaslt_algorithm.h"
#include "octile/kernels/cuda/cublaslt_choices.h"
#include "octile/kernels/cuda/cuda_module.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/product_call.h"
#include "octile/kernels/cuda/quantise_kernel.h"
#include "octile/kernels/cuda/warmup.h"

#include <algorithm>
#include <utility>

namespace octile::cuda {
namespace {

constexpr std::int64_t kAlignment = 256;    // Of every part of the workspace.
constexpr std::int64_t kRowAlignment = 16;  // Bytes, of rows that cuBLASLt reads or writes.
constexpr std::int64_t kScratchRows = 64;   // Rows of y computed at a time where its rows are not aligned.
constexpr unsigned kEpilogueThreads = 256;
constexpr unsigned kMaxEpilogueRows = 32768;  // Blocks along M; the kernel strides over more.

cudaDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return CUDA_R_16F;
    case DType::fp32:
      return CUDA_R_32F;
    default:
      return CUDA_R_16BF;
  }
}

const char* epilogue_define(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return "OUT=1";
    case DType::fp32:
      return "OUT=2";
    default:
      return "OUT=0";
  }
}

// The product of a problem at `m`, between buffers laid out as the family does.
Product product_of(const Problem& problem, std::int64_t m) {
  Product product;
  product.m = m;
  product.n = round_up(problem.n, kWeightPadding);
  product.k = round_up(problem.k, kWeightPadding);
  product.x_stride = product.k;
  product.y_stride = product.n;
  // A bias is fp32 and cuBLASLt would take it rounded: its result stays fp32 until the bias is in.
  product.out = problem.bias ? CUDA_R_32F : type_of(problem.out_dtype);
  product.fast = problem.accumulate != Accumulate::precise;
  product.max_sms = problem.max_sms;
  return product;
}

bool is_aligned(const void* pointer, std::int64_t stride_bytes) {
  return to_device_pointer(pointer) % kRowAlignment == 0 && stride_bytes % kRowAlignment == 0;
}

// Where the parts of a workspace for m rows begin.
struct WorkspaceParts {
  std::int64_t library = 0, codes = 0, scratch = 0, total = 0;
};

class CublasLtKernel final : public Kernel {
 public:
  CublasLtKernel(const LtDevice& device, const Problem& problem, std::int64_t max_m) noexcept
      : device_(device), problem_(problem), product_(product_of(problem, max_m)), max_m_(max_m) {}

  // Takes cuBLASLt's own choice for every M, or the one algorithm of a config.
  Expected<void> choose(const TileConfig& config) {
    if (config.values.empty()) {
      auto choices = own_choices(device_, product_, max_m_);
      if (!choices) {
        return choices.error();
      }
      choices_ = std::move(*choices);
      for (const LtAlgorithm& algorithm : choices_->algorithms()) {
        library_bytes_ = std::max(library_bytes_, algorithm.workspace_bytes);
      }
      return {};
    }
    auto algorithm = make_algorithm(device_, product_, config);
    if (!algorithm) {
      return algorithm.error();
    }
    named_.algorithm = *algorithm;
    if (auto fits = check_algorithm(device_, product_, *algorithm); !fits) {
      return make_error(ErrorCode::unavailable, "{}: {}", config.to_json(), fits.error().message);
    }
    // What it needs grows with M where it needs anything: asked at powers of two and at the largest M.
    for (Product at = product_; at.m >= 1; at.m /= 2) {
      if (auto bytes = check_algorithm(device_, at, *algorithm)) {
        library_bytes_ = std::max(library_bytes_, *bytes);
      }
    }
    return prove_scales_once(device_, product_, *algorithm);
  }

  Expected<void> load() {
    auto quantise = QuantiseKernel::prepare(*device_.context, problem_.k);
    if (!quantise) {
      return quantise.error();
    }
    quantise_ = std::move(*quantise);
    if (!problem_.bias) {
      return {};
    }
    auto epilogue = compile_and_load(
        *device_.context, {"", "vendor_epilogue.cuh", {epilogue_define(problem_.out_dtype)}, "octile_vendor_epilogue"});
    if (!epilogue) {
      return epilogue.error();
    }
    epilogue_ = std::move(*epilogue);
    return {};
  }

  std::int64_t workspace_bytes(std::int64_t m) const noexcept override { return parts_of(m).total; }

  Expected<void> run(const PackedWeight& weight, const LaunchArgs& args) const override {
    const std::int64_t m = args.activation.x.rows;
    const auto ours = check_vendor_call("cublaslt", *device_.context, problem_, max_m_, weight, args, workspace_bytes(m));
    if (!ours) {
      return ours.error();
    }
    if (m == 0) {
      return {};
    }
    const CurrentContext current(*device_.context);
    if (auto made = current.made(); !made) {
      return made.error();
    }
    Call call;
    call.weight = *ours;
    call.parts = parts_of(m);
    call.workspace = to_device_pointer(args.workspace);
    call.stream = static_cast<CUstream>(args.stream);
    void* const made_codes = to_pointer(call.part(call.parts.codes));
    auto codes = quantise_.run(args.activation, made_codes, call.stream, false);
    if (codes) {
      codes = with_zero_tail(*device_.context, args.activation, *codes, problem_.k, made_codes, call.stream);
    }
    if (!codes) {
      return codes.error();
    }
    call.codes = *codes;
    const bool direct = !needs_scratch() && is_aligned(args.y.data, args.y.row_stride * size_of(problem_.out_dtype));
    return direct ? run_direct(args, call) : run_through_scratch(args, call);
  }

 private:
  // What the steps of one run() share.
  struct Call {
    const CudaWeight* weight = nullptr;
    WorkspaceParts parts;
    CUdeviceptr workspace = 0;
    CUstream stream = nullptr;
    DeviceCodes codes;

    CUdeviceptr part(std::int64_t offset) const noexcept { return workspace + static_cast<CUdeviceptr>(offset); }
  };

  const Driver& driver() const noexcept { return *device_.context->driver; }
  bool needs_scratch() const noexcept { return problem_.bias || product_.n != problem_.n; }
  std::int64_t scratch_element_bytes() const noexcept {
    return problem_.bias ? static_cast<std::int64_t>(sizeof(float)) : size_of(problem_.out_dtype);
  }

  WorkspaceParts parts_of(std::int64_t m) const noexcept {
    const std::int64_t scratch_rows = needs_scratch() ? m : std::min(m, kScratchRows);
    WorkspaceParts parts;
    parts.codes = parts.library + round_up(library_bytes_, kAlignment);
    parts.scratch = parts.codes + quantise_.workspace_bytes(m);
    parts.total = parts.scratch + round_up(scratch_rows * product_.n * scratch_element_bytes(), kAlignment);
    return parts;
  }

  // Rows [first, first + rows) into `y`.
  Expected<void> multiply(const Call& call, std::int64_t first, std::int64_t rows, CUdeviceptr y,
                          std::int64_t y_stride) const {
    Product product = product_;
    product.m = rows;
    product.x_stride = call.codes.stride;
    product.y_stride = y_stride;
    ProductPointers pointers;
    pointers.codes_w = call.weight->codes();
    pointers.scales_w = call.weight->scales();
    pointers.codes_x = call.codes.codes + static_cast<CUdeviceptr>(first * call.codes.stride);
    pointers.scales_x = call.codes.scales + static_cast<CUdeviceptr>(first) * sizeof(float);
    pointers.y = y;
    pointers.workspace = call.part(call.parts.library);
    pointers.workspace_bytes = library_bytes_;
    const LtAlgorithm& algorithm = choices_ == nullptr ? named_ : choices_->at(rows);
    return run_product(device_, product, algorithm.algorithm, pointers, call.stream);
  }

  Expected<void> run_direct(const LaunchArgs& args, const Call& call) const {
    return multiply(call, 0, args.activation.x.rows, to_device_pointer(args.y.data), args.y.row_stride);
  }

  Expected<void> run_through_scratch(const LaunchArgs& args, const Call& call) const {
    const std::int64_t m = args.activation.x.rows;
    const std::int64_t step = needs_scratch() ? m : kScratchRows;
    const std::int64_t y_row_bytes = args.y.row_stride * size_of(problem_.out_dtype);
    const CUdeviceptr scratch = call.part(call.parts.scratch);
    for (std::int64_t first = 0; first < m; first += step) {
      const std::int64_t rows = std::min(step, m - first);
      if (auto done = multiply(call, first, rows, scratch, product_.n); !done) {
        return done;
      }
      const CUdeviceptr y = to_device_pointer(args.y.data) + static_cast<CUdeviceptr>(first * y_row_bytes);
      if (problem_.bias) {
        if (auto done = add_bias(args, scratch, y, rows, call.stream); !done) {
          return done;
        }
      } else if (const CUresult result =
                     copy_rows_async(driver(), y, y_row_bytes, scratch, product_.n * scratch_element_bytes(),
                                     problem_.n * size_of(problem_.out_dtype), rows, call.stream);
                 result != CUDA_SUCCESS) {
        return device_error(*device_.context, result, "copying rows of y");
      }
    }
    return {};
  }

  Expected<void> add_bias(const LaunchArgs& args, CUdeviceptr scratch, CUdeviceptr y, std::int64_t rows,
                          CUstream stream) const {
    LaunchShape shape;
    const std::int64_t blocks = (problem_.n + kEpilogueThreads - 1) / kEpilogueThreads;
    shape.grid = {static_cast<unsigned>(blocks), static_cast<unsigned>(std::min<std::int64_t>(rows, kMaxEpilogueRows)), 1};
    shape.block = {kEpilogueThreads, 1, 1};
    return launch_with(epilogue_, shape, stream, scratch, product_.n, to_device_pointer(args.bias), y, args.y.row_stride,
                       rows, problem_.n);
  }

  LtDevice device_;
  Problem problem_;
  Product product_;
  std::int64_t max_m_;
  std::shared_ptr<const LtChoices> choices_;  // nullptr: `named_` serves.
  LtAlgorithm named_;
  std::int64_t library_bytes_ = 0;
  QuantiseKernel quantise_;
  LoadedKernel epilogue_;
};

class CublasLtFamily final : public KernelFamily {
 public:
  std::string_view name() const noexcept override { return "cublaslt"; }
  bool is_vendor() const noexcept override { return true; }
  std::string version() const override {
    const auto api = cublaslt();
    return api ? (*api)->version_text : std::string();
  }
  std::string source_hash() const override {
    // The library's version is a hard key of its own; ours are the quantiser and the epilogue.
    return source_hash_of_parts();
  }

  Expected<void> available(const DeviceInfo& device) const override {
    if (device.kind != DeviceKind::cuda) {
      return make_error(ErrorCode::unavailable, "{} is no GPU", device.id);
    }
    if (device.arch != "sm_90") {
      return make_error(ErrorCode::unavailable, "cuBLASLt has row-wise e4m3 on sm_90 alone, not on {}", device.arch);
    }
    if (auto api = cublaslt(); !api) {
      return api.error();
    }
    return {};
  }
  std::string_view layout() const noexcept override { return kRowMajor; }

  Expected<void> check(const DeviceInfo& device, const Problem& problem, const TileConfig& config) const override {
    if (device.arch != "sm_90") {
      return make_error(ErrorCode::invalid_argument, "cublaslt: {} has no row-wise mode", device.arch);
    }
    if (auto valid = check_algorithm_config(config); !valid) {
      return valid;
    }
    const bool one_order = problem.numerics == Numerics::baseline || problem.batch_invariant;
    if (one_order && config.get(kSplitK, 1) > 1) {
      return make_error(ErrorCode::invalid_argument, "cublaslt: {}={} splits K, which changes the bits that are asked for",
                        kSplitK, config.get(kSplitK, 1));
    }
    return {};
  }

  // The library is asked to; what its kernels make of it is its affair.
  Expected<void> check_sm_limit(const Problem& /*problem*/, const TileConfig& /*config*/,
                                std::int64_t /*max_m*/) const override {
    return {};
  }

  std::vector<TileConfig> space(const DeviceInfo& device, const Problem& problem, std::int64_t m) const override {
    constexpr std::size_t kLimit = 96;
    std::vector<TileConfig> configs = {TileConfig{}};
    auto lt = open(device);
    if (!lt) {
      return configs;
    }
    const CurrentContext current(*lt->context);
    for (const TileConfig& config : search_algorithms(*lt, product_of(problem, std::max<std::int64_t>(m, 1)), kLimit)) {
      if (check(device, problem, config)) {
        configs.push_back(config);
      }
    }
    return configs;
  }

  TileConfig heuristic(const DeviceInfo& /*device*/, const Problem& /*problem*/, std::int64_t /*m*/) const override {
    return {};
  }

  double predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m,
                    const TileConfig& config) const override {
    return predict_tile_us(usable_sms(device, problem), m, problem.n, problem.k, lt_tile(config.get(kTileId, 0)),
                           lt_cluster(config.get(kClusterShapeId, 0)));
  }

  Expected<std::unique_ptr<Kernel>> prepare(const DeviceInfo& device, const Problem& problem, const TileConfig& config,
                                            std::int64_t max_m) const override {
    if (auto valid = check(device, problem, config); !valid) {
      return valid.error();
    }
    if (max_m < 1) {
      return make_error(ErrorCode::invalid_argument, "cublaslt: prepare for {} rows: want at least 1", max_m);
    }
    if (CompileRecorder* recorder = CompileRecorder::active()) {
      auto kernel = std::make_unique<CublasLtKernel>(LtDevice{nullptr, &recorder->context(), nullptr}, problem, max_m);
      if (auto noted = kernel->load(); !noted) {
        return noted.error();
      }
      return std::unique_ptr<Kernel>(std::move(kernel));
    }
    auto lt = open(device);
    if (!lt) {
      return lt.error();
    }
    const CurrentContext current(*lt->context);
    if (auto made = current.made(); !made) {
      return made.error();
    }
    const OutsideCapture outside(*lt->context->driver);
    auto kernel = std::make_unique<CublasLtKernel>(*lt, problem, max_m);
    if (auto chosen = kernel->choose(config); !chosen) {
      return chosen.error();
    }
    if (auto loaded = kernel->load(); !loaded) {
      return loaded.error();
    }
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

 private:
  Expected<LtDevice> open(const DeviceInfo& device) const {
    if (auto there = available(device); !there) {
      return there.error();
    }
    auto context = device_context(device.index);
    if (!context) {
      return context.error();
    }
    return lt_device(**context);
  }

  static std::string source_hash_of_parts() {
    return octile::cuda::source_hash("vendor_epilogue.cuh") + octile::cuda::source_hash("quantise.cuh");
  }
};

}  // namespace

const KernelFamily& cublaslt_family() {
  static const CublasLtFamily family;
  return family;
}

}  // namespace octile::cuda
