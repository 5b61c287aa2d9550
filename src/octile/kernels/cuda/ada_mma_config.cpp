// SPDX-License-Identifier: Apache-2.0
// Legal configs of `ada_mma`, how warps share a tile, and the defines of a config.
#include "octile/kernels/cuda/ada_mma_config.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/config_keys.h"
#include "octile/kernels/known_devices.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace octile::cuda {
namespace {

constexpr int kMaxRegisters = 255;      // Of a thread.
constexpr int kRegistersPerSm = 65536;  // Of a block, too.
constexpr int kMaxThreads = 1024;
constexpr int kMaxSums = 128;  // fp32 sums a thread can hold beside its fragments.
// Up to here, splitting K among warps costs less than the shared-memory reads it saves; where operands are unpacked, a read
// costs that, too: most where we do it ourselves, once a fragment.
constexpr int kFewSums = 32;
constexpr int kFewSumsEmulated = 64;
constexpr int kFewSumsHalves = kMaxSums;

constexpr std::array kKeys = {
    ConfigKey{"BLOCK_SIZE_M", 8, 256, std::nullopt, KeyValues::tile_sides},
    ConfigKey{"BLOCK_SIZE_N", 16, 256, std::nullopt, KeyValues::tile_sides},
    ConfigKey{"BLOCK_SIZE_K", 32, 1024, std::nullopt, KeyValues::powers_of_two},
    ConfigKey{"num_warps", 1, 16, std::nullopt, KeyValues::powers_of_two},
    ConfigKey{"num_stages", 1, 16, std::nullopt},
    ConfigKey{"GROUP_SIZE_M", 1, 1024, 8},
    ConfigKey{"SPLIT_K", 1, 16, 1},
    ConfigKey{"SWAP_AB", 0, 1, 0},
    ConfigKey{"PDL", 0, 2, 1},
};

// ptxas emulates the e4m3 instruction: sm_100. On sm_90 the kernel multiplies as fp16 (kAsHalves in ada_mma.cuh).
bool emulated(std::string_view arch) noexcept {
  const int capability = compute_capability(arch);
  return capability >= 100 && capability < 120;
}
bool multiplies_halves(std::string_view arch) noexcept { return compute_capability(arch) / 10 == 9; }
int few_sums(std::string_view arch) noexcept {
  return multiplies_halves(arch) ? kFewSumsHalves : (emulated(arch) ? kFewSumsEmulated : kFewSums);
}
int register_limit(int threads) noexcept { return std::min(kMaxRegisters, kRegistersPerSm / threads); }

int rows_p(const AdaTile& tile) noexcept { return tile.swap_ab ? tile.block_n : tile.block_m; }
int rows_q(const AdaTile& tile) noexcept { return tile.swap_ab ? tile.block_m : tile.block_n; }
int sums_per_thread(const AdaTile& tile, const WarpGrid& grid) noexcept {
  return rows_p(tile) * rows_q(tile) / (grid.p * grid.q * 32);
}

// The staged outputs' row is padded so that fragments are stored without bank conflicts; kStagePitch in ada_mma.cuh.
std::int64_t staged_bytes(const AdaTile& tile, const WarpGrid& grid) noexcept {
  const std::int64_t pitch = tile.block_n + (tile.swap_ab ? 4 : 8);
  return std::int64_t{4} * grid.k * tile.block_m * pitch;
}

Error illegal(const AdaTile& tile, std::string_view reason) {
  return make_error(ErrorCode::invalid_argument, "ada_mma: {} is not legal: {}", to_config(tile).to_json(), reason);
}

// With one order along K for every tile, a row's bits do not depend on M: no split of K among blocks or warps, the tokens as
// the 16-row operand, promotion at multiples of 128 (or nowhere).
Expected<void> check_one_order(const DeviceInfo& device, const Problem& problem, const AdaTile& tile, const WarpGrid& grid) {
  if (tile.split_k > 1 || tile.swap_ab) {
    return illegal(tile, "batch-invariant mode allows no SPLIT_K > 1 and no SWAP_AB");
  }
  if (resolve_accumulate(problem.accumulate) == Accumulate::precise) {
    if (tile.block_k < 128) {
      return illegal(tile, "batch-invariant precise accumulation wants BLOCK_SIZE_K >= 128");
    }
  } else if (emulated(device.arch) && sums_per_thread(tile, grid) >= kMaxSums) {
    return illegal(tile, format("a tile of {} sums a thread promotes them on {}, which batch-invariant fast mode excludes",
                                sums_per_thread(tile, grid), device.arch));
  }
  return {};
}

// The way for the warps to share the tile that reads the fewest bytes from shared memory.
Expected<WarpGrid> plan_warps(const AdaTile& tile, const DeviceInfo& device, int most_k_groups) {
  const std::int64_t shared_limit = device.shared_memory_bytes;
  const int few = few_sums(device.arch);
  const int p = rows_p(tile);
  const int q = rows_q(tile);
  std::optional<WarpGrid> best;
  std::array<int, 3> best_cost = {};
  for (int k = 1; k <= std::min(tile.warps, most_k_groups); k *= 2) {
    for (int along_p = 1; along_p <= tile.warps / k; along_p *= 2) {
      const int along_q = tile.warps / k / along_p;
      if (p % (16 * along_p) != 0 || q % (8 * along_q) != 0 || tile.block_k / k < 32) {
        continue;
      }
      const WarpGrid grid = {along_p, along_q, k, k > 1 || tile.swap_ab};
      const int sums = sums_per_thread(tile, grid);
      if (sums > kMaxSums || (grid.staged && staged_bytes(tile, grid) > shared_limit)) {
        continue;
      }
      // A split of K is a choice: only where registers suffice, and two K steps a slice beside many sums.
      if (k > 1 && (estimated_registers(tile, grid) > register_limit(tile.warps * 32) ||
                    (sums > kFewSumsEmulated && tile.block_k / k < 64))) {
        continue;
      }
      // Bytes read from shared memory a byte of K, and fewer K groups where that ties.
      const std::array<int, 3> cost = {k > 1 && sums > few ? 1 : 0, along_q * p + along_p * q, k};
      if (!best || cost < best_cost) {
        best = grid;
        best_cost = cost;
      }
    }
  }
  if (!best) {
    return illegal(tile, format("{} warps cannot share it: want whole fragments of 16 x 8 outputs and 32 bytes of K for "
                                "each warp, {} sums a thread "
                                "and {} bytes of staged outputs at most",
                                tile.warps, kMaxSums, shared_limit));
  }
  return *best;
}

}  // namespace

Expected<AdaTile> parse_ada_tile(const TileConfig& config) {
  const auto found = config_values("ada_mma", config, kKeys);
  if (!found) {
    return found.error();
  }
  const std::vector<int>& values = *found;
  AdaTile tile;
  tile.block_m = values[0];
  tile.block_n = values[1];
  tile.block_k = values[2];
  tile.warps = values[3];
  tile.stages = values[4];
  tile.group_m = values[5];
  tile.split_k = values[6];
  tile.swap_ab = values[7] != 0;
  tile.pdl = static_cast<Pdl>(values[8]);
  if (tile.block_m < 16 && !tile.swap_ab) {
    return illegal(tile, "BLOCK_SIZE_M below 16 wants SWAP_AB = 1");
  }
  return tile;
}

TileConfig to_config(const AdaTile& tile) {
  const AdaTile defaults;
  TileConfig config;
  config.set("BLOCK_SIZE_M", tile.block_m);
  config.set("BLOCK_SIZE_N", tile.block_n);
  config.set("BLOCK_SIZE_K", tile.block_k);
  config.set("num_warps", tile.warps);
  config.set("num_stages", tile.stages);
  if (tile.group_m != defaults.group_m) {
    config.set("GROUP_SIZE_M", tile.group_m);
  }
  if (tile.split_k != defaults.split_k) {
    config.set("SPLIT_K", tile.split_k);
  }
  if (tile.swap_ab) {
    config.set("SWAP_AB", 1);
  }
  if (tile.pdl != defaults.pdl) {
    config.set("PDL", static_cast<std::int64_t>(tile.pdl));
  }
  return config;
}

std::int64_t shared_bytes(const AdaTile& tile, const WarpGrid& grid) noexcept {
  const std::int64_t ring = std::int64_t{tile.buffers()} * (tile.block_m + tile.block_n) * tile.block_k;
  return grid.staged ? std::max(ring, staged_bytes(tile, grid)) : ring;
}

int estimated_registers(const AdaTile& tile, const WarpGrid& grid) noexcept {
  constexpr int kAddresses = 40;
  return sums_per_thread(tile, grid) + rows_q(tile) / grid.q / 8 * 2 + 4 + kAddresses;
}

int expected_registers(const AdaTile& tile, const WarpGrid& grid, std::string_view arch) noexcept {
  if (!multiplies_halves(arch)) {
    return std::min(kMaxRegisters, estimated_registers(tile, grid) + 24);
  }
  const int fragments = rows_p(tile) / grid.p / 16 + rows_q(tile) / grid.q / 8;
  return std::min(kMaxRegisters, sums_per_thread(tile, grid) + 36 + 4 * fragments);
}

Expected<WarpGrid> check_ada_tile(const DeviceInfo& device, const Problem& problem, const AdaTile& tile) {
  if (problem.numerics == Numerics::baseline) {
    return illegal(tile, "numerics=baseline asks for the bits of the vendor's kernel, which mma.sync does not give");
  }
  const int threads = tile.warps * 32;
  auto grid = plan_warps(tile, device, problem.batch_invariant ? 1 : tile.warps);
  if (!grid) {
    return grid.error();
  }
  if (const std::int64_t bytes = shared_bytes(tile, *grid); bytes > device.shared_memory_bytes) {
    return illegal(
        tile, format("{} bytes of shared memory, {} allows {} a block", bytes, device.name, device.shared_memory_bytes));
  }
  const int limit = register_limit(threads);
  if (const int registers = estimated_registers(tile, *grid); threads > kMaxThreads || registers > limit) {
    return illegal(tile, format("about {} registers a thread, {} threads allow {}", registers, threads, limit));
  }
  if (problem.batch_invariant) {
    if (auto ok = check_one_order(device, problem, tile, *grid); !ok) {
      return ok.error();
    }
  }
  return grid;
}

std::vector<std::string> ada_defines(const AdaTile& tile, const WarpGrid& grid, DType out_dtype, Accumulate accumulate) {
  const int out_type = out_dtype == DType::bf16 ? 0 : (out_dtype == DType::fp16 ? 1 : 2);
  return {format("BLOCK_SIZE_M={}", tile.block_m),
          format("BLOCK_SIZE_N={}", tile.block_n),
          format("BLOCK_SIZE_K={}", tile.block_k),
          format("NUM_WARPS={}", tile.warps),
          format("NUM_STAGES={}", tile.stages),
          format("GROUP_SIZE_M={}", tile.group_m),
          format("SPLIT_K={}", tile.split_k),
          format("SWAP_AB={}", tile.swap_ab ? 1 : 0),
          format("WARPS_P={}", grid.p),
          format("WARPS_Q={}", grid.q),
          format("WARPS_K={}", grid.k),
          format("STAGED={}", grid.staged ? 1 : 0),
          format("OUT_TYPE={}", out_type),
          format("PRECISE={}", accumulate == Accumulate::precise ? 1 : 0)};
}

Accumulate resolve_accumulate(Accumulate wanted) noexcept {
  return wanted == Accumulate::precise ? Accumulate::precise : Accumulate::fast;
}

std::int64_t partial_bytes(const AdaTile& tile, std::int64_t m, std::int64_t n) noexcept {
  return tile.split_k > 1 ? std::int64_t{4} * tile.split_k * m * ((n + 3) / 4 * 4) : 0;
}

}  // namespace octile::cuda
