// SPDX-License-Identifier: Apache-2.0
// Host side of hopper_decode.cuh.
#include "octile/kernels/cuda/hopper_decode_family.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/ada_mma_config.h"
#include "octile/kernels/cuda/cuda_module.h"
#include "octile/kernels/cuda/hopper_decode_config.h"
#include "octile/kernels/cuda/tensor_map.h"
#include "octile/kernels/cuda/tile_family.h"
#include "octile/kernels/known_devices.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>

namespace octile::cuda {
namespace {

constexpr char kName[] = "hopper_decode";
constexpr const char* kSource = "hopper_decode.cuh";
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

// The weight's map that the kernel reads.
std::size_t box_of(const Problem& problem, const DecodeTile& tile) noexcept {
  if (hopper_layout(problem) == kSlab64) {
    const int rows = tile.rows_of_slab_box();
    return slab_box_index({rows, rows == tile.rows ? tile.k_chunks : 1});
  }
  return static_cast<std::size_t>(std::ranges::find(kWeightBoxRows, tile.rows_of_box()) - kWeightBoxRows.begin());
}

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
        box_(box_of(problem, tile)) {}

  std::int64_t workspace_bytes(std::int64_t m) const noexcept override { return quantise_.workspace_bytes(m); }

  Expected<void> run(const PackedWeight& packed, const LaunchArgs& args) const override {
    const std::int64_t m = args.activation.x.rows;
    if ((m + tile_.tokens - 1) / tile_.tokens > kMostTokenTiles) {
      return make_error(ErrorCode::invalid_argument, "{}: M = {} in tiles of {} tokens, a launch takes {} tiles", kName, m,
                        tile_.tokens, kMostTokenTiles);
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
    shape.pdl = product_starts_early(allowed_pdl(pdl_, args), codes);
    params.window = static_cast<std::uint32_t>(tile_.window_stages());
    const std::int64_t row_tiles = (problem_.n + tile_.rows - 1) / tile_.rows;
    shape.grid = {static_cast<unsigned>(row_tiles * tile_.split_k),
                  static_cast<unsigned>((m + tile_.tokens - 1) / tile_.tokens), 1};
    shape.block = {static_cast<unsigned>(tile_.threads()), 1, 1};
    shape.cluster = {static_cast<unsigned>(tile_.split_k), 1, 1};
    shape.dynamic_shared_bytes = static_cast<unsigned>(tile_.shared_bytes());
    TensorMap map_w = weight.box(box_);
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

struct HopperDecodeTraits {
  using Tile = DecodeTile;
  static constexpr const char* kName = cuda::kName;
  static constexpr const char* kSource = cuda::kSource;
  static constexpr bool kReadsSlabs = true;
  static constexpr auto available = hopper_only<kName>;
  static constexpr auto parse = parse_decode_tile;
  static constexpr auto check = check_decode_tile;
  static Expected<void> check_sm_limit(const Problem& problem, const DecodeTile& tile, std::int64_t max_m) {
    return check_block_limit(kName, problem, decode_blocks(problem, tile, max_m));
  }
  static constexpr auto space = decode_space;
  static constexpr auto predict_us = decode_predict_us;

  static DecodeTile heuristic(const DeviceInfo& device, const Problem& problem, std::int64_t m) {
    // Without a table too, turning Octile on changes no bit: the baseline's order of additions wherever one is not asked.
    Problem in_order = problem;
    in_order.numerics = Numerics::baseline;
    const auto tiles = decode_space(device, in_order, m);
    return tiles.empty() ? DecodeTile{128, 1, 4, 1} : tiles.front();
  }

  static Expected<std::unique_ptr<Kernel>> prepare(const DeviceContext& context, const Problem& problem,
                                                   const DecodeTile& tile, QuantiseKernel quantise) {
    CompileRequest request;
    request.source = kSource;
    request.defines = decode_defines(tile, problem.out_dtype, resolve_accumulate(problem.accumulate), problem.layout);
    request.kernel = "octile_hopper_decode";
    return prepare_with_maps<HopperDecodeKernel>(context, problem, tile, std::move(quantise), request, tile.shared_bytes());
  }
};

}  // namespace

const KernelFamily& hopper_decode_family() {
  static const TileFamily<HopperDecodeTraits> family;
  return family;
}

}  // namespace octile::cuda
