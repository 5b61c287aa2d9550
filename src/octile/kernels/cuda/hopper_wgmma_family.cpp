// SPDX-License-Identifier: Apache-2.0
// Host side of hopper_wgmma.cuh.
#include "octile/kernels/cuda/hopper_wgmma_family.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/ada_mma_config.h"
#include "octile/kernels/cuda/cuda_module.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/hopper_wgmma_config.h"
#include "octile/kernels/cuda/tensor_map.h"
#include "octile/kernels/cuda/tile_family.h"
#include "octile/kernels/known_devices.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

namespace octile::cuda {
namespace {

constexpr char kName[] = "hopper_wgmma";
constexpr const char* kSource = "hopper_wgmma.cuh";
// Rows, channels and tiles are counted in 32 bits, the copy engine's coordinates signed.
constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max() - 1024;

// HopperWgmmaParams of hopper_wgmma.cuh.
struct HopperWgmmaParams {
  CUdeviceptr sx;
  CUdeviceptr sw;
  CUdeviceptr bias;
  CUdeviceptr y;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  std::int64_t y_stride;
  std::uint32_t tiles_m;
  std::uint32_t tiles_n;
  std::uint32_t group_m;
  std::uint32_t early;
  std::uint32_t y_aligned;
  std::uint32_t window;
};
static_assert(sizeof(HopperWgmmaParams) == 88);

// The weight's map with boxes of as many rows as the kernel asks for at once (kBoxRowsW).
std::size_t box_of(const Problem& problem, const WgmmaTile& tile) noexcept {
  constexpr int kWhole = 64;
  constexpr int kHalf = 32;
  const int requested = tile.channels / tile.cluster_m;
  if (hopper_layout(problem) == kSlab64) {
    return slab_box_index({std::gcd(requested, kWhole), 1});
  }
  const int rows = tile.swap ? requested : (requested % kWhole == 0 ? kWhole : kHalf);
  return static_cast<std::size_t>(std::ranges::find(kWeightBoxRows, rows) - kWeightBoxRows.begin());
}

class HopperWgmmaKernel final : public Kernel {
 public:
  HopperWgmmaKernel(const DeviceContext& context, const Problem& problem, const WgmmaTile& tile, QuantiseKernel quantise,
                    LoadedKernel product, const TensorMapEncoder& encoder) noexcept
      : context_(&context),
        problem_(problem),
        tile_(tile),
        pdl_(pdl_on(context.info, std::min(tile.pdl, problem.pdl))),
        clusters_(clusters_at_once(context.info, problem, tile)),
        quantise_(std::move(quantise)),
        product_(std::move(product)),
        encoder_(encoder),
        box_(box_of(problem, tile)) {}

  std::int64_t workspace_bytes(std::int64_t m) const noexcept override { return quantise_.workspace_bytes(m); }

  Expected<void> run(const PackedWeight& packed, const LaunchArgs& args) const override {
    const std::int64_t m = args.activation.x.rows;
    const TileCounts counts = tile_counts(tile_, m, problem_.n);
    if (m > kMostRows || problem_.n > kMostRows || counts.m * counts.n > kMostRows) {
      return make_error(ErrorCode::invalid_argument,
                        "{}: [{}, {}] in {} x {} tiles, a launch takes {} rows, columns or tiles", kName, m, problem_.n,
                        counts.m, counts.n, kMostRows);
    }
    return quantise_and_multiply(
        kName, *context_, problem_, quantise_, pdl_, packed, args, workspace_bytes(m),
        [&](const CudaWeight& weight, const DeviceCodes& codes, CUstream stream) {
          return multiply(weight, args, codes, stream);
        },
        hopper_layout(problem_));
  }

 private:
  Expected<void> multiply(const CudaWeight& weight, const LaunchArgs& args, const DeviceCodes& codes,
                          CUstream stream) const {
    const std::int64_t m = args.activation.x.rows;
    TensorMap map_x = {};
    if (auto ok =
            encode_rows_once(encoder_, codes.codes, m, problem_.k, codes.stride, tile_.tokens / tile_.cluster_n, map_x);
        !ok) {
      return ok;
    }
    const OutputRows rows = output_rows(args.y, static_cast<int>(kVectorBytes / size_of(args.y.dtype)));
    const TileCounts counts = tile_counts(tile_, m, problem_.n);
    HopperWgmmaParams params = {};
    params.sx = codes.scales;
    params.sw = weight.scales();
    params.bias = to_device_pointer(args.bias);
    params.y = to_device_pointer(args.y.data);
    params.m = m;
    params.n = problem_.n;
    params.k = problem_.k;
    params.y_stride = rows.stride;
    params.tiles_m = static_cast<std::uint32_t>(counts.m);
    params.tiles_n = static_cast<std::uint32_t>(counts.n);
    // No more than there are, so that products of the two fit 32 bits.
    params.group_m = static_cast<std::uint32_t>(std::min<std::int64_t>(tile_.group_m, counts.m));
    params.early = static_cast<std::uint32_t>(tile_.prefetch == 0 ? tile_.stages : tile_.prefetch);
    params.y_aligned = rows.aligned;
    params.window = static_cast<std::uint32_t>(tile_.window_stages());
    LaunchShape shape;
    shape.pdl = product_starts_early(allowed_pdl(pdl_, args), codes);
    // Whole clusters of the launch: the last block of pairs may have no tile.
    const std::int64_t together = tile_.started_together();
    const auto clusters = std::min<std::int64_t>(counts.m * counts.n, clusters_);
    shape.grid = {static_cast<unsigned>(round_up(clusters * tile_.cluster(), together)), 1, 1};
    shape.block = {static_cast<unsigned>(tile_.threads()), 1, 1};
    shape.cluster = {static_cast<unsigned>(together), 1, 1};
    shape.dynamic_shared_bytes = static_cast<unsigned>(tile_.shared_bytes(problem_.out_dtype));
    TensorMap map_w = weight.box(box_);
    const std::array<void*, 3> parameters = {&map_w, &map_x, &params};
    return launch(product_, shape, stream, parameters);
  }

  static constexpr std::int64_t kVectorBytes = 16;  // Of outputs in one store.

  const DeviceContext* context_;
  Problem problem_;
  WgmmaTile tile_;
  Pdl pdl_;
  std::int64_t clusters_;  // Of a launch at most.
  QuantiseKernel quantise_;
  LoadedKernel product_;
  TensorMapEncoder encoder_;
  std::size_t box_;  // The weight's map.
};

struct HopperWgmmaTraits {
  using Tile = WgmmaTile;
  static constexpr const char* kName = cuda::kName;
  static constexpr const char* kSource = cuda::kSource;
  static constexpr bool kReadsSlabs = true;
  static constexpr auto available = hopper_only<kName>;
  static constexpr auto parse = parse_wgmma_tile;
  static constexpr auto check = check_wgmma_tile;
  // Its blocks take tiles in turn, as many as there are of them: every legal tile fits.
  static Expected<void> check_sm_limit(const Problem& /*problem*/, const WgmmaTile& /*tile*/, std::int64_t /*max_m*/) {
    return {};
  }
  static constexpr auto space = wgmma_space;
  static constexpr auto heuristic = wgmma_heuristic;
  static constexpr auto predict_us = wgmma_predict_us;

  static Expected<std::unique_ptr<Kernel>> prepare(const DeviceContext& context, const Problem& problem,
                                                   const WgmmaTile& tile, QuantiseKernel quantise) {
    CompileRequest request;
    request.source = kSource;
    request.defines = wgmma_defines(tile, problem.out_dtype, resolve_accumulate(problem.accumulate), problem.layout);
    request.kernel = "octile_hopper_wgmma";
    return prepare_with_maps<HopperWgmmaKernel>(context, problem, tile, std::move(quantise), request,
                                                tile.shared_bytes(problem.out_dtype));
  }
};

const TileFamily<HopperWgmmaTraits>& the_family() {
  static const TileFamily<HopperWgmmaTraits> family;
  return family;
}

}  // namespace

const KernelFamily& hopper_wgmma_family() { return the_family(); }

Expected<std::unique_ptr<Kernel>> prepare_hopper_wgmma(const DeviceContext& context, const Problem& problem,
                                                       const TileConfig& config) {
  return the_family().prepare_on(context, problem, config);
}

}  // namespace octile::cuda
