// SPDX-License-Identifier: Apache-2.0
#include "octile/kernels/cuda/hopper_decode_config.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/config_keys.h"
#include "octile/kernels/known_devices.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace octile::cuda {
namespace {

constexpr std::array kRows = {32, 48, 64, 96, 128, 192, 256};
constexpr std::array kTokens = {8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128};
constexpr int kTokensOfTwoChains = 16;  // Wider multiplications fill the time that the sums take.
constexpr int kMostStages = 32;
constexpr int kFewestStages = 3;  // Of a candidate.
constexpr std::int64_t kSharedPerSm = 228 << 10;
constexpr std::int64_t kSharedPerBlock = 1 << 10;  // What the driver keeps of it for each block.

constexpr std::array kKeys = {ConfigKey{"TOKENS", 8, 128, std::nullopt},
                              ConfigKey{"K_CHUNKS", 1, 8, std::nullopt},
                              ConfigKey{"STAGES", 2, 32, std::nullopt},
                              ConfigKey{"SPLIT_K", 1, 8, 1},
                              ConfigKey{"ROWS", 32, 256, 64},
                              ConfigKey{"CHAINS", 1, 4, 1},
                              ConfigKey{"WINDOW", 0, 256, 0},
                              ConfigKey{"EARLY", 0, 1, 0},
                              ConfigKey{"SWAP", 0, 1, 0},
                              ConfigKey{"PDL", 0, 2, 1}};

Error illegal(const DecodeTile& tile, std::string_view reason) {
  return make_error(ErrorCode::invalid_argument, "hopper_decode: {} is not legal: {}", to_config(tile).to_json(), reason);
}

// KiB of weights under way that are worth trying. In a chain a ring fills while others still read and write, and about 48
// KiB an SM keep the memory busy; behind our own quantiser alone there is nobody to disturb.
std::vector<int> windows_of(Pdl mode, const DecodeTile& tile) {
  if (mode != Pdl::full) {
    return {0, 48};
  }
  const std::int64_t resident = std::max<std::int64_t>(1, kSharedPerSm / (tile.shared_bytes() + kSharedPerBlock));
  return resident == 1 ? std::vector{32, 40, 48, 80} : std::vector{8, 16, 24, 48};
}

}  // namespace

Expected<DecodeTile> parse_decode_tile(const TileConfig& config) {
  const auto found = config_values("hopper_decode", config, kKeys);
  if (!found) {
    return found.error();
  }
  const std::vector<int>& values = *found;
  DecodeTile tile;
  tile.tokens = values[0];
  tile.k_chunks = values[1];
  tile.stages = values[2];
  tile.split_k = values[3];
  tile.rows = values[4];
  tile.chains = values[5];
  tile.window = values[6];
  tile.early = values[7];
  tile.swap = values[8];
  tile.pdl = static_cast<Pdl>(values[9]);
  return tile;
}

TileConfig to_config(const DecodeTile& tile) {
  TileConfig config;
  config.set("TOKENS", tile.tokens);
  config.set("K_CHUNKS", tile.k_chunks);
  config.set("STAGES", tile.stages);
  config.set("SPLIT_K", tile.split_k);
  if (tile.rows != DecodeTile{}.rows) {
    config.set("ROWS", tile.rows);
  }
  if (tile.chains != DecodeTile{}.chains) {
    config.set("CHAINS", tile.chains);
  }
  if (tile.window != DecodeTile{}.window) {
    config.set("WINDOW", tile.window);
  }
  if (tile.early != DecodeTile{}.early) {
    config.set("EARLY", tile.early);
  }
  if (tile.swap != DecodeTile{}.swap) {
    config.set("SWAP", tile.swap);
  }
  if (tile.pdl != DecodeTile{}.pdl) {
    config.set("PDL", static_cast<std::int64_t>(tile.pdl));
  }
  return config;
}

Expected<void> check_decode_tile(const DeviceInfo& device, const Problem& problem, const DecodeTile& tile) {
  if (std::ranges::find(kTokens, tile.tokens) == kTokens.end()) {
    return illegal(tile, "TOKENS: want 8..64 in steps of 8, 80, 96, 112 or 128");
  }
  if (tile.split_k != 1 && tile.split_k != 2 && tile.split_k != 4 && tile.split_k != 8) {
    return illegal(tile, "SPLIT_K: want 1, 2, 4 or 8 blocks of a cluster");
  }
  if (std::ranges::find(kRows, tile.rows) == kRows.end()) {
    return illegal(tile, "ROWS: want 32, 48, 64, 96, 128, 192 or 256 channels of a block");
  }
  if (tile.swap == 0 && tile.rows == 96) {
    return illegal(tile, "ROWS = 96 wants SWAP = 1: else a warpgroup multiplies 64 channels");
  }
  if (tile.swap != 0 && (tile.tokens % 64 != 0 || tile.rows > 128)) {
    return illegal(tile, "SWAP = 1 wants TOKENS 64 or 128, a warpgroup multiplying 64 of them, and ROWS up to 128");
  }
  if (tile.shared_bytes() > device.shared_memory_bytes) {
    return illegal(tile, format("{} bytes of shared memory, {} allows {} a block", tile.shared_bytes(), device.name,
                                device.shared_memory_bytes));
  }
  if (const std::int64_t sums = std::int64_t{4} * tile.tokens * (tile.rows + 4); sums > tile.stages * tile.stage_bytes()) {
    return illegal(tile, format("{} bytes of sums do not fit the ring of {}", sums, tile.stages * tile.stage_bytes()));
  }
  if (const int wanted = tile.registers(problem.accumulate), most = tile.most_registers(); wanted > most) {
    return illegal(tile, format("sums want about {} registers a thread, {} threads have {}", wanted, tile.threads(), most));
  }
  if (problem.batch_invariant) {
    return illegal(tile,
                   "batch-invariant mode wants one order of additions for every M, and this family serves small M alone");
  }
  if (tile.chains != 1 && tile.chains != 2 && tile.chains != 4) {
    return illegal(tile, "CHAINS: want 1, 2 or 4");
  }
  if (tile.chains > 1 && problem.numerics == Numerics::baseline) {
    return illegal(tile, "numerics=baseline allows no CHAINS > 1");
  }
  if (tile.split_k > 1 && problem.numerics == Numerics::baseline) {
    return illegal(tile, "numerics=baseline allows no SPLIT_K > 1");
  }
  return {};
}

std::vector<std::string> decode_defines(const DecodeTile& tile, DType out_dtype, Accumulate accumulate,
                                        WeightLayout layout) {
  const int out_type = out_dtype == DType::bf16 ? 0 : (out_dtype == DType::fp16 ? 1 : 2);
  return {format("TOKENS={}", tile.tokens),
          format("K_CHUNKS={}", tile.k_chunks),
          format("STAGES={}", tile.stages),
          format("SPLIT_K={}", tile.split_k),
          format("ROWS={}", tile.rows),
          format("CHAINS={}", tile.chains),
          format("EARLY={}", tile.early),
          format("SWAP={}", tile.swap),
          format("OUT_TYPE={}", out_type),
          format("PRECISE={}", accumulate == Accumulate::precise ? 1 : 0),
          format("SLAB={}", layout == WeightLayout::slab64 ? 1 : 0)};
}

int DecodeTile::registers(Accumulate accumulate) const noexcept {
  constexpr int kBesideSums = 32;  // Seen with no spills: 18 to 32 in fast mode, up to 34 in precise mode.
  const bool precise = accumulate == Accumulate::precise;
  const int sets = precise ? 1 + std::min(k_chunks, 2) : chains;
  return sets * (swap != 0 ? rows : tokens) / 2 + kBesideSums + (precise ? 2 : 0);
}

int DecodeTile::most_registers() const noexcept {
  // A quarter of an SM's 65,536 registers serves every fourth warp; they are given out by eights a thread.
  constexpr int kRegistersOfQuarter = 16384;
  constexpr int kMostOfThread = 255;
  const int warps_of_quarter = (threads() / 32 + 3) / 4;
  return std::min(kRegistersOfQuarter / (32 * warps_of_quarter) / 8 * 8, kMostOfThread);
}

double decode_blocks(const Problem& problem, const DecodeTile& tile, std::int64_t m) noexcept {
  return std::ceil(static_cast<double>(problem.n) / tile.rows) * tile.split_k *
         std::ceil(static_cast<double>(m) / tile.tokens);
}

double decode_predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m, const DecodeTile& tile) {
  if (!check_decode_tile(device, problem, tile)) {
    return HUGE_VAL;
  }
  // Fitted by bench/gpu/fit_decode_model.py to 1,559 timings of the whole linear on an H200 (four shapes, M 1..64, mode
  // full; hopper_decode_sweep.json): of 32 points the best of the configs timed is among the first eight at 26, which lose
  // at most 2.5 % at the others; the first alone loses 4.5 % as a geometric mean. Microseconds, bytes a microsecond, clocks.
  constexpr double kDramRate = 5.01e6;
  constexpr double kSmRate = 203e3;
  constexpr double kLatencyUs = 2.21;
  constexpr double kWindowGain = 6.22;   // A window is asked for again while it lands.
  constexpr double kTokenShare = 0.386;  // A code costs that much of a weight's byte: every block reads the same ones.
  constexpr double kMultiplyClocks = 8.2;
  constexpr double kColumnClocks = 7.8;
  constexpr double kStageClocks = 39.0;
  constexpr double kClocksPerUs = 1700.0;
  constexpr double kMostTogether = 1.55;       // Blocks of an SM that multiply at once gain no more than that.
  constexpr double kQuietBytes = 52.6 * 1024;  // Under way in an SM without anything else having to wait.
  constexpr double kLongest = 0.67;            // The share of the longest of three limits, the rest of their sum.
  constexpr double kChainUs = 1.0;             // From wait to codes and from the last sums to the end.
  const double sms = std::max(device.sm_count, 1);
  const double blocks = decode_blocks(problem, tile, m);
  const double resident = std::max(
      1.0, std::floor(static_cast<double>(kSharedPerSm) / static_cast<double>(tile.shared_bytes() + kSharedPerBlock)));
  const double most = std::ceil(blocks / sms);
  const double together = std::min(most, resident);
  const double waves = std::ceil(most / resident);
  const double chunks = static_cast<double>(problem.k) / 128.0 / tile.split_k;
  const auto tokens = static_cast<double>(std::min<std::int64_t>(m, tile.tokens));
  const double block_bytes = chunks * 128.0 * (tile.rows + kTokenShare * tokens);
  const auto stage_bytes = static_cast<double>(tile.stage_bytes());
  const double window_bytes = 128.0 * tile.k_chunks * tile.rows * static_cast<double>(tile.window_stages());
  const double in_flight = together * std::min(kWindowGain * window_bytes, tile.stages * stage_bytes);
  const double sm_us = most * block_bytes / std::min(kSmRate, in_flight / kLatencyUs);
  const double dram_us = static_cast<double>(problem.n) * static_cast<double>(problem.k) / kDramRate;
  const double chunk_clocks =
      4.0 * std::max(kMultiplyClocks, 0.5 * (tile.swap != 0 ? tile.rows : tile.tokens) + kColumnClocks) *
          std::pow(tile.swap != 0 ? 1 : std::max(1, tile.rows / 64), 0.72) +
      kStageClocks / tile.k_chunks;
  const double multiply_us = most * chunks * chunk_clocks / kClocksPerUs / std::min(together, kMostTogether);
  double us = kLongest * std::max({sm_us, dram_us, multiply_us}) + (1 - kLongest) * (sm_us + dram_us + multiply_us);
  us += kChainUs + 0.94 * stage_bytes / kSmRate + 0.7 * (waves - 1) + (0.236 * tile.tokens + 0.152 * tokens) / 16.0;
  if (tile.split_k > 1) {  // Clusters start late, later still where an SM takes two blocks, and four wait for each other.
    us += 1.0 + (tile.split_k > 2 ? 2.84 : 0.0) + (most > 1 ? 1.81 : 0.0);
  }
  if (tile.pdl == Pdl::full) {
    // The next call's blocks want room beside this one's, the same room on every SM, and no long queue before their codes.
    us += (resident <= together ? 0.084 : 0.0) + 0.285 * (most - blocks / sms);
    const double under_way = std::min(resident, std::max(1.0, blocks / sms)) * window_bytes;
    us += 1.385e-2 * std::max(0.0, under_way - kQuietBytes) / 1024.0;
    us -= tile.early != 0 ? 0.135 : 0.0;
  }
  // Of 18 points from M = 256 to 16384 on an H200 (curves_qwen3-8b.json) 16 took 1.41 to 1.66 times what is said above:
  // tiles of tokens read the weights again, and the fit has seen one tile alone. hopper_wgmma serves such M.
  constexpr double kManyTiles = 1.55;
  return m > kTokens.back() ? kManyTiles * us : us;
}

std::vector<DecodeTile> decode_space(const DeviceInfo& device, const Problem& problem, std::int64_t m) {
  constexpr std::int64_t kMostTokens =
      256;  // Beyond, every tile of tokens reads the weights again: no place for this family.
  if (m > kMostTokens) {
    return {};
  }
  const auto* const fitting = std::ranges::lower_bound(kTokens, static_cast<int>(std::min<std::int64_t>(m, kTokens.back())));
  std::vector<std::pair<double, DecodeTile>> candidates;
  // Stages that leave room for `blocks` blocks an SM.
  const auto fitting_stages = [&](DecodeTile tile, int blocks) {
    const std::int64_t share = std::min(kSharedPerSm / blocks - kSharedPerBlock, device.shared_memory_bytes);
    tile.stages = 0;
    return static_cast<int>(
        std::clamp<std::int64_t>((share - tile.shared_bytes()) / (tile.stage_bytes() + 24), 0, kMostStages));
  };
  const bool may_reorder = problem.numerics == Numerics::deterministic && problem.accumulate != Accumulate::precise;
  const int chains = may_reorder && *fitting <= kTokensOfTwoChains ? 2 : 1;
  const auto add = [&](DecodeTile tile) {
    std::int64_t window_before = 0;
    for (const int window : windows_of(problem.pdl, tile)) {
      tile.window = window;
      if (tile.window_stages() == window_before) {
        continue;  // The same kernel under another name.
      }
      window_before = tile.window_stages();
      for (const int early : {0, 1}) {
        tile.early = early;
        const bool is_held = problem.max_sms == 0 || decode_blocks(problem, tile, m) <= problem.max_sms;
        if (const double predicted = decode_predict_us(device, problem, m, tile); is_held && predicted != HUGE_VAL) {
          candidates.emplace_back(predicted, tile);
        }
      }
    }
  };
  for (const int swap : {0, 1}) {
    for (const int rows : kRows) {
      for (const int split_k : {1, 2, 4}) {
        for (const int k_chunks : {1, 2, 4}) {
          DecodeTile tile;
          tile.tokens = *fitting;
          tile.k_chunks = k_chunks;
          tile.split_k = split_k;
          tile.rows = rows;
          tile.chains = chains;
          tile.swap = swap;
          tile.pdl = problem.pdl;
          int stages_before = 0;
          for (const int blocks_per_sm : {1, 2, 3, 4}) {
            tile.stages = fitting_stages(tile, blocks_per_sm);
            if (tile.stages < kFewestStages || tile.stages == stages_before) {
              continue;
            }
            stages_before = tile.stages;
            if (check_decode_tile(device, problem, tile)) {
              add(tile);
            }
          }
        }
      }
    }
  }
  std::ranges::stable_sort(candidates, {}, &std::pair<double, DecodeTile>::first);
  std::vector<DecodeTile> result;
  std::ranges::transform(candidates, std::back_inserter(result), &std::pair<double, DecodeTile>::second);
  return result;
}

}  // namespace octile::cuda
