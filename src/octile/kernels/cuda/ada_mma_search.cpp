// SPDX-License-Identifier: Apache-2.0
// The search space of `ada_mma`, its cost model, and the tile that the model likes best.
#include "octile/kernels/cuda/ada_mma_config.h"
#include "octile/kernels/known_devices.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

namespace octile::cuda {
namespace {

// What the model knows of an architecture. Rates as measured or published, a microsecond: only the order of predictions
// matters.
struct ArchRates {
  double dram_bytes_per_sm;  // Of memory, an SM's share.
  double l2_bytes_per_sm;
  double fma_per_sm;           // Of mma.sync e4m3.
  std::int64_t shared_per_sm;  // Bytes of shared memory.
  double latency_us;           // From a request to its data under load.
  double unpack_per_sm;  // Operand bytes that warps can read from shared memory and, where the instruction lacks, unpack.
  double wave_us;        // From a block's start to its first product, and from its last to its outputs.
  bool as_halves;        // Unpacking takes issue slots of the products: their times add up.
};

ArchRates rates_of(const DeviceInfo& device) noexcept {
  const int capability = compute_capability(device.arch);
  if (capability >= 120) {
    return {10.0e3, 40.0e3, 2.4e6, 100 << 10, 1.2, 220.0e3, 0.4, false};
  }
  if (capability >= 100) {
    return {48.0e3, 70.0e3, 1.2e6, 228 << 10, 1.6, 55.0e3, 0.4, false};
  }
  if (capability >= 90) {
    // H200: 4.3 TB/s; the rest, which runs as fp16, fitted to 280 tiles timed there at M = 1..64: off by 9 % from M = 32 on
    // (rms).
    return {32.5e3, 60.0e3, 1.55e6, 228 << 10, 1.6, 224.0e3, 1.0, true};
  }
  return {5.2e3, 30.0e3, 2.2e6, 100 << 10, 1.2, 220.0e3, 0.4, false};  // L40S: 864 GB/s at 85 %.
}

constexpr double kLaunchUs = 2.0;
constexpr double kStepUs = 0.05;        // Of a K step beside its work: waiting, a barrier, addresses.
constexpr std::size_t kMostTiles = 64;  // The space of one M: the model's best.

std::int64_t divide_up(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

}  // namespace

double ada_predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m, const AdaTile& tile) {
  const auto grid = check_ada_tile(device, problem, tile);
  if (!grid) {
    return HUGE_VAL;
  }
  const ArchRates rates = rates_of(device);
  const double sms = std::max(device.sm_count, 1);
  const std::int64_t tiles_m = divide_up(m, tile.block_m);
  const double blocks = static_cast<double>(tiles_m * divide_up(problem.n, tile.block_n) * tile.split_k);
  const int threads = tile.warps * 32;
  const int registers = expected_registers(tile, *grid, device.arch);
  const double resident = std::max<double>(
      1, static_cast<double>(std::min<std::int64_t>({rates.shared_per_sm / (shared_bytes(tile, *grid) + 1024),
                                                     1536 / threads, 65536 / (registers * threads), 16})));
  // The busiest SM: its blocks run `resident` at a time.
  const double most_blocks = std::ceil(blocks / sms);
  const double waves = std::ceil(most_blocks / resident);
  const double together = std::min(most_blocks, resident);

  const double k_block = static_cast<double>(divide_up(divide_up(problem.k, tile.block_k), tile.split_k)) * tile.block_k;
  const double rows_read = static_cast<double>(std::min<std::int64_t>(m, tile.block_m));
  const double block_bytes = k_block * (rows_read + tile.block_n);
  // Memory: the weights once, shared by all SMs; at most what the requests in flight sustain (a ring of one buffer waits for
  // each).
  const double ahead = tile.buffers() > 1 ? tile.buffers() - 1 : 0.5;
  const double in_flight = together * ahead * tile.block_k * (rows_read + tile.block_n);
  const double l2_rate = std::min(rates.l2_bytes_per_sm, in_flight / rates.latency_us);
  const double dram_rate =
      std::min(rates.dram_bytes_per_sm, together * ahead * tile.block_k * tile.block_n / rates.latency_us);
  const double weight_bytes = static_cast<double>(problem.n) * static_cast<double>(problem.k);
  const double dram_us = std::max(weight_bytes / sms / rates.dram_bytes_per_sm,
                                  most_blocks * k_block * tile.block_n / static_cast<double>(tiles_m) / dram_rate);
  const double l2_us = most_blocks * block_bytes / l2_rate;
  // Multiplications of whole fragments, and the operands' way to them; below eight warps an SM latencies show.
  const double fma_us = most_blocks * k_block * tile.block_m * tile.block_n / rates.fma_per_sm;
  const double p = tile.swap_ab ? tile.block_n : tile.block_m;
  const double q = tile.swap_ab ? tile.block_m : tile.block_n;
  const double operands_us = most_blocks * k_block * (grid->q * p + grid->p * q) / rates.unpack_per_sm;
  const double warps_short = std::max(1.0, 8.0 / (together * tile.warps));
  const double compute_us = (rates.as_halves ? fma_us + operands_us : std::max(fma_us, operands_us)) * warps_short;
  const double steps_us = waves * k_block / tile.block_k * kStepUs;
  const double reduce_us =
      tile.split_k > 1 ? 1.5 + static_cast<double>(partial_bytes(tile, m, problem.n)) * 2.0 / (sms * rates.l2_bytes_per_sm)
                       : 0.0;
  const double memory_us = std::max(dram_us, l2_us);
  double waves_us = waves * rates.wave_us;
  if (rates.as_halves) {  // Seen on an H200: few warps start slowly, and one buffer is filled or multiplied, not both.
    waves_us *= warps_short;
    waves_us += tile.buffers() == 1 ? std::min(memory_us, compute_us) / together : 0.0;
  }
  return kLaunchUs + std::max(memory_us, compute_us) + steps_us + waves_us + reduce_us;
}

double ada_blocks(const Problem& problem, const AdaTile& tile, std::int64_t m) noexcept {
  return tile.split_k > 1
             ? HUGE_VAL
             : std::ceil(static_cast<double>(m) / tile.block_m) * std::ceil(static_cast<double>(problem.n) / tile.block_n);
}

std::vector<AdaTile> ada_space(const DeviceInfo& device, const Problem& problem, std::int64_t m) {
  const Pdl pdl = pdl_on(device, Pdl::full) == Pdl::full ? problem.pdl : AdaTile{}.pdl;
  const bool as_halves = rates_of(device).as_halves;
  std::vector<std::pair<double, AdaTile>> candidates;
  const auto fitting = static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(std::clamp<std::int64_t>(m, 16, 256))));
  for (const int block_m : {8, 16, 32, 48, 64, 128, 256}) {
    // Tiles of more rows than M needs waste work, tiles of far fewer read the weights too often.
    if (block_m > fitting || block_m * 4 < fitting || (block_m == 8 && m > 8)) {
      continue;
    }
    for (const int block_n : {16, 32, 48, 64, 128, 256}) {
      // Where products are the limit, 48 rows or channels save those of 64, or give every SM a tile.
      if ((block_m == 48 || block_n == 48) && !as_halves) {
        continue;
      }
      for (const int block_k : {64, 128, 256, 512, 1024}) {
        for (const int warps : {2, 4, 8}) {
          for (const int stages : {2, 3, 4, 5, 6}) {  // 1 is the same ring of one buffer as 2.
            for (const int split_k : {1, 2, 4}) {
              AdaTile tile;
              tile.pdl = pdl;
              tile.block_m = block_m;
              tile.block_n = block_n;
              tile.block_k = block_k;
              tile.warps = warps;
              tile.stages = stages;
              tile.split_k = split_k;
              tile.swap_ab = block_m == 8;
              if (split_k > 1 && divide_up(problem.k, block_k) < std::int64_t{2} * split_k) {
                continue;
              }
              const double predicted = ada_predict_us(device, problem, m, tile);
              const bool is_held = problem.max_sms == 0 || ada_blocks(problem, tile, m) <= problem.max_sms;
              if (is_held && predicted < HUGE_VAL) {
                candidates.emplace_back(predicted, tile);
              }
            }
          }
        }
      }
    }
  }
  std::ranges::stable_sort(candidates, {}, &std::pair<double, AdaTile>::first);
  candidates.resize(std::min(candidates.size(), kMostTiles));
  std::vector<AdaTile> result;
  result.reserve(candidates.size());
  std::ranges::transform(candidates, std::back_inserter(result), &std::pair<double, AdaTile>::second);
  return result;
}

AdaTile ada_heuristic(const DeviceInfo& device, const Problem& problem, std::int64_t m) {
  const std::vector<AdaTile> tiles = ada_space(device, problem, m);
  if (!tiles.empty()) {
    return tiles.front();
  }
  AdaTile smallest;  // Legal wherever the family is.
  smallest.block_m = 16;
  smallest.block_n = 16;
  smallest.block_k = 128;
  smallest.warps = 1;
  smallest.stages = 3;
  return smallest;
}

}  // namespace octile::cuda
