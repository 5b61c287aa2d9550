// SPDX-License-Identifier: Apache-2.0
// The vendor on sm_89 and sm_120: CUTLASS's e4m3 GEMM.
//
//   x bf16/fp16 --quantise--> codes, scales --component--> y       two launches, whatever N, the bias and y's alignment
//
// K is padded to a multiple of 16 by the weight's layout and the quantiser.
#include "octile/kernels/cuda/cutlass_family.h"

#include "octile/core/env.h"
#include "octile/core/format.h"
#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/cutlass_tiles.h"
#include "octile/kernels/cuda/product_call.h"
#include "octile/kernels/cuda/scale_proof.h"
#include "octile/kernels/cuda/warmup.h"
#include "octile/kernels/known_devices.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace octile::cuda {
namespace {

constexpr std::string_view kName = "cutlass";

int output_of(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return OCTILE_CUTLASS_FP16;
    case DType::fp32:
      return OCTILE_CUTLASS_FP32;
    default:
      return OCTILE_CUTLASS_BF16;
  }
}

bool is_precise(const Problem& problem) { return problem.accumulate == Accumulate::precise; }

Error component_error(const OctileCutlassApi& api, int code, const OctileCutlassConfig& tile, std::string_view what) {
  return make_error(ErrorCode::failed, "cutlass {}: {}: {}: {} (code {})", api.version, to_config(tile).to_json(), what,
                    api.error_text(code), code);
}

// What every call of a problem has in common; M, pointers and strides are the call's.
OctileCutlassProduct product_of(const Problem& problem) {
  OctileCutlassProduct product = {};
  product.struct_bytes = sizeof(product);
  product.out = output_of(problem.out_dtype);
  product.precise = is_precise(problem) ? 1 : 0;
  product.n = problem.n;
  product.k = round_up(problem.k, kWeightPadding);
  product.w_stride = product.k;
  return product;
}

class CutlassKernel final : public Kernel {
 public:
  CutlassKernel(const CutlassComponent& component, const DeviceContext& context, const Problem& problem, std::int64_t max_m)
      : api_(component.api), context_(&context), problem_(problem), product_(product_of(problem)), max_m_(max_m) {}

  // Loads every kernel of the steps, and proves that each honours the scales.
  Expected<void> load_tiles(std::vector<CutlassStep> steps) {
    steps_ = std::move(steps);
    const CurrentContext current(*context_);
    if (auto made = current.made(); !made) {
      return made.error();
    }
    const OutsideCapture outside(*context_->driver);
    for (const CutlassStep& step : steps_) {
      const OctileCutlassConfig& tile = *api_->config(step.tile);
      if (const int code = api_->prepare(step.tile, product_.precise); code != 0) {
        return component_error(*api_, code, tile, format("loading it on {}", context_->info.name));
      }
      OctileCutlassProduct largest = product_;
      largest.m = std::min(step.last_m, max_m_);
      largest.x_stride = product_.k;
      largest.y_stride = product_.n;
      if (const int code = api_->can_run(step.tile, &largest); code != 0) {
        return component_error(*api_, code, tile, format("M={} N={} K={}", largest.m, problem_.n, problem_.k));
      }
      const std::int64_t bytes = api_->workspace_bytes(step.tile, &largest);
      if (bytes < 0) {
        return make_error(ErrorCode::failed, "cutlass {}: {} does not say its workspace for M={}", api_->version,
                          to_config(tile).to_json(), largest.m);
      }
      component_bytes_ = std::max(component_bytes_, bytes);
      if (auto proven = prove(step, largest.m); !proven) {
        return proven;
      }
    }
    return {};
  }

  Expected<void> load_quantiser() {
    auto quantise = QuantiseKernel::prepare(*context_, problem_.k);
    if (!quantise) {
      return quantise.error();
    }
    quantise_ = std::move(*quantise);
    return {};
  }

  std::int64_t workspace_bytes(std::int64_t m) const noexcept override {
    return quantise_.workspace_bytes(m) + round_up(component_bytes_, 256);
  }

  Expected<void> run(const PackedWeight& packed, const LaunchArgs& args) const override {
    const std::int64_t m = args.activation.x.rows;
    const auto weight = check_vendor_call(kName, *context_, problem_, max_m_, packed, args, workspace_bytes(m));
    if (!weight) {
      return weight.error();
    }
    if (m == 0) {
      return {};
    }
    const CurrentContext current(*context_);
    if (auto made = current.made(); !made) {
      return made.error();
    }
    auto* const stream = static_cast<CUstream>(args.stream);
    auto codes = quantise_.run(args.activation, args.workspace, stream, false);
    if (codes) {
      codes = with_zero_tail(*context_, args.activation, *codes, problem_.k, args.workspace, stream);
    }
    if (!codes) {
      return codes.error();
    }
    OctileCutlassProduct product = product_;
    product.m = m;
    product.x_stride = codes->stride;
    product.y_stride = output_rows(args.y).stride;
    product.bias = args.bias;
    product.y = args.y.data;
    const CUdeviceptr workspace = to_device_pointer(args.workspace) + static_cast<CUdeviceptr>(quantise_.workspace_bytes(m));
    return multiply(step_of(m).tile, product,
                    {(*weight)->codes(), (*weight)->scales(), codes->codes, codes->scales, 0, workspace, component_bytes_},
                    stream);
  }

 private:
  const CutlassStep& step_of(std::int64_t m) const noexcept {
    return *std::ranges::lower_bound(steps_, m, {}, &CutlassStep::last_m);
  }

  // `product` holds y and the bias already.
  Expected<void> multiply(std::int32_t index, OctileCutlassProduct product, const ProductPointers& pointers,
                          CUstream stream) const {
    product.x = to_pointer(pointers.codes_x);
    product.scales_x = static_cast<const float*>(to_pointer(pointers.scales_x));
    product.w = to_pointer(pointers.codes_w);
    product.scales_w = static_cast<const float*>(to_pointer(pointers.scales_w));
    if (const int code = api_->run(index, &product, to_pointer(pointers.workspace), stream); code != 0) {
      return component_error(*api_, code, *api_->config(index),
                             format("M={} N={} K={} on {}", product.m, problem_.n, problem_.k, context_->info.name));
    }
    return {};
  }

  Expected<void> prove(const CutlassStep& step, std::int64_t m) const {
    ScaleProof proof = scale_proof_of(m, product_.n, product_.k, problem_.out_dtype);
    const std::string key = format("cutlass {} {} {} {} {} {} {}", context_->info.index, step.tile, proof.m, proof.n,
                                   proof.k, product_.out, product_.precise);
    return prove_once(key, [&] {
      OctileCutlassProduct product = product_;
      product.m = proof.m;
      product.k = proof.k;
      product.x_stride = proof.k;
      product.w_stride = proof.k;
      product.y_stride = proof.n;
      proof.workspace_bytes = std::max<std::int64_t>(api_->workspace_bytes(step.tile, &product), 0);
      return prove_scales(*context_, proof, [&](const ProductPointers& pointers) {
        product.y = to_pointer(pointers.y);
        return multiply(step.tile, product, pointers, nullptr);
      });
    });
  }

  const OctileCutlassApi* api_;
  const DeviceContext* context_;
  Problem problem_;
  OctileCutlassProduct product_;
  std::int64_t max_m_;
  std::vector<CutlassStep> steps_;
  std::int64_t component_bytes_ = 0;
  QuantiseKernel quantise_;
};

class CutlassFamily final : public KernelFamily {
 public:
  // nullptr: the process's component, opened at the first question.
  explicit CutlassFamily(const CutlassComponent* component) noexcept : component_(component) {}

  std::string_view name() const noexcept override { return kName; }
  bool is_vendor() const noexcept override { return true; }
  std::string version() const override {
    const OctileCutlassApi* api = component().api;
    return api == nullptr ? std::string() : api->version;
  }
  std::string source_hash() const override {
    const OctileCutlassApi* api = component().api;
    return (api == nullptr ? std::string() : std::string(api->source_hash)) + octile::cuda::source_hash("quantise.cuh");
  }

  Expected<void> available(const DeviceInfo& device) const override {
    if (auto meant = meant_for(device); !meant) {
      return meant;
    }
    const CutlassComponent& opened = component();
    if (opened.api == nullptr) {
      return make_error(ErrorCode::unavailable, "the CUTLASS component is not built (make cutlass) or broken: {}",
                        opened.reason);
    }
    if (opened.api->kernels_for(compute_capability(device.arch)) == OCTILE_CUTLASS_NO_KERNELS) {
      return make_error(ErrorCode::unavailable, "{} has no kernels for {}", opened.path, device.arch);
    }
    return {};
  }
  std::string_view layout() const noexcept override { return kRowMajor; }

  Expected<void> check(const DeviceInfo& device, const Problem& problem, const TileConfig& config) const override {
    if (auto there = available(device); !there) {
      return there;
    }
    if (problem.n < 1 || problem.k < 1) {
      return make_error(ErrorCode::invalid_argument, "cutlass: want N and K of at least 1, got N={} K={}", problem.n,
                        problem.k);
    }
    if (problem.numerics == Numerics::baseline && !cutlass_is_baseline_on(device.arch)) {
      return make_error(ErrorCode::invalid_argument, "cutlass: its bits are not the baseline's on {}", device.arch);
    }
    auto ladder = plan(device, problem, config, 1);
    return ladder ? Expected<void>() : ladder.error();
  }

  std::vector<TileConfig> space(const DeviceInfo& device, const Problem& problem, std::int64_t m) const override {
    std::vector<TileConfig> configs;
    if (!available(device)) {
      return configs;
    }
    configs.emplace_back();
    for (const OctileCutlassConfig& tile : cutlass_tiles(*component().api)) {
      // A tile of twice the tokens and more only adds work.
      if (tile.tile_m < 2 * std::max<std::int64_t>(m, kSmallestTileM) && check_cutlass_tile(device, problem, tile)) {
        configs.push_back(to_config(tile));
      }
    }
    return configs;
  }

  TileConfig heuristic(const DeviceInfo& /*device*/, const Problem& /*problem*/, std::int64_t /*m*/) const override {
    return {};
  }

  double predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m,
                    const TileConfig& config) const override {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    if (component().api == nullptr) {
      return kNever;
    }
    const auto tiles = cutlass_tiles(*component().api);
    if (config.values.empty()) {
      const auto legal = legal_cutlass_tiles(device, problem, tiles);
      return legal ? choose_cutlass_tile(device, problem, m, tiles, *legal).predicted_us : kNever;
    }
    const auto index = find_cutlass_tile(tiles, config);
    return index ? cutlass_predict_us(device, problem, m, tiles[static_cast<std::size_t>(*index)]) : kNever;
  }

  Expected<std::unique_ptr<Kernel>> prepare(const DeviceInfo& device, const Problem& problem, const TileConfig& config,
                                            std::int64_t max_m) const override {
    if (max_m < 1) {
      return make_error(ErrorCode::invalid_argument, "cutlass: prepare for {} rows: want at least 1", max_m);
    }
    // The component's kernels are compiled already: only the quantiser can be compiled ahead, also where no component is.
    const bool records = CompileRecorder::active() != nullptr;
    if (auto valid = records && component().api == nullptr ? meant_for(device) : check(device, problem, config); !valid) {
      return valid.error();
    }
    const auto context = device_context(device.index);
    if (!context) {
      return context.error();
    }
    auto kernel = std::make_unique<CutlassKernel>(component(), **context, problem, max_m);
    if (auto loaded = kernel->load_quantiser(); !loaded) {
      return loaded.error();
    }
    if (!records) {
      auto steps = plan(device, problem, config, max_m);
      if (!steps) {
        return steps.error();
      }
      if (auto loaded = kernel->load_tiles(std::move(*steps)); !loaded) {
        return loaded.error();
      }
    }
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

 private:
  static constexpr std::int64_t kSmallestTileM = 16;

  const CutlassComponent& component() const { return component_ == nullptr ? cutlass_component() : *component_; }

  static Expected<void> meant_for(const DeviceInfo& device) {
    if (device.kind != DeviceKind::cuda) {
      return make_error(ErrorCode::unavailable, "{} is no GPU", device.id);
    }
    if (cutlass_is_baseline_on(device.arch)) {
      return {};
    }
    const auto anywhere = env::get_bool("OCTILE_CUTLASS_ON_ANY_GPU");
    if (!anywhere) {
      return anywhere.error();
    }
    if (!*anywhere) {
      return make_error(ErrorCode::unavailable,
                        "CUTLASS serves sm_89 and sm_120, not {} (OCTILE_CUTLASS_ON_ANY_GPU=on runs it there for checks)",
                        device.arch);
    }
    return {};
  }

  // Which kernel serves which M: the component's own choice, or the one of a config. The component is there.
  Expected<std::vector<CutlassStep>> plan(const DeviceInfo& device, const Problem& problem, const TileConfig& config,
                                          std::int64_t max_m) const {
    const auto tiles = cutlass_tiles(*component().api);
    if (config.values.empty()) {
      return cutlass_ladder(device, problem, tiles, max_m);
    }
    const auto index = find_cutlass_tile(tiles, config);
    if (!index) {
      return index.error();
    }
    if (auto valid = check_cutlass_tile(device, problem, tiles[static_cast<std::size_t>(*index)]); !valid) {
      return valid.error();
    }
    return std::vector<CutlassStep>{{max_m, *index}};
  }

  const CutlassComponent* component_;
};

}  // namespace

const KernelFamily& cutlass_family() {
  static const CutlassFamily family(nullptr);
  return family;
}

std::unique_ptr<KernelFamily> make_cutlass_family(const CutlassComponent& component) {
  return std::make_unique<CutlassFamily>(&component);
}

bool cutlass_is_baseline_on(std::string_view arch) noexcept { return arch == "sm_89" || arch == "sm_120"; }

}  // namespace octile::cuda
