// SPDX-License-Identifier: Apache-2.0
// Which configs of ada_mma are legal where, and what the family chooses by itself. Needs no GPU.
#include "octile/kernels/cuda/ada_mma_config.h"

#include "kernels/cuda/l40s_tables.h"
#include "octile/kernels/cuda/ada_mma_family.h"
#include "octile/kernels/known_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace octile::cuda {
namespace {

using testing::HasSubstr;

Problem problem_of(std::int64_t n, std::int64_t k) {
  Problem problem;
  problem.n = n;
  problem.k = k;
  return problem;
}

TileConfig config_of(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t warps, std::int64_t stages) {
  TileConfig config;
  config.set("BLOCK_SIZE_M", m);
  config.set("BLOCK_SIZE_N", n);
  config.set("BLOCK_SIZE_K", k);
  config.set("num_warps", warps);
  config.set("num_stages", stages);
  return config;
}

std::string why_illegal(const std::string& device, const TileConfig& config,
                        const Problem& problem = problem_of(4096, 4096)) {
  const auto checked = ada_mma_family().check(*known_device(device), problem, config);
  return checked ? "legal" : checked.error().message;
}

TEST(AdaMmaConfig, EveryTileOfThePublishedTablesIsLegalOnItsDevice) {
  const auto tiles = test::l40s_tiles();
  EXPECT_GE(tiles.size(), 25U);
  for (const TileConfig& tile : tiles) {
    EXPECT_EQ(why_illegal("NVIDIA_L40S", tile), "legal") << tile.to_json();
  }
}

TEST(AdaMmaConfig, AnIllegalValueIsNamedWithItsKeyAndRange) {
  EXPECT_THAT(why_illegal("NVIDIA_L40S", config_of(16, 32, 48, 4, 3)), HasSubstr("BLOCK_SIZE_K = 48"));
  EXPECT_THAT(why_illegal("NVIDIA_L40S", config_of(16, 32, 2048, 4, 3)), HasSubstr("32..1024"));
  EXPECT_THAT(why_illegal("NVIDIA_L40S", config_of(16, 32, 128, 3, 3)), HasSubstr("num_warps = 3"));
  EXPECT_THAT(why_illegal("NVIDIA_L40S", config_of(0, 32, 128, 4, 3)), HasSubstr("BLOCK_SIZE_M = 0"));
  EXPECT_THAT(why_illegal("NVIDIA_L40S", config_of(16, 32, 128, 4, 0)), HasSubstr("num_stages = 0"));
  EXPECT_THAT(why_illegal("NVIDIA_L40S", config_of(8, 32, 128, 4, 3)), HasSubstr("SWAP_AB"));
}

TEST(AdaMmaConfig, ASideOfATileIsAPowerOfTwoOrFortyEightTimesOne) {
  for (const std::int64_t side : {16, 32, 48, 64, 96, 128, 192, 256}) {
    EXPECT_EQ(why_illegal("NVIDIA_H200", config_of(16, side, 128, 1, 3)), "legal");
    EXPECT_EQ(why_illegal("NVIDIA_H200", config_of(side, 16, 128, 1, 3)), "legal");
    EXPECT_EQ(why_illegal("NVIDIA_L40S", config_of(side, 16, 64, 1, 3)), "legal");
  }
  for (const std::int64_t side : {24, 40, 80, 112, 144, 240}) {
    EXPECT_THAT(why_illegal("NVIDIA_H200", config_of(side, 64, 128, 4, 3)),
                HasSubstr("BLOCK_SIZE_M = " + std::to_string(side) + ": want a power of two or 48 times one in 8..256"));
    EXPECT_THAT(why_illegal("NVIDIA_H200", config_of(64, side, 128, 4, 3)),
                HasSubstr("BLOCK_SIZE_N = " + std::to_string(side) + ": want a power of two or 48 times one in 16..256"));
  }
  EXPECT_THAT(why_illegal("NVIDIA_H200", config_of(64, 384, 128, 4, 3)), HasSubstr("BLOCK_SIZE_N = 384"));
  EXPECT_THAT(why_illegal("NVIDIA_H200", config_of(64, 64, 192, 4, 3)),
              HasSubstr("BLOCK_SIZE_K = 192: want a power of two in"));
}

TEST(AdaMmaConfig, AMissingOrUnknownKeyIsNamed) {
  TileConfig missing;
  missing.set("BLOCK_SIZE_M", 16);
  EXPECT_THAT(why_illegal("NVIDIA_L40S", missing), HasSubstr("BLOCK_SIZE_N is missing"));
  TileConfig unknown = config_of(16, 32, 128, 4, 3);
  unknown.set("waves_per_eu", 2);
  EXPECT_THAT(why_illegal("NVIDIA_L40S", unknown), HasSubstr("unknown key waves_per_eu = 2"));
}

TEST(AdaMmaConfig, ATileOfABigGpuDoesNotFitASmallOne) {
  const TileConfig big = config_of(64, 128, 256, 8, 5);  // 4 buffers x 48 KiB.
  EXPECT_EQ(why_illegal("NVIDIA_H200", big), "legal");
  EXPECT_THAT(why_illegal("NVIDIA_L40S", big), HasSubstr("196608 bytes of shared memory"));
  EXPECT_THAT(why_illegal("NVIDIA_L40S", big), HasSubstr("101376"));
}

TEST(AdaMmaConfig, TooManySumsOrWarpsForATileAreRefusedWithTheReason) {
  EXPECT_THAT(why_illegal("NVIDIA_H200", config_of(256, 256, 64, 8, 2)), HasSubstr("128 sums a thread"));
  EXPECT_THAT(why_illegal("NVIDIA_H200", config_of(16, 16, 32, 4, 2)), HasSubstr("4 warps cannot share it"));
}

TEST(AdaMmaConfig, NeedsAnArchitectureWithTheInstruction) {
  const auto available = ada_mma_family().available(*known_device("NVIDIA_A100-SXM4-80GB"));
  ASSERT_FALSE(available);
  EXPECT_THAT(available.error().message, HasSubstr("sm_89"));
  EXPECT_THAT(available.error().message, HasSubstr("sm_80"));
}

TEST(AdaMmaConfig, BaselineNumericsAreRefusedSinceItsBitsAreTheVendors) {
  Problem problem = problem_of(4096, 4096);
  problem.numerics = Numerics::baseline;
  EXPECT_THAT(why_illegal("NVIDIA_H200", config_of(64, 64, 128, 4, 3), problem), HasSubstr("numerics=baseline"));
}

TEST(AdaMmaConfig, BatchInvariantModeAllowsOnlyTilesWithOneOrderAlongK) {
  Problem problem = problem_of(4096, 4096);
  problem.batch_invariant = true;
  TileConfig split = config_of(64, 64, 128, 4, 3);
  EXPECT_EQ(why_illegal("NVIDIA_L40S", split, problem), "legal");
  split.set("SPLIT_K", 2);
  EXPECT_THAT(why_illegal("NVIDIA_L40S", split, problem), HasSubstr("SPLIT_K"));
  EXPECT_THAT(why_illegal("NVIDIA_L40S", config_of(16, 16, 1024, 4, 3), problem), HasSubstr("4 warps cannot share it"));
  problem.accumulate = Accumulate::precise;
  EXPECT_THAT(why_illegal("NVIDIA_L40S", config_of(64, 64, 64, 4, 3), problem), HasSubstr("BLOCK_SIZE_K >= 128"));
}

TEST(AdaMmaConfig, ConfigsSurviveTheWayThroughATile) {
  TileConfig config = config_of(16, 64, 256, 4, 4);
  config.set("GROUP_SIZE_M", 4);
  config.set("SPLIT_K", 3);
  config.set("SWAP_AB", 1);
  config.set("PDL", 2);
  const auto tile = parse_ada_tile(config);
  ASSERT_TRUE(tile) << tile.error().message;
  EXPECT_EQ(to_config(*tile), config);
  EXPECT_EQ(tile->buffers(), 3);
}

TEST(AdaMmaConfig, SurplusWarpsSplitKAndTheStagedOutputsAreCounted) {
  const DeviceInfo device = *known_device("NVIDIA_L40S");
  const auto tile = parse_ada_tile(config_of(16, 16, 1024, 4, 3));
  ASSERT_TRUE(tile);
  const auto grid = check_ada_tile(device, problem_of(4096, 4096), *tile);
  ASSERT_TRUE(grid) << grid.error().message;
  EXPECT_EQ(grid->p * grid->q * grid->k, 4);
  EXPECT_GT(grid->k, 1);
  EXPECT_TRUE(grid->staged);
  EXPECT_EQ(shared_bytes(*tile, *grid), 2 * 32 * 1024);
}

WarpGrid grid_of(const std::string& device, const TileConfig& config) {
  const auto tile = parse_ada_tile(config);
  EXPECT_TRUE(tile) << config.to_json();
  const auto grid = check_ada_tile(*known_device(device), problem_of(4096, 4096), *tile);
  EXPECT_TRUE(grid) << config.to_json();
  return grid ? *grid : WarpGrid();
}

TEST(AdaMmaConfig, WhereOperandsAreUnpackedWarpsSplitKSoThatABlockUnpacksEachCodeOnce) {
  const WarpGrid halves = grid_of("NVIDIA_H200", config_of(64, 64, 256, 4, 3));
  EXPECT_EQ(halves.k, 4);
  EXPECT_TRUE(halves.staged);
  EXPECT_EQ(grid_of("NVIDIA_L40S", config_of(64, 64, 256, 4, 3)).k, 1);
}

TEST(AdaMmaConfig, WarpsSplitKOnlyAsFarAsRegistersAndTheirSlicesAllow) {
  // 128 sums a thread: not beside 15 more warps, which have 128 registers each, and not with one step of 32 bytes a slice.
  EXPECT_EQ(grid_of("NVIDIA_H200", config_of(64, 64, 512, 8, 3)).k, 8);
  EXPECT_LT(grid_of("NVIDIA_H200", config_of(64, 64, 512, 16, 3)).k, 16);
  EXPECT_LT(grid_of("NVIDIA_H200", config_of(64, 64, 256, 8, 3)).k, 8);
}

TEST(AdaMmaConfig, EveryWarpOfATileOfFortyEightHasWholeFragments) {
  for (const std::string device : {"NVIDIA_L40S", "NVIDIA_H200", "NVIDIA_B200"}) {
    for (const std::int64_t rows : {48, 96}) {
      for (const std::int64_t channels : {48, 64}) {
        for (const std::int64_t warps : {2, 4, 8}) {
          for (const bool swap_ab : {false, true}) {
            TileConfig config = config_of(rows, channels, 128, warps, 2);
            config.set("SWAP_AB", swap_ab ? 1 : 0);
            const WarpGrid grid = grid_of(device, config);
            const std::int64_t p = swap_ab ? channels : rows;
            const std::int64_t q = swap_ab ? rows : channels;
            EXPECT_EQ(grid.p * grid.q * grid.k, warps) << device << " " << config.to_json();
            EXPECT_EQ(p % (16 * grid.p), 0) << device << " " << config.to_json();
            EXPECT_EQ(q % (8 * grid.q), 0) << device << " " << config.to_json();
          }
        }
      }
    }
  }
}

TEST(AdaMmaConfig, TheModelGivesNearlyEverySmOfAnH200ATileOfFortyEightChannelsOf6144) {
  const Problem problem = problem_of(6144, 4096);
  const DeviceInfo device = *known_device("NVIDIA_H200");
  EXPECT_EQ(ada_heuristic(device, problem, 64).block_n, 48);  // 128 blocks for 132 SMs, tiles of 64 would be 96.
  const AdaTile fewer_rows = ada_heuristic(device, problem, 48);
  EXPECT_EQ(fewer_rows.block_m, 48);
  EXPECT_EQ(fewer_rows.block_n, 48);
}

TEST(AdaMmaConfig, OnlySm90IsSearchedForTilesOfFortyEight) {
  for (const DeviceInfo& device : known_gpus()) {
    if (!ada_mma_family().available(device)) {
      continue;
    }
    const std::vector<AdaTile> space = ada_space(device, problem_of(6144, 4096), 48);
    const bool any = std::ranges::any_of(space, [](const AdaTile& t) { return t.block_m == 48 || t.block_n == 48; });
    EXPECT_EQ(any, compute_capability(device.arch) / 10 == 9) << device.name;
  }
}

TEST(AdaMmaConfig, TheModelPrefersTilesThatUnpackEachCodeOnceForSixtyFourTokensOnSm90) {
  Problem problem = problem_of(24576, 4096);
  const DeviceInfo device = *known_device("NVIDIA_H200");
  const AdaTile best = ada_heuristic(device, problem, 64);
  const auto grid = check_ada_tile(device, problem, best);
  ASSERT_TRUE(grid);
  EXPECT_EQ(best.block_m, 64);
  EXPECT_EQ(grid->p * grid->q, 1);
}

TEST(AdaMmaConfig, SpaceAndHeuristicAreLegalOnEveryKnownGpuForEveryKindOfProblem) {
  for (const DeviceInfo& device : known_gpus()) {
    if (!ada_mma_family().available(device)) {
      continue;
    }
    for (const bool batch_invariant : {false, true}) {
      for (const std::int64_t m : {1, 17, 64, 1000}) {
        Problem problem = problem_of(4096, m == 17 ? 20 : 4096);
        problem.batch_invariant = batch_invariant;
        const auto space = ada_mma_family().space(device, problem, m);
        EXPECT_GT(space.size(), 8U) << device.name << " M=" << m;
        for (const TileConfig& config : space) {
          const auto checked = ada_mma_family().check(device, problem, config);
          ASSERT_TRUE(checked) << device.name << " M=" << m << ": " << checked.error().message;
          EXPECT_TRUE(std::isfinite(ada_mma_family().predict_us(device, problem, m, config)));
        }
        const TileConfig heuristic = ada_mma_family().heuristic(device, problem, m);
        EXPECT_EQ(heuristic, space.front());
      }
    }
  }
}

TEST(AdaMmaConfig, TheSpaceHasTheLaunchModeAskedForFromSm90OnAndNoneBefore) {
  int with = 0;
  int without = 0;
  for (const DeviceInfo& device : known_gpus()) {
    if (!ada_mma_family().available(device)) {
      continue;
    }
    const bool early = compute_capability(device.arch) >= 90;
    ++(early ? with : without);
    for (const Pdl mode : {Pdl::off, Pdl::consume, Pdl::full}) {
      // The default, 1, is left out; before sm_90 there is no other.
      const std::optional<std::int64_t> wanted =
          early && mode != Pdl::consume ? std::optional(static_cast<std::int64_t>(mode)) : std::nullopt;
      Problem problem = problem_of(6144, 4096);
      problem.pdl = mode;
      const auto space = ada_mma_family().space(device, problem, 16);
      EXPECT_GT(space.size(), 8U);
      for (const TileConfig& config : space) {
        ASSERT_EQ(config.find("PDL"), wanted) << device.name << ' ' << to_string(mode) << ' ' << config.to_json();
      }
      EXPECT_EQ(ada_mma_family().heuristic(device, problem, 16).find("PDL"), wanted) << device.name;
    }
  }
  EXPECT_GT(with, 0);
  EXPECT_GT(without, 0);
}

TEST(AdaMmaConfig, ThePredictionOfAnIllegalConfigIsInfinite) {
  EXPECT_TRUE(std::isinf(
      ada_mma_family().predict_us(*known_device("NVIDIA_L40S"), problem_of(64, 64), 1, config_of(16, 32, 48, 4, 3))));
}

TEST(AdaMmaSmLimit, ItIsHeldWhereItsTilesAreNoMoreThanTheMultiprocessorsAndKIsNotSplit) {
  const DeviceInfo device = *known_device("NVIDIA_L40S");
  Problem problem;
  problem.n = 4096;
  problem.k = 4096;
  problem.max_sms = 64;
  AdaTile tile;
  tile.block_m = 16;
  tile.block_n = 64;
  tile.block_k = 128;
  tile.warps = 4;
  tile.stages = 3;
  EXPECT_TRUE(ada_mma_family().check_sm_limit(problem, to_config(tile), 16));
  EXPECT_FALSE(ada_mma_family().check_sm_limit(problem, to_config(tile), 17));
  tile.block_n = 128;
  tile.split_k = 2;
  EXPECT_FALSE(ada_mma_family().check_sm_limit(problem, to_config(tile), 16)) << "a second kernel adds the parts";
  for (const AdaTile& found : ada_space(device, problem, 16)) {
    EXPECT_LE(ada_blocks(problem, found, 16), 64) << to_config(found).to_json();
  }
}

}  // namespace
}  // namespace octile::cuda
