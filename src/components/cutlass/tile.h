// SPDX-License-Identifier: Apache-2.0
// What a compiled tile gives to the component, and the list of tiles.
#pragma once

#include "octile/kernels/cuda/cutlass_abi.h"

#include <cuda_runtime_api.h>

namespace octile::cutlass_component {

struct Tile {
  int m, n, k;
  int warp_m, warp_n, warp_k;
  int stages;
};

#define OCTILE_CUTLASS_TILE(...) Tile{__VA_ARGS__},
inline constexpr Tile kTiles[] = {
#include "tiles.def"
};
#undef OCTILE_CUTLASS_TILE
inline constexpr int kTileCount = static_cast<int>(sizeof(kTiles) / sizeof(kTiles[0]));

struct TileKernel {
  OctileCutlassConfig config;
  cudaError_t (*prepare)(bool precise);  // Of an accumulation mode that the config has.
  cudaError_t (*run)(const OctileCutlassProduct& product, cudaStream_t stream);
};

// Defined by tile.cu, compiled with OCTILE_CUTLASS_TILE_INDEX=index.
template <int index>
const TileKernel& tile_kernel();

}  // namespace octile::cutlass_component
