// SPDX-License-Identifier: Apache-2.0
// The kernels of the CUTLASS component as configs, named by their attributes, and which of them serves an M where no table
// says so: the baseline on sm_89 and sm_120.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/cuda/cutlass_abi.h"
#include "octile/kernels/family.h"
#include "octile/table/tile_config.h"

#include <cstdint>
#include <span>
#include <vector>

namespace octile::cuda {

// The component's kernels, in its order.
std::vector<OctileCutlassConfig> cutlass_tiles(const OctileCutlassApi& api);

// {"tile_m": 16, "tile_n": 64, ..., "stages": 7}: what tables hold. Never the kernel's number.
TileConfig to_config(const OctileCutlassConfig& tile);
// The number of the kernel that `config` names. Errors (invalid_argument): an unknown or missing key by name, or a
// kernel that the component does not have.
Expected<std::int32_t> find_cutlass_tile(std::span<const OctileCutlassConfig> tiles, const TileConfig& config);
// Whether the kernel serves the problem on the device: it has the accumulation mode and fits the shared memory, and where
// the order of additions must not depend on M, its order is the one that all kernels share.
Expected<void> check_cutlass_tile(const DeviceInfo& device, const Problem& problem, const OctileCutlassConfig& tile);

// Predicted microseconds of a product. Of an L40S; only the order matters.
double cutlass_predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m, const OctileCutlassConfig& tile);

// The kernels that check_cutlass_tile() lets serve, by their numbers. Error (unavailable): none, with the reason of each.
Expected<std::vector<std::int32_t>> legal_cutlass_tiles(const DeviceInfo& device, const Problem& problem,
                                                        std::span<const OctileCutlassConfig> tiles);
// The one of them with the smallest prediction: the component's own choice at M.
struct CutlassChoice {
  std::int32_t tile = 0;
  double predicted_us = 0.0;
};
CutlassChoice choose_cutlass_tile(const DeviceInfo& device, const Problem& problem, std::int64_t m,
                                  std::span<const OctileCutlassConfig> tiles, std::span<const std::int32_t> legal);

// The choice for every M.
struct CutlassStep {
  std::int64_t last_m = 0;  // The step serves M up to here, from the step before it on.
  std::int32_t tile = 0;    // The kernel's number.
};
// Ascending, the last step up to at least `max_m`. Above kCutlassExactM its choice stays. Error (unavailable): no kernel
// serves the problem.
inline constexpr std::int64_t kCutlassExactM = 8192;
Expected<std::vector<CutlassStep>> cutlass_ladder(const DeviceInfo& device, const Problem& problem,
                                                  std::span<const OctileCutlassConfig> tiles, std::int64_t max_m);

}  // namespace octile::cuda
