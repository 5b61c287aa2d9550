// SPDX-License-Identifier: Apache-2.0
// The search space of `hopper_wgmma`, its cost model, and the tile that the model likes best.
#include "octile/kernels/cuda/hopper_wgmma_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

namespace octile::cuda {
namespace {

constexpr std::size_t kMostTiles = 64;  // The space of one M: the model's best.
constexpr int kMostStages = 16;
constexpr int kFewestStages = 3;       // Of a candidate.
constexpr int kFewestColumns = 40;     // Of a candidate, where there are as many: below, the rows are read too often.
constexpr std::int64_t kFewestM = 65;  // Before, hopper_decode has the field.
constexpr int kMostColumns = 256;
constexpr std::size_t kVaried = 5;    // Tiles that are also tried another way,
constexpr std::size_t kWindowed = 2;  // and of them with a window, which seldom wins.
constexpr int kWindowKib = 48;

// How warpgroups share the rows of a tile, channels or tokens.
struct Shape {
  int rows;  // Of a tile.
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

// Widths of tiles, in steps of 8, that leave the fewest of `count` tokens or channels idle: equal parts.
std::vector<int> equal_tiles(std::int64_t count) {
  std::vector<int> result;
  for (int width = static_cast<int>(std::min<std::int64_t>(kFewestColumns, 8 * divide_up(count, 8))); width <= kMostColumns;
       width += 8) {
    const std::int64_t parts = divide_up(count, width);
    if (8 * divide_up(divide_up(count, parts), 8) == width) {
      result.push_back(width);
    }
  }
  return result;
}

// Up to four of a tile of channels' token tiles side by side, as blocks that stand in order gain by it.
int whole_group(const TileCounts& counts) { return counts.m > 2 ? 4 : (counts.m > 1 ? 2 : 1); }

// Of limits that overlap but for their ends.
double norm(double a, double b, double power) { return std::pow(std::pow(a, power) + std::pow(b, power), 1.0 / power); }

// The launch mode that won more often, by 2 to 5 %: the quantiser's early start pays as long as its rows find room beside
// the product before.
Pdl preferred_pdl(const Problem& problem, std::int64_t m) {
  constexpr std::int64_t kMostEarly = 256;
  return m <= kMostEarly ? problem.pdl : std::min(problem.pdl, Pdl::consume);
}

// How the blocks that share a tile of channels come to stand. Two neighbouring SMs (a TPC) that ask for the same lines at
// the same time ask L2 once. Blocks are given out in pairs of such SMs, but only on an idle device: those that start early
// (PDL) take whatever SM is free, in any order, unless the launch says that pairs belong together.
enum class Neighbours : std::uint8_t { by_chance, in_pairs, in_order };

Neighbours neighbours_of(const Problem& problem, const WgmmaTile& tile) {
  if (tile.pairs) {
    return Neighbours::in_pairs;
  }
  return std::min(tile.pdl, problem.pdl) == Pdl::off ? Neighbours::in_order : Neighbours::by_chance;
}

// Token tiles in a row such that what runs at the same time reads the fewest bytes, and two where there are two: neighbours
// that ask for the same weights at the same time won 4 to 13 % at 14 of 16 tiles with an early quantiser (M 192 and 256; one
// lost 2 %), up to 8 % without.
int square_group(const DeviceInfo& device, const Problem& problem, const WgmmaTile& tile, const TileCounts& counts) {
  const std::int64_t together = std::max(1, usable_sms(device, problem) / tile.cluster());
  int best = 1;
  std::int64_t fewest = std::numeric_limits<std::int64_t>::max();
  for (const int group : {2, 4, 8, 16, 32}) {
    if (group / 2 >= counts.m) {
      break;
    }
    const std::int64_t height = std::min<std::int64_t>(group, counts.m);
    const std::int64_t rows = height * tile.tokens * tile.cluster_m +
                              std::min(divide_up(together, height), counts.n) * tile.channels * tile.cluster_n;
    if (rows < fewest) {
      fewest = rows;
      best = group;
    }
  }
  return best;
}

// Of a tile's weights, how many blocks' requests L2 sees as one; fitted with the constants of wgmma_predict_us.
double weights_shared(const Problem& problem, const WgmmaTile& tile, const TileCounts& counts) {
  constexpr double kByCluster = 1.67;
  constexpr double kByChance = 1.33;
  constexpr double kInPairs = 2.0;
  constexpr double kTwoInOrder = 2.0;
  constexpr double kMoreInOrder = 2.96;
  if (tile.cluster() > 1) {
    return tile.cluster_m > 1 ? kByCluster : 1.0;
  }
  const std::int64_t side_by_side = std::min<std::int64_t>(tile.group_m, counts.m);
  if (side_by_side < 2) {
    return 1.0;
  }
  switch (neighbours_of(problem, tile)) {
    case Neighbours::in_pairs:
      return side_by_side % 2 == 0 ? kInPairs : 1.0;
    case Neighbours::in_order:
      return side_by_side == 2 ? kTwoInOrder : kMoreInOrder;
    case Neighbours::by_chance:
      break;
  }
  return kByChance;
}

}  // namespace

double wgmma_predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m, const WgmmaTile& tile) {
  if (!check_wgmma_tile(device, problem, tile)) {
    return HUGE_VAL;
  }
  // Fitted by bench/gpu/fit_wgmma_model.py to 4,800 timings on an H200 (four shapes, M 65..8192, fast accumulation;
  // hopper_wgmma_sweep.json and hopper_wgmma_neighbours.json): of 112 points of the former the model's first config loses
  // 1.9 % as a geometric mean to the best one timed, the best of its first four 0.6 %, of its first sixteen 0.05 %; of 92
  // points of the latter, where many arrangements of few tiles stand side by side, 4.2, 2.0 and 0.12 %. What promotion hides
  // was not fitted. Bytes a microsecond, microseconds, clocks.
  constexpr double kDramRate = 3.79e6;
  constexpr double kReread = 0.248;  // Of the weights' time, for each further token tile that reads them.
  constexpr double kMostReread = 3;
  constexpr double kSmRate = 207e3;      // Of what lands in an SM;
  constexpr double kL2Rate = 87.5e3;     // of what an SM asks of L2 and no neighbour asks at the same time.
  constexpr double kCodesShared = 2.47;  // Blocks whose requests for the same codes L2 sees as one.
  constexpr double kClocksPerUs = 1529;
  constexpr double kClockLoss = 0.151;       // The share that is lost under long products, from
  constexpr double kLongProduct = 2e11;      // so many products and sums on.
  constexpr double kSharedBytesClock = 140;  // What the tensor cores read of shared memory.
  constexpr double kAlone = 1.119;           // Of one warpgroup alone: nobody multiplies while it waits for a stage.
  constexpr double kStageClocks = 7.38;
  constexpr double kHeldStages = 1.26;  // Being read, or not yet asked for.
  constexpr double kLatencyUs = 0.929;
  constexpr double kClusterLatency = 1.075;
  constexpr double kClusterUs = 0.745;
  constexpr double kSwapLoss = 1.006;
  constexpr double kStartUs = 0.694;
  constexpr double kLateStartUs = 0.5;  // More, where a product starts late for the order of its blocks.
  constexpr double kRoundUs = 0.536;
  constexpr double kOutputRate = 15.7e3;  // Of a tile's outputs.
  constexpr double kNormOfChunk = 2.71;   // Limits that overlap add as a norm.
  constexpr double kNorm = 3.65;
  const double sms = usable_sms(device, problem);
  const TileCounts counts = tile_counts(tile, m, problem.n);
  const auto tiles = static_cast<double>(counts.m * counts.n);
  const double rounds = std::ceil(tiles / std::max(1.0, std::floor(sms / tile.cluster())));
  const double together = std::min<double>(resident_blocks(problem, tile), std::ceil(tiles * tile.cluster() / sms));
  const double chunks = std::ceil(static_cast<double>(problem.k) / tile.block_k) * tile.block_k / 128.0;

  // A multiplication of 64 rows and 32 elements of K: products, or both operands from shared memory.
  const bool precise = problem.accumulate == Accumulate::precise;
  const Promotion promotion = precise ? promotion_of(tile) : Promotion{1, 1};
  const double piece = static_cast<double>(tile.columns()) / promotion.pieces;
  const double instruction = promotion.pieces * std::max(piece / 2.0, (64.0 * 32 + 32.0 * piece) / kSharedBytesClock);
  const bool overlapped = (tile.groups > 1 && (!tile.in_turn || rounds > 1)) || together > 1;
  const double products = 4.0 * tile.rows() / 64.0 * instruction;
  double chunk_clocks = products * (overlapped ? 1.0 : kAlone);
  if (precise) {
    // Warpgroups that share a tile promote while others multiply; so does one with two sets, but at a stage's end.
    const double additions = tile.row_blocks() * tile.columns() / 2.0;
    const double promote = promotion.sets == 2 ? (piece / 2.0 + 60.0) / (tile.block_k / 128.0)
                                               : additions + 60.0 * tile.row_blocks() * promotion.pieces;
    const bool alone = tile.in_turn || tile.groups == 1;
    chunk_clocks = alone ? std::max(products, additions) + promote : std::max(products, products / tile.groups + promote);
  }
  chunk_clocks += kStageClocks * 128.0 / tile.block_k;
  const double work = 2.0 * static_cast<double>(m) * static_cast<double>(problem.n) * static_cast<double>(problem.k);
  const double multiply_us = chunk_clocks / (kClocksPerUs * (1.0 - kClockLoss * std::min(1.0, work / kLongProduct)));

  const double landed = 128.0 * (tile.channels + tile.tokens);
  const double requested = 128.0 * (tile.channels / weights_shared(problem, tile, counts) +
                                    tile.tokens / kCodesShared / static_cast<double>(tile.cluster_n));
  const double under_way = std::max(tile.stages - kHeldStages, 0.3);
  const double in_flight =
      together * tile.block_k *
      (std::min(under_way, static_cast<double>(tile.window_stages())) * tile.channels + under_way * tile.tokens);
  const double latency = kLatencyUs * (tile.cluster() > 1 ? kClusterLatency : 1.0);
  const double land_us = std::max({landed / kSmRate, requested / kL2Rate, landed * latency / in_flight});
  const double chunk_us = norm(multiply_us, land_us, kNormOfChunk) * (tile.swap ? kSwapLoss : 1.0);

  const double output_us =
      static_cast<double>(std::int64_t{tile.channels} * tile.tokens * size_of(problem.out_dtype)) / kOutputRate;
  const double exposed_outputs = tile.in_turn || resident_blocks(problem, tile) > 1 ? 1.0 : rounds;
  const double sm_us = rounds * (chunks * chunk_us + kRoundUs) + exposed_outputs * output_us;
  const double weights = static_cast<double>(problem.n) * static_cast<double>(problem.k);
  const double bytes = weights * (1.0 + kReread * std::min(static_cast<double>(counts.m - 1), kMostReread)) +
                       static_cast<double>(m) * static_cast<double>(problem.k) +
                       static_cast<double>(m * problem.n * size_of(problem.out_dtype));
  double us = kStartUs + norm(sm_us, bytes / kDramRate, kNorm) + (tile.cluster() > 1 ? kClusterUs : 0.0);

  // What the fit leaves: swapped tiles with 20 to 35 % of their rows idle took 12 % longer than it says (60 timings), pairs
  // of blocks of one warpgroup with stages of 256 were 5 % faster (16).
  constexpr double kIdleSwapped = 0.4;
  constexpr double kMostIdle = 0.35;
  constexpr double kPairsOfLongStages = 0.97;
  if (tile.swap) {
    const auto rows = static_cast<double>(counts.m * tile.tokens * tile.cluster_m);
    us *= 1.0 + kIdleSwapped * std::min(rows / static_cast<double>(m) - 1.0, kMostIdle);
  }
  if (tile.pairs && tile.groups == 1 && tile.block_k > 128) {
    us *= kPairsOfLongStages;
  }
  // What it does not know: enough to put these behind their own tile, before tiles that are much worse.
  const bool in_order = neighbours_of(problem, tile) == Neighbours::in_order;
  if (in_order && problem.pdl != Pdl::off) {
    us += kLateStartUs;
  } else if (tile.pdl != preferred_pdl(problem, m)) {
    us *= 1.015;
  }
  if (tile.group_m != (in_order ? whole_group(counts) : square_group(device, problem, tile, counts))) {
    us *= 1.015;
  }
  return tile.window != 0 ? us * 1.01 : us;
}

std::vector<WgmmaTile> wgmma_space(const DeviceInfo& device, const Problem& problem, std::int64_t m) {
  if (m < kFewestM) {
    return {};
  }
  using Candidate = std::pair<double, WgmmaTile>;
  std::vector<Candidate> candidates;
  const auto add = [&](const WgmmaTile& tile) {
    if (const double predicted = wgmma_predict_us(device, problem, m, tile); predicted != HUGE_VAL) {
      candidates.emplace_back(predicted, tile);
    }
  };
  // Stages that leave room for `blocks` blocks an SM.
  const auto fitting_stages = [&](WgmmaTile tile, int blocks) {
    const std::int64_t share = std::min(kSharedPerSm / blocks - kSharedPerBlock, device.shared_memory_bytes);
    tile.stages = 0;
    return static_cast<int>(std::clamp<std::int64_t>(
        (share - tile.shared_bytes(problem.out_dtype)) / (tile.stage_bytes() + 16), 0, kMostStages));
  };
  const auto add_rings = [&](WgmmaTile tile) {
    int stages_before = 0;
    for (const int blocks : {1, 2}) {
      tile.stages = fitting_stages(tile, blocks);
      if (tile.stages < kFewestStages || tile.stages == stages_before ||
          (blocks == 2 && resident_blocks(problem, tile) == 1)) {
        continue;
      }
      stages_before = tile.stages;
      add(tile);
    }
  };
  // Without early starts the blocks stand in order by themselves.
  const bool may_pair = problem.pdl != Pdl::off && usable_sms(device, problem) > 1;
  for (const bool swap : {false, true}) {
    for (const int columns : equal_tiles(swap ? problem.n : m)) {
      for (const Shape& shape : kShapes) {
        if (swap && shape.rows > 64 && shape.rows >= m + 64) {
          continue;  // A tile of tokens that are not there.
        }
        for (const Cluster& cluster : kClusters) {
          for (const int block_k : {128, 256}) {
            WgmmaTile tile;
            tile.tokens = swap ? shape.rows : columns;
            tile.channels = swap ? columns : shape.rows;
            tile.swap = swap;
            tile.block_k = block_k;
            tile.groups = shape.groups;
            tile.in_turn = shape.in_turn;
            tile.cluster_m = cluster.m;
            tile.cluster_n = cluster.n;
            const TileCounts counts = tile_counts(tile, m, problem.n);
            tile.group_m = square_group(device, problem, tile, counts);
            tile.pdl = preferred_pdl(problem, m);
            if (counts.m < 2 || tile.cluster() > 1) {
              add_rings(tile);  // No neighbour asks for the same weights, or its own cluster does.
              continue;
            }
            if (may_pair) {
              tile.pairs = true;
              add_rings(tile);
            }
            tile.pairs = false;
            tile.pdl = Pdl::off;
            tile.group_m = whole_group(counts);
            add_rings(tile);
          }
        }
      }
    }
  }
  const auto keep_best = [&](std::size_t count) {
    std::ranges::stable_sort(candidates, {}, &Candidate::first);
    candidates.resize(std::min(candidates.size(), count));
  };
  keep_best(kMostTiles);
  // The best ones also with another launch mode, order of tiles or window: the same code.
  const auto add_new = [&](const WgmmaTile& tile) {
    if (std::ranges::find(candidates, tile, &Candidate::second) == candidates.end()) {
      add(tile);
    }
  };
  for (std::size_t i = 0, count = std::min(candidates.size(), kVaried); i < count; ++i) {
    const WgmmaTile tile = candidates[i].second;
    const TileCounts counts = tile_counts(tile, m, problem.n);
    WgmmaTile varied = tile;
    varied.pdl = tile.pdl == problem.pdl ? std::min(problem.pdl, Pdl::consume) : problem.pdl;
    add_new(varied);
    varied = tile;
    varied.group_m = tile.group_m == 2 ? 4 : 2;
    if (counts.m > 2) {
      add_new(varied);
    }
    varied = tile;
    varied.pairs = !tile.pairs;
    if (counts.m > 1 && may_pair && tile.pdl != Pdl::off) {
      add_new(varied);
    }
    varied = tile;
    varied.window = kWindowKib;
    if (i < kWindowed && varied.window_stages() < tile.stages) {
      add_new(varied);
    }
  }
  keep_best(kMostTiles);
  std::vector<WgmmaTile> result;
  result.reserve(candidates.size());
  std::ranges::transform(candidates, std::back_inserter(result), &Candidate::second);
  return result;
}

namespace {

WgmmaTile found_heuristic(const DeviceInfo& device, const Problem& problem, std::int64_t m) {
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

// What the space of a problem depends on.
using SpaceKey = std::tuple<std::string, int, std::int64_t, std::int64_t, std::int64_t, DType, Accumulate, Numerics, bool,
                            Pdl, WeightLayout, int, std::int64_t>;

}  // namespace

// A space takes 1 to 3 ms, a linear without a table asks for up to 176 M, and a model's layers ask the same: found once.
// Nobody waits for the lock: in the child of a fork() the thread that held it is not there, and finding anew costs little.
WgmmaTile wgmma_heuristic(const DeviceInfo& device, const Problem& problem, std::int64_t m) {
  constexpr std::size_t kMost = 8192;
  static std::mutex mutex;
  static std::map<SpaceKey, WgmmaTile> found;
  const SpaceKey key{device.arch,
                     device.sm_count,
                     device.shared_memory_bytes,
                     problem.n,
                     problem.k,
                     problem.out_dtype,
                     problem.accumulate,
                     problem.numerics,
                     problem.batch_invariant,
                     problem.pdl,
                     problem.layout,
                     problem.max_sms,
                     m};
  if (const std::unique_lock lock(mutex, std::try_to_lock); lock.owns_lock()) {
    if (const auto known = found.find(key); known != found.end()) {
      return known->second;
    }
  }
  const WgmmaTile tile = found_heuristic(device, problem, m);
  if (const std::unique_lock lock(mutex, std::try_to_lock); lock.owns_lock()) {
    if (found.size() >= kMost) {
      found.clear();
    }
    found.emplace(key, tile);
  }
  return tile;
}

}  // namespace octile::cuda
