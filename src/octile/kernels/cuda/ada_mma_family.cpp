// SPDX-License-Identifier: Apache-2.0
// Host side of ada_mma.cuh.
#include "octile/kernels/cuda/ada_mma_family.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/ada_mma_config.h"
#include "octile/kernels/cuda/cuda_module.h"
#include "octile/kernels/cuda/tile_family.h"
#include "octile/kernels/known_devices.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

namespace octile::cuda {
namespace {

constexpr const char* kName = "ada_mma";
constexpr const char* kSource = "ada_mma.cuh";
constexpr int kOldestCapability = 89;
constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();
constexpr unsigned kReduceThreads = 256;

// AdaMmaParams of ada_mma.cuh.
struct AdaMmaParams {
  CUdeviceptr x;
  CUdeviceptr sx;
  CUdeviceptr w;
  CUdeviceptr sw;
  CUdeviceptr bias;
  CUdeviceptr y;
  CUdeviceptr partials;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  std::int64_t x_stride;
  std::int64_t w_stride;
  std::int64_t y_stride;
  std::int64_t partial_stride;
  std::uint32_t y_aligned;
  std::uint32_t prefetch_weights;
};
static_assert(sizeof(AdaMmaParams) == 120);

class AdaMmaKernel final : public Kernel {
 public:
  AdaMmaKernel(const DeviceContext& context, const Problem& problem, const AdaTile& tile, const WarpGrid& grid,
               QuantiseKernel quantise, LoadedKernel product, LoadedKernel reduce) noexcept
      : context_(&context),
        problem_(problem),
        tile_(tile),
        shared_bytes_(static_cast<unsigned>(shared_bytes(tile, grid))),
        pdl_(pdl_on(context.info, std::min(tile.pdl, problem.pdl))),
        quantise_(std::move(quantise)),
        product_(std::move(product)),
        reduce_(std::move(reduce)) {}

  std::int64_t workspace_bytes(std::int64_t m) const noexcept override {
    return quantise_.workspace_bytes(m) + round_up(partial_bytes(tile_, m, problem_.n), 256);
  }

  Expected<void> run(const PackedWeight& packed, const LaunchArgs& args) const override {
    const std::int64_t m = args.activation.x.rows;
    if (auto ok = check_blocks(m); !ok) {
      return ok;
    }
    return quantise_and_multiply(kName, *context_, problem_, quantise_, pdl_, packed, args, workspace_bytes(m),
                                 [&](const CudaWeight& weight, const DeviceCodes& codes, CUstream stream) {
                                   return multiply(weight, args, codes, stream);
                                 });
  }

 private:
  Expected<void> check_blocks(std::int64_t m) const {
    const std::int64_t blocks = (m + tile_.block_m - 1) / tile_.block_m * ((problem_.n + tile_.block_n - 1) / tile_.block_n);
    if (blocks > kMostBlocks) {
      return make_error(ErrorCode::invalid_argument, "{}: [{}, {}] in tiles of {} x {} is {} blocks, a launch takes {}",
                        kName, m, problem_.n, tile_.block_m, tile_.block_n, blocks, kMostBlocks);
    }
    return {};
  }

  Expected<void> multiply(const CudaWeight& weight, const LaunchArgs& args, const DeviceCodes& codes,
                          CUstream stream) const {
    const std::int64_t m = args.activation.x.rows;
    AdaMmaParams params = {};
    params.x = codes.codes;
    params.sx = codes.scales;
    params.w = weight.codes();
    params.sw = weight.scales();
    params.bias = to_device_pointer(args.bias);
    params.y = to_device_pointer(args.y.data);
    params.partials = to_device_pointer(args.workspace) + static_cast<CUdeviceptr>(quantise_.workspace_bytes(m));
    params.m = m;
    params.n = problem_.n;
    params.k = problem_.k;
    params.x_stride = codes.stride;
    params.w_stride = weight.k_padded();
    const OutputRows rows = output_rows(args.y);
    params.y_stride = rows.stride;
    params.y_aligned = rows.aligned;
    params.partial_stride = (problem_.n + 3) / 4 * 4;
    const bool early = product_starts_early(allowed_pdl(pdl_, args), codes);
    params.prefetch_weights = early ? 1 : 0;

    LaunchShape shape;
    const std::int64_t tiles_m = (m + tile_.block_m - 1) / tile_.block_m;
    const std::int64_t tiles_n = (problem_.n + tile_.block_n - 1) / tile_.block_n;
    shape.grid = {static_cast<unsigned>(tiles_m * tiles_n), 1, static_cast<unsigned>(tile_.split_k)};
    shape.block = {static_cast<unsigned>(tile_.warps) * 32, 1, 1};
    shape.dynamic_shared_bytes = shared_bytes_;
    shape.pdl = early;
    if (auto ok = launch_with(product_, shape, stream, params); !ok || tile_.split_k == 1) {
      return ok;
    }
    LaunchShape reduce;
    const std::int64_t quads = m * params.partial_stride / 4;
    reduce.grid = {static_cast<unsigned>((quads + kReduceThreads - 1) / kReduceThreads), 1, 1};
    reduce.block = {kReduceThreads, 1, 1};
    reduce.pdl = pdl_ != Pdl::off;
    return launch_with(reduce_, reduce, stream, params);
  }

  const DeviceContext* context_;
  Problem problem_;
  AdaTile tile_;
  unsigned shared_bytes_;
  Pdl pdl_;
  QuantiseKernel quantise_;
  LoadedKernel product_;
  LoadedKernel reduce_;  // Loaded where SPLIT_K > 1.
};

struct AdaMmaTraits {
  using Tile = AdaTile;
  static constexpr const char* kName = cuda::kName;
  static constexpr const char* kSource = cuda::kSource;
  static constexpr bool kReadsSlabs = false;
  static constexpr auto parse = parse_ada_tile;
  static constexpr auto check = check_ada_tile;
  static Expected<void> check_sm_limit(const Problem& problem, const AdaTile& tile, std::int64_t max_m) {
    return check_block_limit(kName, problem, ada_blocks(problem, tile, max_m));
  }
  static constexpr auto space = ada_space;
  static constexpr auto heuristic = ada_heuristic;
  static constexpr auto predict_us = ada_predict_us;

  static Expected<void> available(const DeviceInfo& device) {
    if (device.kind != DeviceKind::cuda || compute_capability(device.arch) < kOldestCapability) {
      return make_error(ErrorCode::unavailable, "{} needs a GPU of sm_{} or newer (mma.sync on e4m3), this is {}", kName,
                        kOldestCapability, device.arch);
    }
    return {};
  }

  static Expected<std::unique_ptr<Kernel>> prepare(const DeviceContext& context, const Problem& problem, const AdaTile& tile,
                                                   QuantiseKernel quantise) {
    const auto grid = check_ada_tile(context.info, problem, tile);
    if (!grid) {
      return grid.error();
    }
    CompileRequest request;
    request.source = kSource;
    request.defines = ada_defines(tile, *grid, problem.out_dtype, resolve_accumulate(problem.accumulate));
    request.kernel = "octile_ada_mma";
    auto product = compile_and_load(context, request, static_cast<unsigned>(shared_bytes(tile, *grid)));
    if (!product) {
      return product.error();
    }
    LoadedKernel reduce;
    if (tile.split_k > 1) {
      request.kernel = "octile_ada_mma_reduce";
      auto loaded = compile_and_load(context, request);
      if (!loaded) {
        return loaded.error();
      }
      reduce = std::move(*loaded);
    }
    return std::unique_ptr<Kernel>(std::make_unique<AdaMmaKernel>(context, problem, tile, *grid, std::move(quantise),
                                                                  std::move(*product), std::move(reduce)));
  }
};

}  // namespace

const KernelFamily& ada_mma_family() {
  static const TileFamily<AdaMmaTraits> family;
  return family;
}

}  // namespace octile::cuda
