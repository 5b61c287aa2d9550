// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's algorithms named by their attributes, as table entries hold them, and the search for fast ones.
//
// The row-wise mode's heuristic returns one algorithm, always a 128 x 128 tile; better ones are in the library. The search
// takes what the heuristic returns for scalar scales, and the tiles x clusters x custom options of the same algorithm ids,
// as far as cublasLtMatmulAlgoCheck accepts them under the row-wise descriptor.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/cuda/cublaslt.h"
#include "octile/table/tile_config.h"

#include <cstdint>
#include <vector>

namespace octile::cuda {

// The names of a config's values; all but algo_id may be missing and are then cuBLASLt's defaults.
inline constexpr const char* kAlgoId = "algo_id";
inline constexpr const char* kTileId = "tile_id";
inline constexpr const char* kStagesId = "stages_id";
inline constexpr const char* kClusterShapeId = "cluster_shape_id";
inline constexpr const char* kCustomOption = "custom_option";
inline constexpr const char* kInnerShapeId = "inner_shape_id";
inline constexpr const char* kSplitK = "split_k";
inline constexpr const char* kReductionScheme = "reduction_scheme";
inline constexpr const char* kSwizzle = "swizzle";

// Every name known, every value in its type's range. An empty config is legal: cuBLASLt's own choice.
Expected<void> check_algorithm_config(const TileConfig& config);
// The algorithm of a config that is not empty. Errors: cuBLASLt refuses the id or a value.
Expected<cublasLtMatmulAlgo_t> make_algorithm(const LtDevice& device, const Product& product, const TileConfig& config);
TileConfig config_of(const CublasLt& api, const cublasLtMatmulAlgo_t& algorithm);

// A tile's size by its id: weight rows x tokens. {0, 0} for an unknown id.
struct LtTile {
  int rows = 0;
  int tokens = 0;
};
LtTile lt_tile(std::int64_t tile_id) noexcept;
// Number of ids known: the largest is this number.
std::int64_t lt_tile_count() noexcept;
// Blocks of a cluster along weight rows and tokens by its id; {1, 1} for an unknown id.
LtTile lt_cluster(std::int64_t cluster_shape_id) noexcept;

// Predicted microseconds of a product with a tile on a GPU: whole waves of blocks, each limited by its loads or its
// arithmetic, and all of them by reading the weight once. Only the order matters.
double predict_tile_us(int sms, std::int64_t m, std::int64_t n, std::int64_t k, LtTile tile, LtTile cluster);

// Every algorithm worth timing for the product, all accepted by check_algorithm(): the scalar mode's heuristic choices
// first, then the search's, the best predicted first; at most `limit`.
std::vector<TileConfig> search_algorithms(const LtDevice& device, const Product& product, std::size_t limit);

}  // namespace octile::cuda
