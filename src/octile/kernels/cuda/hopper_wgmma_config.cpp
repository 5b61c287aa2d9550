// SPDX-License-Identifier: Apache-2.0
// Legal configs of `hopper_wgmma`, and the defines of a config.
#include "octile/kernels/cuda/hopper_wgmma_config.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/config_keys.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace octile::cuda {
namespace {

constexpr int kRegistersPerSm = 65536;
constexpr int kMostRowBlocks = 3;
constexpr int kMostPieces = 4;
// ptxas wants every operand of one instruction within the registers that a thread starts with.
constexpr int kMostColumnsOfThreeGroups = 192;

constexpr std::array kKeys = {ConfigKey{"BLOCK_SIZE_M", 16, 256, std::nullopt},
                              ConfigKey{"BLOCK_SIZE_N", 16, 256, std::nullopt},
                              ConfigKey{"BLOCK_SIZE_K", 128, 256, 128, KeyValues::powers_of_two},
                              ConfigKey{"num_stages", 2, 32, std::nullopt},
                              ConfigKey{"WARPGROUPS", 1, 3, 2},
                              ConfigKey{"PINGPONG", 0, 1, 0},
                              ConfigKey{"CLUSTER_M", 1, 2, 1},
                              ConfigKey{"CLUSTER_N", 1, 2, 1},
                              ConfigKey{"GROUP_SIZE_M", 1, 1024, 8},
                              ConfigKey{"PAIRS", 0, 1, 0},
                              ConfigKey{"PREFETCH", 0, 32, 0},
                              ConfigKey{"SWAP", 0, 1, 0},
                              ConfigKey{"WINDOW", 0, 256, 0},
                              ConfigKey{"PDL", 0, 2, 1}};

Error illegal(const WgmmaTile& tile, std::string_view reason) {
  return make_error(ErrorCode::invalid_argument, "hopper_wgmma: {} is not legal: {}", to_config(tile).to_json(), reason);
}

}  // namespace

Expected<WgmmaTile> parse_wgmma_tile(const TileConfig& config) {
  const auto found = config_values("hopper_wgmma", config, kKeys);
  if (!found) {
    return found.error();
  }
  const std::vector<int>& values = *found;
  WgmmaTile tile;
  tile.tokens = values[0];
  tile.channels = values[1];
  tile.block_k = values[2];
  tile.stages = values[3];
  tile.groups = values[4];
  tile.in_turn = values[5] != 0;
  tile.cluster_m = values[6];
  tile.cluster_n = values[7];
  tile.group_m = values[8];
  tile.pairs = values[9] != 0;
  tile.prefetch = values[10];
  tile.swap = values[11] != 0;
  tile.window = values[12];
  tile.pdl = static_cast<Pdl>(values[13]);
  return tile;
}

TileConfig to_config(const WgmmaTile& tile) {
  const WgmmaTile defaults;
  TileConfig config;
  const auto set_unless = [&](const char* key, int value, int fallback) {
    if (value != fallback) {
      config.set(key, value);
    }
  };
  config.set("BLOCK_SIZE_M", tile.tokens);
  config.set("BLOCK_SIZE_N", tile.channels);
  set_unless("BLOCK_SIZE_K", tile.block_k, defaults.block_k);
  config.set("num_stages", tile.stages);
  set_unless("WARPGROUPS", tile.groups, defaults.groups);
  set_unless("PINGPONG", tile.in_turn ? 1 : 0, 0);
  set_unless("CLUSTER_M", tile.cluster_m, defaults.cluster_m);
  set_unless("CLUSTER_N", tile.cluster_n, defaults.cluster_n);
  set_unless("GROUP_SIZE_M", tile.group_m, defaults.group_m);
  set_unless("PAIRS", tile.pairs ? 1 : 0, 0);
  set_unless("PREFETCH", tile.prefetch, defaults.prefetch);
  set_unless("SWAP", tile.swap ? 1 : 0, 0);
  set_unless("WINDOW", tile.window, defaults.window);
  set_unless("PDL", static_cast<int>(tile.pdl), static_cast<int>(defaults.pdl));
  return config;
}

std::int64_t WgmmaTile::shared_bytes(DType out_dtype) const noexcept {
  // Two slabs of outputs a warpgroup: 16 tokens of 16-bit channels or eight of fp32, swapped 64 bytes of channels of its
  // tokens; kSlabBytes and kScales of hopper_wgmma.cuh.
  constexpr std::int64_t kSwappedBytes = 64;
  const std::int64_t group_rows = std::int64_t{64} * row_blocks();
  const std::int64_t slab_tokens = swap ? group_rows : (size_of(out_dtype) == 4 ? 8 : 16);
  const std::int64_t slabs = 2 * slab_tokens * ((swap ? kSwappedBytes : group_rows * size_of(out_dtype)) + 16);
  const std::int64_t scales = 4 * (swap ? std::int64_t{2} * channels + group_rows : 2 * group_rows + tokens);
  return stages * (stage_bytes() + 16) + groups * (slabs + scales);
}

int WgmmaTile::registers(Accumulate accumulate) const noexcept {
  constexpr int kBesideSums = 36;  // Seen with no spills: 27 to 36, and two more for each row block.
  const int held = row_blocks() * columns() / 2 + kBesideSums + 2 * row_blocks();
  if (accumulate != Accumulate::precise) {
    return held;
  }
  if (const Promotion promotion = promotion_of(*this); promotion.pieces != 0) {
    return held + promotion.sets * columns() / 2 / promotion.pieces;
  }
  int pieces = kMostPieces;  // The most that there may be, which do not fit either.
  while (columns() % (8 * pieces) != 0 && pieces > 1) {
    --pieces;
  }
  return held + columns() / 2 / pieces;
}

Promotion promotion_of(const WgmmaTile& tile) noexcept {
  // Of a piece, where two sets take turns: narrower multiplications wait for shared memory, and one set with wider ones was
  // faster (3 to 4 % with 128 instead of 64).
  constexpr int kFewestColumns = 96;
  const int held = tile.registers(Accumulate::fast);
  const auto fits = [&](int pieces, int sets) {
    return tile.columns() % (8 * pieces) == 0 && held + sets * tile.columns() / 2 / pieces <= tile.most_registers();
  };
  for (int pieces = 1; pieces <= kMostPieces; ++pieces) {
    const bool several = tile.block_k / 128 * tile.row_blocks() * pieces >= 2;  // Units of a stage.
    if (several && (pieces == 1 || tile.columns() / pieces >= kFewestColumns) && fits(pieces, 2)) {
      return {pieces, 2};
    }
  }
  for (int pieces = 1; pieces <= kMostPieces; ++pieces) {
    if (fits(pieces, 1)) {
      return {pieces, 1};
    }
  }
  return {};
}

int WgmmaTile::most_registers() const noexcept {
  // What hopper_wgmma.cuh moves from the warps that request to those that multiply; a single warpgroup needs nothing moved.
  return groups == 1 ? 255 : (groups == 2 ? 232 : 160);
}

TileCounts tile_counts(const WgmmaTile& tile, std::int64_t m, std::int64_t n) noexcept {
  const std::int64_t of_m = std::int64_t{tile.tokens} * tile.cluster_m;
  const std::int64_t of_n = std::int64_t{tile.channels} * tile.cluster_n;
  return {(m + of_m - 1) / of_m, (n + of_n - 1) / of_n};
}

int resident_blocks(const Problem& problem, const WgmmaTile& tile) noexcept {
  constexpr int kOften = 2;
  const bool fits = kOften * (tile.shared_bytes(problem.out_dtype) + kSharedPerBlock) <= kSharedPerSm &&
                    kOften * tile.threads() * (tile.registers(problem.accumulate) + 8) <= kRegistersPerSm;
  return tile.groups == 1 && fits && problem.max_sms == 0 ? kOften : 1;
}

std::int64_t clusters_at_once(const DeviceInfo& device, const Problem& problem, const WgmmaTile& tile) noexcept {
  const int together = tile.started_together();
  const std::int64_t started = std::max(usable_sms(device, problem) / together, 1);
  return started * (together / tile.cluster()) * resident_blocks(problem, tile);
}

Expected<void> check_wgmma_tile(const DeviceInfo& device, const Problem& problem, const WgmmaTile& tile) {
  const char* const rows_key = tile.swap ? "BLOCK_SIZE_M" : "BLOCK_SIZE_N";
  const char* const columns_key = tile.swap ? "BLOCK_SIZE_N" : "BLOCK_SIZE_M";
  if (tile.columns() % 8 != 0) {
    return illegal(tile, format("{}: want a multiple of 8 {}", columns_key, tile.swap ? "channels" : "tokens"));
  }
  if (tile.in_turn && tile.groups < 2) {
    return illegal(tile, "PINGPONG wants two WARPGROUPS or more");
  }
  const int share = 64 * (tile.in_turn ? 1 : tile.groups);
  if (tile.rows() % share != 0 || tile.row_blocks() > kMostRowBlocks) {
    return illegal(tile, format("{}: want a multiple of {} {}, {} at most", rows_key, share,
                                tile.swap ? "tokens" : "channels", kMostRowBlocks * share));
  }
  if (tile.cluster() > 2) {
    return illegal(tile, "CLUSTER_M and CLUSTER_N: want one of them to be 1");
  }
  if (tile.pairs && tile.cluster() != 1) {
    return illegal(tile, "PAIRS = 1 wants CLUSTER_M = 1 and CLUSTER_N = 1");
  }
  if (tile.cluster_n == 2 && tile.tokens % 16 != 0) {
    return illegal(tile, "CLUSTER_N = 2 wants BLOCK_SIZE_M to be a multiple of 16");
  }
  if (tile.cluster_m == 2 && tile.channels % 16 != 0) {
    return illegal(tile, "CLUSTER_M = 2 wants BLOCK_SIZE_N to be a multiple of 16");
  }
  if (problem.layout == WeightLayout::slab64 && tile.channels / tile.cluster_m % 16 != 0) {
    return illegal(tile, "of weights in slabs a block asks for channels in steps of 16: want BLOCK_SIZE_N / CLUSTER_M so");
  }
  if (tile.groups == 3 && tile.columns() > kMostColumnsOfThreeGroups) {
    return illegal(tile, format("three WARPGROUPS want {} <= {}", columns_key, kMostColumnsOfThreeGroups));
  }
  if (const int wanted = tile.registers(problem.accumulate), most = tile.most_registers(); wanted > most) {
    return illegal(tile, format("sums want about {} registers a thread, {} threads have {}", wanted, tile.threads(), most));
  }
  if (const std::int64_t bytes = tile.shared_bytes(problem.out_dtype); bytes > device.shared_memory_bytes) {
    return illegal(
        tile, format("{} bytes of shared memory, {} allows {} a block", bytes, device.name, device.shared_memory_bytes));
  }
  if (problem.max_sms > 0 && tile.started_together() > problem.max_sms) {
    return illegal(
        tile, format("a cluster of {} blocks does not fit {} multiprocessors", tile.started_together(), problem.max_sms));
  }
  if (problem.batch_invariant && problem.numerics != Numerics::baseline) {
    return illegal(tile, "batch-invariant mode is served by one family for every M; with numerics=baseline by this one");
  }
  return {};
}

std::vector<std::string> wgmma_defines(const WgmmaTile& tile, DType out_dtype, Accumulate accumulate, WeightLayout layout) {
  const int out_type = out_dtype == DType::bf16 ? 0 : (out_dtype == DType::fp16 ? 1 : 2);
  const Promotion promotion = accumulate == Accumulate::precise ? promotion_of(tile) : Promotion{1, 1};
  return {format("BLOCK_SIZE_M={}", tile.tokens),
          format("BLOCK_SIZE_N={}", tile.channels),
          format("BLOCK_SIZE_K={}", tile.block_k),
          format("STAGES={}", tile.stages),
          format("GROUPS={}", tile.groups),
          format("PINGPONG={}", tile.in_turn ? 1 : 0),
          format("CLUSTER_M={}", tile.cluster_m),
          format("CLUSTER_N={}", tile.cluster_n),
          format("PIECES={}", promotion.pieces),
          format("PARTS={}", promotion.sets),
          format("SWAP={}", tile.swap ? 1 : 0),
          format("OUT_TYPE={}", out_type),
          format("PRECISE={}", accumulate == Accumulate::precise ? 1 : 0),
          format("SLAB={}", layout == WeightLayout::slab64 ? 1 : 0)};
}

}  // namespace octile::cuda
