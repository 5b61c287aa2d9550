// SPDX-License-Identifier: Apache-2.0
// The search space of `hopper_wgmma`, its cost model, and the tile that the model likes best.
#include "octile/kernels/cuda/hopper_wgmma_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

namespace octile::cuda {
namespace {

constexpr std::size_t kMostTiles = 64;  // The space of one M: the model's best.
constexpr int kMostStages = 16;
constexpr int kFewestStages = 3;       // Of a candidate.
constexpr int kFewestTokens = 40;      // Of a candidate, where M has as many: below, weights are read too often.
constexpr std::int64_t kFewestM = 65;  // Before, hopper_decode has the field.
constexpr int kMostTokens = 256;

// How warpgroups share a tile's channels.
struct Shape {
  int channels;
  int groups;
  bool in_turn;
};
constexpr std::array kShapes = {Shape{64, 1, false}, Shape{128, 1, false}, Shape{192, 1, false},
                                Shape{64, 2, true},  Shape{128, 2, false}, Shape{128, 2, true},
                                Shape{192, 2, true}, Shape{192, 3, false}, Shape{256, 2, false}};

// Blocks that load for each other: none, two tiles of tokens that share weights, two of channels that share codes.
struct Cluster {
  int m;
  int n;
};
constexpr std::array kClusters = {Cluster{1, 1}, Cluster{2, 1}, Cluster{1, 2}};

std::int64_t divide_up(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

// Heights of token tiles that leave the fewest rows idle: M in equal parts, in steps of 8.
std::vector<int> token_tiles(std::int64_t m) {
  std::vector<int> result;
  for (int tokens = std::min<int>(kFewestTokens, static_cast<int>(8 * divide_up(m, 8))); tokens <= kMostTokens;
       tokens += 8) {
    const std::int64_t parts = divide_up(m, tokens);
    if (8 * divide_up(divide_up(m, parts), 8) == tokens) {
      result.push_back(tokens);
    }
  }
  return result;
}

}  // namespace

double wgmma_predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m, const WgmmaTile& tile) {
  if (!check_wgmma_tile(device, problem, tile)) {
    return HUGE_VAL;
  }
  // Fitted to 60 timings of the product on an H200 (four shapes, M 96..8192, fast accumulation, no clusters), which it meets
  // within 5 %. Bytes a microsecond and clocks. That promotion hides and what clusters cost was not fitted.
  constexpr double kDramRate = 4.19e6;
  constexpr double kSmRate = 153e3;          // From L2 into an SM.
  constexpr double kClocksPerUs = 1700.0;    // Of a short product;
  constexpr double kClockLoss = 0.195;       // the share that is lost under long ones, from
  constexpr double kLongProduct = 2e11;      // so many products and sums on.
  constexpr double kSharedBytesClock = 105;  // What the tensor cores read of shared memory.
  constexpr double kAlone = 1.125;           // Of one warpgroup alone: nobody multiplies while it waits for a stage.
  constexpr double kStartUs = 1.46;          // Launch, first stage.
  constexpr double kOutputRate = 34.5e3;     // Of a tile.
  constexpr double kLongest = 0.6;           // The share of the longer of two limits, the rest of their sum.
  constexpr double kClusterLoss = 1.0;       // Blocks that share boxes wait for each other: 1.3 to 3 times slower.
  const double sms = std::max(device.sm_count, 1);
  const TileCounts counts = tile_counts(tile, m, problem.n);
  const double tiles = static_cast<double>(counts.m * counts.n);
  const double rounds = std::ceil(tiles / std::max(1.0, std::floor(sms / tile.cluster())));
  const double chunks = std::ceil(static_cast<double>(problem.k) / tile.block_k) * tile.block_k / 128.0;

  // A multiplication of 64 channels and 32 elements of K: products, or both operands from shared memory.
  const double instruction = std::max(tile.tokens / 2.0, (64.0 * 32 + 32.0 * tile.tokens) / kSharedBytesClock);
  const bool overlapped = tile.groups > 1 || resident_blocks(problem, tile) > 1;
  const bool precise = problem.accumulate == Accumulate::precise;
  const double promote = precise ? tile.row_blocks() * tile.tokens / 2.0 + 60.0 : 0.0;  // Clocks of a warpgroup a chunk.
  const double multiply = 4.0 * tile.channels / 64.0 * instruction;
  double chunk_clocks = multiply * (overlapped ? 1.0 : kAlone);
  if (precise) {
    // Warpgroups that share a tile promote while others multiply; one that has the tile alone cannot.
    const bool alone = tile.in_turn || tile.groups == 1;
    chunk_clocks = alone ? multiply + promote : std::max(multiply, multiply / tile.groups + promote);
  }
  const double chunk_bytes =
      128.0 * (static_cast<double>(tile.channels) / tile.cluster_m + static_cast<double>(tile.tokens) / tile.cluster_n);
  const double work = 2.0 * static_cast<double>(m) * static_cast<double>(problem.n) * static_cast<double>(problem.k);
  const double clocks_per_us = kClocksPerUs * (1.0 - kClockLoss * std::min(1.0, work / kLongProduct));
  const double tile_us =
      chunks * std::max(chunk_clocks / clocks_per_us, chunk_bytes / kSmRate) * (tile.cluster() > 1 ? kClusterLoss : 1.0);
  const double output_us =
      static_cast<double>(std::int64_t{tile.channels} * tile.tokens * size_of(problem.out_dtype)) / kOutputRate;
  const double exposed_outputs = tile.in_turn || resident_blocks(problem, tile) > 1 ? 1.0 : rounds;
  const double sm_us = rounds * tile_us + exposed_outputs * output_us;
  const double bytes = static_cast<double>(problem.n) * static_cast<double>(problem.k) +
                       static_cast<double>(m) * static_cast<double>(problem.k) +
                       static_cast<double>(m * problem.n * size_of(problem.out_dtype));
  const double dram_us = bytes / kDramRate;
  return kStartUs + kLongest * std::max(sm_us, dram_us) + (1 - kLongest) * (sm_us + dram_us);
}

std::vector<WgmmaTile> wgmma_space(const DeviceInfo& device, const Problem& problem, std::int64_t m) {
  if (m < kFewestM) {
    return {};
  }
  std::vector<std::pair<double, WgmmaTile>> candidates;
  // Stages that leave room for `blocks` blocks an SM.
  const auto fitting_stages = [&](WgmmaTile tile, int blocks) {
    const std::int64_t share = std::min(kSharedPerSm / blocks - kSharedPerBlock, device.shared_memory_bytes);
    tile.stages = 0;
    return static_cast<int>(std::clamp<std::int64_t>(
        (share - tile.shared_bytes(problem.out_dtype)) / (tile.stage_bytes() + 16), 0, kMostStages));
  };
  const auto add = [&](WgmmaTile tile) {
    int stages_before = 0;
    for (const int blocks : {1, 2}) {
      tile.stages = fitting_stages(tile, blocks);
      if (tile.stages < kFewestStages || tile.stages == stages_before ||
          (blocks == 2 && resident_blocks(problem, tile) == 1)) {
        continue;
      }
      stages_before = tile.stages;
      if (const double predicted = wgmma_predict_us(device, problem, m, tile); predicted != HUGE_VAL) {
        candidates.emplace_back(predicted, tile);
      }
    }
  };
  for (const int tokens : token_tiles(m)) {
    for (const Shape& shape : kShapes) {
      for (const Cluster& cluster : kClusters) {
        for (const int block_k : {128, 256}) {
          WgmmaTile tile;
          tile.tokens = tokens;
          tile.channels = shape.channels;
          tile.block_k = block_k;
          tile.groups = shape.groups;
          tile.in_turn = shape.in_turn;
          tile.cluster_m = cluster.m;
          tile.cluster_n = cluster.n;
          tile.pdl = problem.pdl;
          add(tile);
        }
      }
    }
  }
  std::ranges::stable_sort(candidates, {}, &std::pair<double, WgmmaTile>::first);
  candidates.resize(std::min(candidates.size(), kMostTiles));
  std::vector<WgmmaTile> result;
  result.reserve(candidates.size());
  std::ranges::transform(candidates, std::back_inserter(result), &std::pair<double, WgmmaTile>::second);
  return result;
}

WgmmaTile wgmma_heuristic(const DeviceInfo& device, const Problem& problem, std::int64_t m) {
  if (m >= kFewestM) {
    if (const std::vector<WgmmaTile> tiles = wgmma_space(device, problem, m); !tiles.empty()) {
      return tiles.front();
    }
  }
  WgmmaTile narrow;  // Legal wherever the family is.
  narrow.tokens = static_cast<int>(std::clamp<std::int64_t>(8 * divide_up(m, 8), 16, 64));
  narrow.channels = 64;
  narrow.groups = 1;
  narrow.stages = 8;
  narrow.pdl = problem.pdl;
  return narrow;
}

}  // namespace octile::cuda
