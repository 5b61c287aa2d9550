// SPDX-License-Identifier: Apache-2.0
// The configs of `ada_mma`: what a TileConfig means, which are legal on a device, and the defines they compile to. Knows no
// CUDA: works for devices that are absent.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/device.h"
#include "octile/kernels/family.h"
#include "octile/table/tile_config.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octile::cuda {

// A tile with every key in force. The field's keys mean what they mean to Triton; SWAP_AB makes the channels the 16-row
// operand.
struct AdaTile {
  int block_m = 0;
  int block_n = 0;
  int block_k = 0;
  int warps = 0;
  int stages = 0;
  int group_m = 8;
  int split_k = 1;
  bool swap_ab = false;
  Pdl pdl = Pdl::consume;

  int buffers() const noexcept { return stages > 2 ? stages - 1 : 1; }
};

// How a block's warps share its tile: along the rows of both operands and, for the surplus, along K.
struct WarpGrid {
  int p = 1;  // Along the operand with 16-row fragments: tokens, or channels with SWAP_AB.
  int q = 1;  // Along the one with 8-row fragments.
  int k = 1;
  bool staged = false;  // Outputs pass through shared memory.
};

// The tile of `config`. Errors (invalid_argument) name the key, the value and what is accepted.
Expected<AdaTile> parse_ada_tile(const TileConfig& config);
TileConfig to_config(const AdaTile& tile);

// Dynamic shared memory of a block: the ring of buffers, or the staged outputs where they need more.
std::int64_t shared_bytes(const AdaTile& tile, const WarpGrid& grid) noexcept;
// Registers a thread needs at least: its sums, one step's fragments, addresses.
int estimated_registers(const AdaTile& tile, const WarpGrid& grid) noexcept;
// What ptxas takes for `arch` where nothing limits it, within a few: decides how many blocks share an SM.
int expected_registers(const AdaTile& tile, const WarpGrid& grid, std::string_view arch) noexcept;

// The tile is legal for the problem on the device; the way its warps share it.
Expected<WarpGrid> check_ada_tile(const DeviceInfo& device, const Problem& problem, const AdaTile& tile);

// What a kernel for the tile is compiled with (CompileRequest::defines). `accumulate` as resolved: fast or precise.
std::vector<std::string> ada_defines(const AdaTile& tile, const WarpGrid& grid, DType out_dtype, Accumulate accumulate);

// The library default is fast, as the vendors' row-wise kernels have it.
Accumulate resolve_accumulate(Accumulate wanted) noexcept;

// Fp32 partial sums of split-K for M rows, in bytes; 0 without a split.
std::int64_t partial_bytes(const AdaTile& tile, std::int64_t m, std::int64_t n) noexcept;

// Blocks of a launch for m rows; those that add the parts of a split K count as endless.
double ada_blocks(const Problem& problem, const AdaTile& tile, std::int64_t m) noexcept;

// Every legal tile worth trying at M, the heuristic's own first.
std::vector<AdaTile> ada_space(const DeviceInfo& device, const Problem& problem, std::int64_t m);
AdaTile ada_heuristic(const DeviceInfo& device, const Problem& problem, std::int64_t m);
double ada_predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m, const AdaTile& tile);

}  // namespace octile::cuda
