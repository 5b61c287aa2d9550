// SPDX-License-Identifier: Apache-2.0
// Host side of hopper_decode.cuh.
#include "octile/kernels/cuda/hopper_decode_family.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/ada_mma_config.h"
#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/cuda_module.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/hopper_decode_config.h"
#include "octile/kernels/cuda/product_call.h"
#include "octile/kernels/cuda/quantise_kernel.h"
#include "octile/kernels/cuda/tensor_map.h"
#include "octile/kernels/cuda/warmup.h"
#include "octile/kernels/known_devices.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace octile::cuda {
namespace {

constexpr const char* kSource = "hopper_decode.cuh";
constexpr int kCapability = 90;                  // wgmma is Hopper's alone.
constexpr std::int64_t kMostTokenTiles = 65535;  // Blocks of a grid along y.

// HopperDecodeParams of hopper_decode.cuh.
struct HopperDecodeParams {
  CUdeviceptr sx;
  CUdeviceptr sw;
  CUdeviceptr bias;
  CUdeviceptr y;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  std::int64_t y_stride;
  std::uint32_t y_aligned;
  std::uint32_t window;
};
static_assert(sizeof(HopperDecodeParams) == 72);

class HopperDecodeKernel final : public Kernel {
 public:
  HopperDecodeKernel(const DeviceContext& context, const Problem& problem, const DecodeTile& tile, QuantiseKernel quantise,
                     LoadedKernel product, const TensorMapEncoder& encoder) noexcept
      : context_(&context),
        problem_(problem),
        tile_(tile),
        pdl_(pdl_on(context.info, std::min(tile.pdl, problem.pdl))),
        quantise_(std::move(quantise)),
        product_(std::move(product)),
        encoder_(encoder),
        box_(static_cast<std::size_t>(std::ranges::find(kWeightBoxRows, tile.rows_of_box()) - kWeightBoxRows.begin())) {}

  std::int64_t workspace_bytes(std::int64_t m) const noexcept override { return quantise_.workspace_bytes(m); }

  Expected<void> run(const PackedWeight& packed, const LaunchArgs& args) const override {
    const std::int64_t m = args.activation.x.rows;
    const auto weight = check_product_call("hopper_decode", *context_, problem_, packed, args, workspace_bytes(m));
    if (!weight) {
      return weight.error();
    }
    if (m == 0) {
      return {};
    }
    if ((m + tile_.tokens - 1) / tile_.tokens > kMostTokenTiles) {
      return make_error(ErrorCode::invalid_argument, "hopper_decode: M = {} in tiles of {} tokens, a launch takes {} tiles",
                        m, tile_.tokens, kMostTokenTiles);
    }
    const CurrentContext current(*context_);
    if (auto made = current.made(); !made) {
      return made.error();
    }
    auto* const stream = static_cast<CUstream>(args.stream);
    const auto codes = quantise_.run(args.activation, args.workspace, stream, pdl_ == Pdl::full);
    if (!codes) {
      return codes.error();
    }
    return multiply(**weight, args, *codes, stream);
  }

 private:
  Expected<void> multiply(const CudaWeight& weight, const LaunchArgs& args, const DeviceCodes& codes,
                          CUstream stream) const {
    const std::int64_t m = args.activation.x.rows;
    TensorMap map_x = {};
    if (auto ok = encode_rows_once(encoder_, codes.codes, m, problem_.k, codes.stride, tile_.tokens, map_x); !ok) {
      return ok;
    }
    const OutputRows rows = output_rows(args.y);
    HopperDecodeParams params = {};
    params.sx = codes.scales;
    params.sw = weight.scales();
    params.bias = to_device_pointer(args.bias);
    params.y = to_device_pointer(args.y.data);
    params.m = m;
    params.n = problem_.n;
    params.k = problem_.k;
    params.y_stride = rows.stride;
    params.y_aligned = rows.aligned;
    LaunchShape shape;
    shape.pdl = product_starts_early(pdl_, codes);
    params.window = static_cast<std::uint32_t>(tile_.window_stages());
    const std::int64_t row_tiles = (problem_.n + tile_.rows - 1) / tile_.rows;
    shape.grid = {static_cast<unsigned>(row_tiles * tile_.split_k),
                  static_cast<unsigned>((m + tile_.tokens - 1) / tile_.tokens), 1};
    shape.block = {static_cast<unsigned>(tile_.threads()), 1, 1};
    shape.cluster = {static_cast<unsigned>(tile_.split_k), 1, 1};
    shape.dynamic_shared_bytes = static_cast<unsigned>(tile_.shared_bytes());
    TensorMap map_w = weight.row_boxes(box_);
    const std::array<void*, 3> parameters = {&map_w, &map_x, &params};
    return launch(product_, shape, stream, parameters);
  }

  const DeviceContext* context_;
  Problem problem_;
  DecodeTile tile_;
  Pdl pdl_;
  QuantiseKernel quantise_;
  LoadedKernel product_;
  TensorMapEncoder encoder_;
  std::size_t box_;  // The weight's map.
};

class HopperDecodeFamily final : public KernelFamily {
 public:
  std::string_view name() const noexcept override { return "hopper_decode"; }
  std::string source_hash() const override { return cuda::source_hash(kSource); }
  std::string_view layout() const noexcept override { return kRowMajor; }

  Expected<void> available(const DeviceInfo& device) const override {
    if (device.kind != DeviceKind::cuda || compute_capability(device.arch) != kCapability) {
      return make_error(ErrorCode::unavailable, "hopper_decode needs a GPU of sm_{} (wgmma), this is {}", kCapability,
                        device.arch);
    }
    return {};
  }

  Expected<void> check(const DeviceInfo& device, const Problem& problem, const TileConfig& config) const override {
    if (auto tile = legal_tile(device, problem, config); !tile) {
      return tile.error();
    }
    return {};
  }

  std::vector<TileConfig> space(const DeviceInfo& device, const Problem& problem, std::int64_t m) const override {
    std::vector<TileConfig> configs;
    for (const DecodeTile& tile : decode_space(device, problem, m)) {
      configs.push_back(to_config(tile));
    }
    return configs;
  }

  TileConfig heuristic(const DeviceInfo& device, const Problem& problem, std::int64_t m) const override {
    const auto tiles = decode_space(device, problem, m);
    return to_config(tiles.empty() ? DecodeTile{128, 1, 4, 1} : tiles.front());
  }

  double predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m,
                    const TileConfig& config) const override {
    const auto tile = parse_decode_tile(config);
    return tile ? decode_predict_us(device, problem, m, *tile) : std::numeric_limits<double>::infinity();
  }

  Expected<std::unique_ptr<Kernel>> prepare(const DeviceInfo& device, const Problem& problem, const TileConfig& config,
                                            std::int64_t /*max_m*/) const override {
    const auto tile = legal_tile(device, problem, config);
    if (!tile) {
      return tile.error();
    }
    const auto context = device_context(device.index);
    if (!context) {
      return context.error();
    }
    TensorMapEncoder encoder;
    if (CompileRecorder::active() == nullptr) {  // A kernel that is only recorded has no driver to ask, and is never run.
      const auto found = find_tensor_map_encoder(*(*context)->driver);
      if (!found) {
        return found.error();
      }
      encoder = *found;
    }
    auto quantise = QuantiseKernel::prepare(**context, problem.k);
    if (!quantise) {
      return quantise.error();
    }
    CompileRequest request;
    request.source = kSource;
    request.defines = decode_defines(*tile, problem.out_dtype, resolve_accumulate(problem.accumulate));
    request.kernel = "octile_hopper_decode";
    auto product = compile_and_load(**context, request, static_cast<unsigned>(tile->shared_bytes()));
    if (!product) {
      return product.error();
    }
    return std::unique_ptr<Kernel>(
        std::make_unique<HopperDecodeKernel>(**context, problem, *tile, std::move(*quantise), std::move(*product), encoder));
  }

 private:
  Expected<DecodeTile> legal_tile(const DeviceInfo& device, const Problem& problem, const TileConfig& config) const {
    if (auto ok = available(device); !ok) {
      return ok.error();
    }
    if (problem.k >= std::numeric_limits<std::int32_t>::max() - 1024) {
      return make_error(ErrorCode::invalid_argument, "hopper_decode: K = {}, want less than 2^31 - 1024", problem.k);
    }
    auto tile = parse_decode_tile(config);
    if (!tile) {
      return tile;
    }
    if (auto ok = check_decode_tile(device, problem, *tile); !ok) {
      return ok.error();
    }
    return tile;
  }
};

}  // namespace

const KernelFamily& hopper_decode_family() {
  static const HopperDecodeFamily family;
  return family;
}

}  // namespace octile::cuda
