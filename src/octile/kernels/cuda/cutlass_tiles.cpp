// SPDX-License-Identifier: Apache-2.0
// The kernels of the CUTLASS component as configs, and the choice among them.
#include "octile/kernels/cuda/cutlass_tiles.h"

#include "octile/core/format.h"
#include "octile/kernels/cuda/cuda_weight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

namespace octile::cuda {
namespace {

struct Attribute {
  const char* name;
  std::int32_t OctileCutlassConfig::* field;
};
constexpr std::array kAttributes = {
    Attribute{"tile_m", &OctileCutlassConfig::tile_m}, Attribute{"tile_n", &OctileCutlassConfig::tile_n},
    Attribute{"tile_k", &OctileCutlassConfig::tile_k}, Attribute{"warp_m", &OctileCutlassConfig::warp_m},
    Attribute{"warp_n", &OctileCutlassConfig::warp_n}, Attribute{"warp_k", &OctileCutlassConfig::warp_k},
    Attribute{"stages", &OctileCutlassConfig::stages}};

// The order of a row's additions: the first step takes K % tile_k elements, or tile_k; the matrix unit adds 32 at a time,
// and in the precise mode its sums are added up after every step. So kernels of one tile_k have one order, and in the fast
// mode all have where K is a multiple of 32.
constexpr std::int32_t kCommonTileK = 128;
constexpr std::int64_t kInstructionK = 32;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::string list_of(std::span<const OctileCutlassConfig> tiles) {
  std::string text;
  for (const OctileCutlassConfig& tile : tiles) {
    text += (text.empty() ? "" : ", ") + to_config(tile).to_json();
  }
  return text;
}

}  // namespace

std::vector<OctileCutlassConfig> cutlass_tiles(const OctileCutlassApi& api) {
  std::vector<OctileCutlassConfig> tiles;
  for (std::int32_t index = 0; index < api.config_count; ++index) {
    tiles.push_back(*api.config(index));
  }
  return tiles;
}

TileConfig to_config(const OctileCutlassConfig& tile) {
  TileConfig config;
  for (const Attribute& attribute : kAttributes) {
    config.set(attribute.name, tile.*attribute.field);
  }
  return config;
}

Expected<std::int32_t> find_cutlass_tile(std::span<const OctileCutlassConfig> tiles, const TileConfig& config) {
  for (const auto& [name, value] : config.values) {
    if (std::ranges::none_of(kAttributes, [&](const Attribute& attribute) { return name == attribute.name; })) {
      return make_error(ErrorCode::invalid_argument, "cutlass: unknown key {} = {} in {}", name, value, config.to_json());
    }
  }
  for (const Attribute& attribute : kAttributes) {
    if (!config.find(attribute.name)) {
      return make_error(ErrorCode::invalid_argument, "cutlass: a config without {} names no kernel: {}", attribute.name,
                        config.to_json());
    }
  }
  const auto found = std::ranges::find_if(tiles, [&](const OctileCutlassConfig& tile) { return to_config(tile) == config; });
  if (found == tiles.end()) {
    return make_error(ErrorCode::invalid_argument, "cutlass: the component has no kernel {}; it has {}", config.to_json(),
                      list_of(tiles));
  }
  return static_cast<std::int32_t>(found - tiles.begin());
}

Expected<void> check_cutlass_tile(const DeviceInfo& device, const Problem& problem, const OctileCutlassConfig& tile) {
  const bool precise = problem.accumulate == Accumulate::precise;
  if (precise && tile.precise == 0) {
    return make_error(ErrorCode::invalid_argument, "cutlass: {} has no precise accumulation", to_config(tile).to_json());
  }
  if (device.shared_memory_bytes > 0 && tile.shared_bytes > device.shared_memory_bytes) {
    return make_error(ErrorCode::invalid_argument, "cutlass: {} wants {} bytes of shared memory a block; {} allows {}",
                      to_config(tile).to_json(), tile.shared_bytes, device.name, device.shared_memory_bytes);
  }
  const bool one_order = problem.numerics == Numerics::baseline || problem.batch_invariant;
  if (one_order && tile.warp_k != tile.tile_k) {
    return make_error(ErrorCode::invalid_argument,
                      "cutlass: warp_k={} of tile_k={} splits K, which changes the bits that are asked for", tile.warp_k,
                      tile.tile_k);
  }
  const bool whole_instructions = round_up(problem.k, kWeightPadding) % kInstructionK == 0;
  if (one_order && (precise || !whole_instructions) && tile.tile_k != kCommonTileK) {
    return make_error(ErrorCode::invalid_argument,
                      "cutlass: tile_k={} adds up K={} in another order than the tile_k={} that serves every M", tile.tile_k,
                      problem.k, kCommonTileK);
  }
  return {};
}

double cutlass_predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m,
                          const OctileCutlassConfig& tile) {
  // A multiprocessor's share: 864 GB/s of 142, about 24 bytes a clock from L2 and 128 from shared memory at 2.5 GHz, 1024
  // e4m3 FMA a clock.
  constexpr double kMemoryBytesPerUs = 864e3 / 142;
  constexpr double kL2BytesPerUs = 60e3;
  constexpr double kSharedBytesPerUs = 320e3;
  constexpr double kFmaPerUs = 1024.0 * 2500.0;
  constexpr double kLatencyUs = 0.9;      // Of a load that misses L2.
  constexpr double kWaveUs = 1.0;         // Filling the pipeline and draining it.
  constexpr double kLaunchUs = 2.5;       // Grid start and end.
  constexpr double kSharedPerSm = 100e3;  // A block takes 1 KiB more than it asks for.
  constexpr double kThreadsPerSm = 1536;
  constexpr double kRegistersPerSm = 65536;
  constexpr double kWarpsThatHide = 4;  // One a matrix unit; fewer leave units idle.

  const double sms = std::max(device.sm_count, 1);
  const auto blocks = static_cast<double>(ceil_div(m, tile.tile_m) * ceil_div(problem.n, tile.tile_n));
  const double k = static_cast<double>(ceil_div(problem.k, tile.tile_k)) * tile.tile_k;
  // Accumulators, and about as much again for fragments and addresses as a small tile needs in all.
  const double registers = std::min(255.0, tile.warp_m * tile.warp_n / 32.0 + 72.0);
  const double resident =
      std::floor(std::max(1.0, std::min({kSharedPerSm / (tile.shared_bytes + 1024.0), kThreadsPerSm / tile.threads,
                                         kRegistersPerSm / (registers * tile.threads)})));
  const double busiest = std::ceil(blocks / sms);  // Blocks of the multiprocessor that has most.
  const double waves = std::ceil(busiest / resident);
  const double together = std::min(busiest, resident);

  const double rows = static_cast<double>(std::min<std::int64_t>(m, tile.tile_m)) + tile.tile_n;
  const double in_flight = together * (tile.stages - 1) * tile.tile_k * rows;
  const double loads_us = busiest * k * rows / std::min(kL2BytesPerUs, in_flight / kLatencyUs);
  const double memory_us = static_cast<double>(problem.n) * k / (sms * kMemoryBytesPerUs);
  const double warps = tile.threads / 32.0;
  const double idle = std::max(1.0, kWarpsThatHide / (together * warps));
  const double fma_us = busiest * k * tile.tile_m * tile.tile_n / kFmaPerUs * idle;
  const double operands_us =
      busiest * k * warps * tile.warp_k / tile.tile_k * (tile.warp_m + tile.warp_n) / kSharedBytesPerUs;
  const double longest = std::max({memory_us, loads_us, fma_us, operands_us});
  // What the longest does not hide: a tenth of the others.
  const double rest = memory_us + loads_us + fma_us + operands_us - longest;
  return kLaunchUs + longest + 0.1 * rest + waves * kWaveUs;
}

Expected<std::vector<std::int32_t>> legal_cutlass_tiles(const DeviceInfo& device, const Problem& problem,
                                                        std::span<const OctileCutlassConfig> tiles) {
  std::vector<std::int32_t> legal;
  std::string reasons;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    if (auto valid = check_cutlass_tile(device, problem, tiles[i])) {
      legal.push_back(static_cast<std::int32_t>(i));
    } else {
      reasons += (reasons.empty() ? "" : "; ") + valid.error().message;
    }
  }
  if (legal.empty()) {
    return make_error(ErrorCode::unavailable, "cutlass: no kernel serves N={} K={} on {}: {}", problem.n, problem.k,
                      device.name, reasons);
  }
  return legal;
}

CutlassChoice choose_cutlass_tile(const DeviceInfo& device, const Problem& problem, std::int64_t m,
                                  std::span<const OctileCutlassConfig> tiles, std::span<const std::int32_t> legal) {
  CutlassChoice best{legal.front(), std::numeric_limits<double>::infinity()};
  for (const std::int32_t index : legal) {
    const double us = cutlass_predict_us(device, problem, m, tiles[static_cast<std::size_t>(index)]);
    if (us < best.predicted_us) {
      best = {index, us};
    }
  }
  return best;
}

Expected<std::vector<CutlassStep>> cutlass_ladder(const DeviceInfo& device, const Problem& problem,
                                                  std::span<const OctileCutlassConfig> tiles, std::int64_t max_m) {
  const auto legal = legal_cutlass_tiles(device, problem, tiles);
  if (!legal) {
    return legal.error();
  }
  std::vector<CutlassStep> steps;
  for (std::int64_t m = 1; m <= std::min(max_m, kCutlassExactM); ++m) {
    const std::int32_t best = choose_cutlass_tile(device, problem, m, tiles, *legal).tile;
    if (steps.empty() || steps.back().tile != best) {
      steps.push_back({m, best});
    }
    steps.back().last_m = m;
  }
  steps.back().last_m = std::max(steps.back().last_m, max_m);
  return steps;
}

}  // namespace octile::cuda
