// SPDX-License-Identifier: Apache-2.0
// What a config of the CPU families means, and how it cuts the work.
//
//   MICRO_M  rows of a register tile, [1, the engine's limit for MICRO_N]
//   MICRO_N  columns of a register tile: 16, 32, 48 or 64 as the engine has them
//   BLOCK_M  rows of a unit of work, [1, 65536]; a unit's rows are cut evenly into tiles of at most MICRO_M
//   BLOCK_N  columns of a unit of work, a multiple of 64 in [64, 4096]
//   BLOCK_K  elements of K of one pass, a multiple of 32 in [32, 65536]; between passes, partial sums rest in scratch
//   DECODE   0: every tile decodes its weights in registers; 1: a pass decodes them ahead, into scratch; 2: the first tile
//            of each strip of columns decodes in registers and keeps the result in scratch for the other rows
//   PREFETCH bytes of codes asked for ahead, a multiple of 64 in [0, 65536]
//   DOT      avx512 only. 1: VDPBF16PS on bf16 (needs BF16 and VBMI); 0: fp32 FMA
//
//            BLOCK_N                        A unit: for each pass of BLOCK_K: [decode], then for each strip of MICRO_N
//          +---------+---------+            columns, for each MICRO_M rows: one tile. Threads take units in turn; the
//  BLOCK_M | unit 0  | unit 2  | ...        units of one strip of columns are neighbours, so that its weights come from
//          +---------+---------+            memory once.
//          | unit 1  | unit 3  |
#pragma once

#include "octile/kernels/cpu/engine.h"
#include "octile/kernels/cpu/partition.h"
#include "octile/kernels/family.h"
#include "octile/table/tile_config.h"

#include <cstdint>

namespace octile::cpu {

struct GemmConfig {
  int micro_m = 1;
  int micro_n = 16;
  std::int64_t block_m = 1;
  std::int64_t block_n = kGroupColumns;
  std::int64_t block_k = kPaddingK;
  Decode decode = Decode::in_registers;
  std::int64_t prefetch_bytes = 0;
  bool dot = false;
};

// Keys in the order above; DOT only where `has_dot`.
TileConfig to_tile_config(const GemmConfig& config, bool has_dot);
// Reads and checks keys and ranges that depend on nothing else. The Error names key, value and limit. Every key is required.
Expected<GemmConfig> parse_gemm_config(const TileConfig& config, bool has_dot);
// The limits of an engine: the register tile, and the scratch of one thread (at most kLargestScratchBytes).
Expected<void> check_for_engine(const GemmConfig& config, const Engine& engine, std::int64_t n, std::int64_t k);

inline constexpr std::int64_t kLargestScratchBytes = std::int64_t{64} << 20;

// Everything about one call that follows from config, shape and M.
struct GemmPlan {
  GemmConfig config;
  const Engine* engine = nullptr;
  std::int64_t m = 0, n = 0, padded_k = 0;
  std::int64_t threads = 1;

  Partition row_units() const noexcept { return Partition::with_largest(m, config.block_m); }
  Partition row_tiles(std::int64_t rows) const noexcept { return Partition::with_largest(rows, config.micro_m); }
  std::int64_t column_units() const noexcept { return (n + config.block_n - 1) / config.block_n; }
  std::int64_t passes() const noexcept { return (padded_k + config.block_k - 1) / config.block_k; }

  // Bytes of the parts of the workspace, each a multiple of 64: scales [m], activations, and scratch of each thread.
  std::int64_t scale_bytes() const noexcept;
  std::int64_t activation_bytes() const noexcept;
  std::int64_t decoded_bytes() const noexcept;  // Of one pass of a unit; 0 where tiles decode in registers.
  std::int64_t partial_bytes() const noexcept;  // Partial sums of a unit; 0 where one pass does it.
  std::int64_t scratch_bytes() const noexcept { return decoded_bytes() + partial_bytes(); }
  std::int64_t workspace_bytes() const noexcept { return scale_bytes() + activation_bytes() + threads * scratch_bytes(); }

  // Byte offset of a row's tile in the activations, the row's place in it and the tile's rows.
  struct RowPlace {
    std::int64_t tile_offset_bytes = 0;
    std::int64_t row_in_tile = 0;
    std::int64_t tile_rows = 0;
  };
  RowPlace place_of_row(std::int64_t row) const noexcept;
};

}  // namespace octile::cpu
