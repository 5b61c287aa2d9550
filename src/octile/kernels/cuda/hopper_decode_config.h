// SPDX-License-Identifier: Apache-2.0
// The configs of `hopper_decode`: meaning, legality, search space and cost model. Knows no CUDA.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/device.h"
#include "octile/kernels/family.h"
#include "octile/table/tile_config.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace octile::cuda {

struct DecodeTile {
  int tokens = 8;    // Columns of one multiplication: 8..64 in steps of 8, then 80, 96, 112, 128.
  int k_chunks = 2;  // 128-byte chunks of K a stage.
  int stages = 6;
  int split_k = 1;  // Blocks of a cluster along K: 1, 2, 4, 8.
  int rows = 64;    // Channels of a block: 32, 48, 64, 128, 192, 256; with `swap` also 96, and none above 128.
  int chains = 1;   // Independent sums along K in fast mode: 1, 2, 4.
  int window = 0;   // KiB of weights under way at most; 0: the ring's whole.
  int early = 0;    // 1: a block asks for its first weights before all of its threads are there.
  int swap = 0;     // 1: the tokens are the 64-row operand of a multiplication, the channels the other.
  Pdl pdl = Pdl::consume;

  int groups() const noexcept { return swap != 0 ? tokens / 64 : (rows + 63) / 64; }  // Warpgroups that multiply.
  int threads() const noexcept { return 128 * groups() + 64; }                        // And two warps that request.
  int registers(Accumulate accumulate) const noexcept;                                // About what a thread wants.
  int most_registers() const noexcept;                                                // What it can have.
  std::int64_t stage_bytes() const noexcept { return std::int64_t{128} * k_chunks * (std::int64_t{rows} + tokens); }
  // Of the weight's tensor map that the block reads.
  int rows_of_box() const noexcept { return rows == 96 ? 48 : std::min(rows, 64); }
  // The same of a weight in slabs, of which a box lies in one.
  int rows_of_slab_box() const noexcept { return rows == 48 ? 16 : (rows % 64 == 0 ? 64 : 32); }
  // Stages of weights under way at most: those of `window`, at least one.
  std::int64_t window_stages() const noexcept {
    const std::int64_t stage_of_weights = std::int64_t{128} * k_chunks * rows;
    return window == 0 ? stages : std::clamp<std::int64_t>(std::int64_t{1024} * window / stage_of_weights, 1, stages);
  }
  // Dynamic shared memory of a block: the ring, what a multiplication of 64 rows reads behind fewer, three barriers a stage,
  // the scales.
  std::int64_t shared_bytes() const noexcept {
    const std::int64_t behind = swap == 0 && rows < 64 ? std::int64_t{128} * (64 - rows) : 0;
    return stages * (stage_bytes() + 24) + 8 + behind + std::int64_t{4} * (rows + tokens);
  }
};

Expected<DecodeTile> parse_decode_tile(const TileConfig& config);
TileConfig to_config(const DecodeTile& tile);
Expected<void> check_decode_tile(const DeviceInfo& device, const Problem& problem, const DecodeTile& tile);
// Blocks of a launch for m rows.
double decode_blocks(const Problem& problem, const DecodeTile& tile, std::int64_t m) noexcept;
std::vector<std::string> decode_defines(const DecodeTile& tile, DType out_dtype, Accumulate accumulate,
                                        WeightLayout layout = WeightLayout::row_major);
// Legal tiles worth trying at M, best predicted first.
std::vector<DecodeTile> decode_space(const DeviceInfo& device, const Problem& problem, std::int64_t m);
double decode_predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m, const DecodeTile& tile);

}  // namespace octile::cuda
