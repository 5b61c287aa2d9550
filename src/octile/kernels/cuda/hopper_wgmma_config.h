// SPDX-License-Identifier: Apache-2.0
// The configs of `hopper_wgmma`: meaning, legality, search space and cost model. Knows no CUDA.
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

inline constexpr std::int64_t kSharedPerSm = 228 << 10;
inline constexpr std::int64_t kSharedPerBlock = 1 << 10;  // What the driver keeps of it for each block.

struct WgmmaTile {
  int tokens = 128;      // 16..256 in steps of 8: columns of one multiplication; with `swap` 64..256 in steps of 64.
  int channels = 128;    // 64..256 in steps of 64; with `swap` 16..256 in steps of 8.
  int block_k = 128;     // Elements of K a stage: 128 or 256.
  int stages = 4;        // Of the ring: all of them are buffers.
  int groups = 2;        // Warpgroups that multiply: 1..3.
  bool in_turn = false;  // Each takes a tile of its own, and one writes outputs while another multiplies.
  int cluster_m = 1;     // Token tiles that share the loads of their weights: 1 or 2.
  int cluster_n = 1;     // Tiles of channels that share the loads of their codes: 1 or 2. One of the two only.
  int group_m = 8;       // Token tiles in a row for each tile of channels.
  bool pairs = false;    // Blocks start in clusters of two that load nothing for each other: neighbours on the chip.
  bool swap = false;     // The tokens are the 64-row operand of a multiplication, the channels the other.
  int prefetch = 0;      // Stages of weights asked for before the kernel before has ended; 0: the whole ring.
  int window = 0;        // KiB of weights under way at most; 0: the ring's whole.
  Pdl pdl = Pdl::consume;

  int cluster() const noexcept { return cluster_m * cluster_n; }
  int started_together() const noexcept { return pairs ? 2 : cluster(); }           // Blocks of a cluster of the launch.
  int rows() const noexcept { return swap ? tokens : channels; }                    // Of the 64-row operand,
  int columns() const noexcept { return swap ? channels : tokens; }                 // of the other.
  int row_blocks() const noexcept { return rows() / 64 / (in_turn ? 1 : groups); }  // Of 64 rows, a warpgroup's.
  int threads() const noexcept { return 128 * groups + (groups > 1 ? 128 : 64); }
  int registers(Accumulate accumulate) const noexcept;  // About what a multiplying thread wants.
  int most_registers() const noexcept;                  // What it can have.
  std::int64_t stage_bytes() const noexcept { return std::int64_t{block_k} * (channels + tokens); }
  // Stages of weights under way at most: those of `window`, at least one.
  std::int64_t window_stages() const noexcept {
    return window == 0
               ? stages
               : std::clamp<std::int64_t>(std::int64_t{1024} * window / (std::int64_t{block_k} * channels), 1, stages);
  }
  std::int64_t shared_bytes(DType out_dtype) const noexcept;  // Dynamic, of a block.
  bool operator==(const WgmmaTile&) const = default;
};

// How precise mode adds up: sets of sums of a piece of the columns each, one multiplied and one promoted, or a single one.
struct Promotion {
  int pieces = 0;  // 0: the tile's registers suffice for none.
  int sets = 0;
};
Promotion promotion_of(const WgmmaTile& tile) noexcept;

// Clusters' tiles along M and N.
struct TileCounts {
  std::int64_t m = 0;
  std::int64_t n = 0;
};
TileCounts tile_counts(const WgmmaTile& tile, std::int64_t m, std::int64_t n) noexcept;
// Blocks that an SM holds at once as far as the launch counts on it: 1 or 2. 1 where multiprocessors are to stay free: the
// device spreads blocks over all of them before it gives any two.
int resident_blocks(const Problem& problem, const WgmmaTile& tile) noexcept;

// Clusters of a launch at most.
std::int64_t clusters_at_once(const DeviceInfo& device, const Problem& problem, const WgmmaTile& tile) noexcept;

Expected<WgmmaTile> parse_wgmma_tile(const TileConfig& config);
TileConfig to_config(const WgmmaTile& tile);
Expected<void> check_wgmma_tile(const DeviceInfo& device, const Problem& problem, const WgmmaTile& tile);
std::vector<std::string> wgmma_defines(const WgmmaTile& tile, DType out_dtype, Accumulate accumulate,
                                       WeightLayout layout = WeightLayout::row_major);

// Legal tiles worth trying at M, best predicted first.
std::vector<WgmmaTile> wgmma_space(const DeviceInfo& device, const Problem& problem, std::int64_t m);
WgmmaTile wgmma_heuristic(const DeviceInfo& device, const Problem& problem, std::int64_t m);
double wgmma_predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m, const WgmmaTile& tile);

}  // namespace octile::cuda
