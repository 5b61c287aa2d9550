// SPDX-License-Identifier: Apache-2.0
#include "octile/kernels/cuda/hopper_decode_config.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/ada_mma_config.h"
#include "octile/kernels/known_devices.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

namespace octile::cuda {
namespace {

constexpr std::array kRows = {32, 48, 64, 128, 192, 256};
constexpr std::array kTokens = {8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128};
constexpr std::int64_t kSharedPerSm = 228 << 10;
constexpr std::int64_t kSharedPerBlock = 1 << 10;  // What the driver keeps of it for each block.

struct Key {
  const char* name;
  int lowest;
  int highest;
  int fallback;  // 0: the key is wanted.
};
constexpr std::array kKeys = {Key{"TOKENS", 8, 128, 0}, Key{"K_CHUNKS", 1, 8, 0}, Key{"STAGES", 2, 32, 0},
                              Key{"SPLIT_K", 1, 8, 1},  Key{"ROWS", 32, 256, 64}, Key{"PDL", 0, 2, 1}};

Error illegal(const DecodeTile& tile, std::string_view reason) {
  return make_error(ErrorCode::invalid_argument, "hopper_decode: {} is not legal: {}", to_config(tile).to_json(), reason);
}

}  // namespace

Expected<DecodeTile> parse_decode_tile(const TileConfig& config) {
  for (const auto& [name, value] : config.values) {
    if (std::ranges::none_of(kKeys, [&](const Key& key) { return name == key.name; })) {
      return make_error(ErrorCode::invalid_argument, "hopper_decode: unknown key {} = {}", name, value);
    }
  }
  std::array<int, kKeys.size()> values = {};
  for (std::size_t i = 0; i < kKeys.size(); ++i) {
    const Key& key = kKeys[i];
    const auto found = config.find(key.name);
    if (!found && key.fallback == 0) {
      return make_error(ErrorCode::invalid_argument, "hopper_decode: {} is missing in {}", key.name, config.to_json());
    }
    const std::int64_t value = found.value_or(key.fallback);
    if (value < key.lowest || value > key.highest) {
      return make_error(ErrorCode::invalid_argument, "hopper_decode: {} = {}: want {}..{}", key.name, value, key.lowest,
                        key.highest);
    }
    values[i] = static_cast<int>(value);
  }
  DecodeTile tile;
  tile.tokens = values[0];
  tile.k_chunks = values[1];
  tile.stages = values[2];
  tile.split_k = values[3];
  tile.rows = values[4];
  tile.pdl = static_cast<PdlMode>(values[5]);
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
    return illegal(tile, "ROWS: want 32, 48, 64, 128, 192 or 256 channels of a block");
  }
  if (tile.shared_bytes() > device.shared_memory_bytes) {
    return illegal(tile, format("{} bytes of shared memory, {} allows {} a block", tile.shared_bytes(), device.name,
                                device.shared_memory_bytes));
  }
  if (const std::int64_t sums = std::int64_t{4} * tile.tokens * (tile.rows + 4); sums > tile.stages * tile.stage_bytes()) {
    return illegal(tile, format("{} bytes of sums do not fit the ring of {}", sums, tile.stages * tile.stage_bytes()));
  }
  if (problem.batch_invariant) {
    return illegal(tile,
                   "batch-invariant mode wants one order of additions for every M, and this family serves small M alone");
  }
  if (tile.split_k > 1 && problem.numerics == Numerics::baseline) {
    return illegal(tile, "numerics=baseline allows no SPLIT_K > 1");
  }
  return {};
}

std::vector<std::string> decode_defines(const DecodeTile& tile, DType out_dtype, Accumulate accumulate) {
  const int out_type = out_dtype == DType::bf16 ? 0 : (out_dtype == DType::fp16 ? 1 : 2);
  return {format("TOKENS={}", tile.tokens),
          format("K_CHUNKS={}", tile.k_chunks),
          format("STAGES={}", tile.stages),
          format("SPLIT_K={}", tile.split_k),
          format("ROWS={}", tile.rows),
          format("OUT_TYPE={}", out_type),
          format("PRECISE={}", accumulate == Accumulate::precise ? 1 : 0)};
}

double decode_predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m, const DecodeTile& tile) {
  if (!check_decode_tile(device, problem, tile)) {
    return HUGE_VAL;
  }
  // An H200's figures: 4.6 TB/s in all, about 48 KB a microsecond into one SM, 1.3 us from request to data under load.
  constexpr double kSmRate = 48.0e3;
  constexpr double kDramRate = 4.6e6;
  constexpr double kLatencyUs = 1.3;
  const double sms = std::max(device.sm_count, 1);
  const double token_tiles = std::ceil(static_cast<double>(m) / tile.tokens);
  const double blocks = std::ceil(static_cast<double>(problem.n) / tile.rows) * tile.split_k * token_tiles;
  const double resident = std::max(
      1.0, std::floor(static_cast<double>(kSharedPerSm) / static_cast<double>(tile.shared_bytes() + kSharedPerBlock)));
  const double most = std::ceil(blocks / sms);
  const double together = std::min(most, resident);
  const double block_bytes = static_cast<double>(problem.k) / tile.split_k *
                             (tile.rows + static_cast<double>(std::min<std::int64_t>(m, tile.tokens)));
  const double in_flight = together * static_cast<double>(tile.stages * tile.stage_bytes());
  const double sm_us = most * block_bytes / std::min(kSmRate, in_flight / kLatencyUs);
  const double dram_us = static_cast<double>(problem.n) * static_cast<double>(problem.k) / kDramRate;
  const double waves = std::ceil(most / resident);
  // A multiplication of 64 x tokens x 128 takes tokens clocks of an SM's 4096 FMA; starting and draining one costs about
  // 100.
  const double multiply_us = most * static_cast<double>(problem.k) / tile.split_k / 128.0 *
                             (2.0 * tile.tokens + 100.0 / tile.k_chunks / together) / 1700.0;
  // Clusters beyond one block an SM start late: 2 us and more on qkv. Each request of the first ring takes its time.
  const double cluster_us = tile.split_k > 1 ? (most > 1 ? 3.0 : 0.5) : 0.0;
  const double requests_us = 0.04 * tile.stages * tile.k_chunks;
  const double fixed_us = 2.4 + cluster_us + requests_us + 0.25 * tile.tokens / 16.0;
  return std::max({sm_us, dram_us, multiply_us}) + fixed_us + (waves - 1) * 1.0;
}

std::vector<DecodeTile> decode_space(const DeviceInfo& device, const Problem& problem, std::int64_t m) {
  constexpr std::int64_t kMostTokens =
      256;  // Beyond, every tile of tokens reads the weights again: no place for this family.
  if (m > kMostTokens) {
    return {};
  }
  const auto* const fitting = std::ranges::lower_bound(kTokens, static_cast<int>(std::min<std::int64_t>(m, kTokens.back())));
  std::vector<std::pair<double, DecodeTile>> candidates;
  auto add = [&](DecodeTile tile, int blocks_per_sm, int& stages_before) {
    const std::int64_t share = std::min(kSharedPerSm / blocks_per_sm - kSharedPerBlock, device.shared_memory_bytes);
    tile.stages = 0;
    const std::int64_t fixed = tile.shared_bytes();
    tile.stages = static_cast<int>(std::clamp<std::int64_t>((share - fixed) / (tile.stage_bytes() + 16), 0, 32));
    const double predicted = decode_predict_us(device, problem, m, tile);
    if (tile.stages < 3 || tile.stages == stages_before || predicted == HUGE_VAL) {
      return;
    }
    stages_before = tile.stages;
    candidates.emplace_back(predicted, tile);
  };
  for (const int rows : kRows) {
    for (const int split_k : {1, 2, 4}) {
      for (const int k_chunks : {1, 2, 4}) {
        int stages_before = 0;
        for (const int blocks_per_sm : {1, 2, 3, 4}) {
          DecodeTile tile;
          tile.tokens = *fitting;
          tile.k_chunks = k_chunks;
          tile.split_k = split_k;
          tile.rows = rows;
          add(tile, blocks_per_sm, stages_before);
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
