// SPDX-License-Identifier: Apache-2.0
// Launches of slab64.cuh.
#include "octile/kernels/cuda/slab64.h"

#include "octile/core/format.h"

#include <limits>
#include <utility>

namespace octile::cuda {
namespace {

// Slab64Params of slab64.cuh.
struct Slab64Params {
  CUdeviceptr rows;
  CUdeviceptr slabs;
  std::int64_t stride;
  std::uint32_t chunks;
  std::uint32_t row_aligned;
};
static_assert(sizeof(Slab64Params) == 32);

constexpr unsigned kThreads = 128;
constexpr std::int64_t kMostTiles = std::numeric_limits<std::int32_t>::max();  // Blocks of a grid along x.

Expected<LoadedKernel> load(const DeviceContext& context, const char* kernel) {
  CompileRequest request;
  request.source = "slab64.cuh";
  request.kernel = kernel;
  return compile_and_load(context, std::move(request));
}

}  // namespace

Expected<void> check_slab64_shape(std::int64_t n, std::int64_t k) {
  if (n < 1 || k < 1 || n % kSlabChannels != 0 || k % kSlabChunk != 0) {
    return make_error(ErrorCode::invalid_argument,
                      "weight layout {}: want N a multiple of {} and K of {}, got N = {}, K = {}", kSlab64, kSlabChannels,
                      kSlabChunk, n, k);
  }
  return {};
}

Expected<LoadedKernel> load_rows_to_slabs(const DeviceContext& context) { return load(context, "octile_rows_to_slabs"); }
Expected<LoadedKernel> load_slabs_to_rows(const DeviceContext& context) { return load(context, "octile_slabs_to_rows"); }

Expected<void> permute_slabs(const LoadedKernel& kernel, const SlabCodes& codes, CUstream stream) {
  constexpr std::int64_t kVectorBytes = 16;
  const std::int64_t chunks = codes.k / kSlabChunk;
  const std::int64_t tiles = codes.n / kSlabChannels * chunks;
  if (tiles > kMostTiles) {
    return make_error(ErrorCode::invalid_argument, "weight layout {}: want at most {} tiles of {} x {}, got {}", kSlab64,
                      kMostTiles, kSlabChannels, kSlabChunk, tiles);
  }
  Slab64Params params = {};
  params.rows = codes.rows;
  params.slabs = codes.slabs;
  params.stride = codes.stride;
  params.chunks = static_cast<std::uint32_t>(chunks);
  params.row_aligned = codes.rows % kVectorBytes == 0 && codes.stride % kVectorBytes == 0 ? 1 : 0;
  LaunchShape shape;
  shape.grid = {static_cast<unsigned>(tiles), 1, 1};
  shape.block = {kThreads, 1, 1};
  return launch_with(kernel, shape, stream, params);
}

}  // namespace octile::cuda
