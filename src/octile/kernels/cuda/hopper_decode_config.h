// SPDX-License-Identifier: Apache-2.0
// The configs of `hopper_decode`: meaning, legality, search space and cost model. Knows no CUDA.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/cuda/pdl_mode.h"
#include "octile/kernels/device.h"
#include "octile/kernels/family.h"
#include "octile/table/tile_config.h"

#include <cstdint>
#include <string>
#include <vector>

namespace octile::cuda {

inline constexpr int kDecodeRows = 64;  // Channels of a block.

struct DecodeTile {
  int tokens = 8;    // Columns of one multiplication: 8..64 in steps of 8, then 80, 96, 112, 128.
  int k_chunks = 2;  // 128-byte chunks of K a stage.
  int stages = 6;
  int split_k = 1;  // Blocks of a cluster along K: 1, 2, 4, 8.
  PdlMode pdl = PdlMode::consume;

  std::int64_t stage_bytes() const noexcept { return std::int64_t{128} * k_chunks * (kDecodeRows + tokens); }
  // Dynamic shared memory of a block: the ring and two barriers a stage.
  std::int64_t shared_bytes() const noexcept { return stages * (stage_bytes() + 16); }
};

Expected<DecodeTile> parse_decode_tile(const TileConfig& config);
TileConfig to_config(const DecodeTile& tile);
Expected<void> check_decode_tile(const DeviceInfo& device, const Problem& problem, const DecodeTile& tile);
std::vector<std::string> decode_defines(const DecodeTile& tile, DType out_dtype, Accumulate accumulate);
// Legal tiles worth trying at M, best predicted first.
std::vector<DecodeTile> decode_space(const DeviceInfo& device, const Problem& problem, std::int64_t m);
double decode_predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m, const DecodeTile& tile);

}  // namespace octile::cuda
