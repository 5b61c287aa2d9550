// SPDX-License-Identifier: Apache-2.0
// The CUTLASS component's kernels as configs, and the component's own choice among them.
#include "octile/kernels/cuda/cutlass_tiles.h"

#include "cutlass_fake.h"

#include <gmock/gmock.h>

#include <set>

namespace octile::cuda {
namespace {

using testing::HasSubstr;

std::vector<OctileCutlassConfig> tiles() { return cutlass_tiles(*good_cutlass().api); }

Problem problem_of(std::int64_t n, std::int64_t k) {
  Problem problem;
  problem.n = n;
  problem.k = k;
  return problem;
}

TEST(CutlassTiles, EveryConfigNamesItsKernelAndNoOther) {
  const auto all = tiles();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto found = find_cutlass_tile(all, to_config(all[i]));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(*found, static_cast<std::int32_t>(i));
  }
}

TEST(CutlassTiles, AnUnknownAndAMissingKeyAndAnUnknownKernelAreNamed) {
  const auto all = tiles();
  TileConfig config = to_config(all[0]);
  config.set("num_warps", 4);
  EXPECT_THAT(find_cutlass_tile(all, config).error().message, HasSubstr("unknown key num_warps = 4 in {"));
  config = to_config(all[0]);
  config.values.pop_back();
  EXPECT_THAT(find_cutlass_tile(all, config).error().message, HasSubstr("without stages"));
  config = to_config(all[0]);
  config.set("stages", 99);
  const std::string words = find_cutlass_tile(all, config).error().message;
  EXPECT_THAT(words, HasSubstr("\"stages\": 99"));
  EXPECT_THAT(words, HasSubstr(to_config(all[0]).to_json())) << "what there is";
}

TEST(CutlassTiles, AKernelWithoutThePreciseModeIsRefusedForIt) {
  Problem problem = problem_of(4096, 4096);
  problem.accumulate = Accumulate::precise;
  int refused = 0;
  for (const OctileCutlassConfig& tile : tiles()) {
    EXPECT_EQ(check_cutlass_tile(gpu_of("sm_89"), problem, tile).has_value(), tile.precise != 0);
    refused += tile.precise != 0 ? 0 : 1;
  }
  EXPECT_GT(refused, 0);
}

TEST(CutlassTiles, ATileLargerThanTheDevicesSharedMemoryIsRefusedWithBothSizes) {
  OctileCutlassConfig tile = tiles().front();
  tile.shared_bytes = 101377;
  const auto checked = check_cutlass_tile(gpu_of("sm_89"), problem_of(64, 64), tile);
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message, HasSubstr("101377"));
  EXPECT_THAT(checked.error().message, HasSubstr("101376"));
}

TEST(CutlassTiles, WhereBitsMustNotDependOnMOneOrderOfAdditionsIsLegal) {
  const auto depths_for = [](std::int64_t k, Accumulate accumulate) {
    Problem problem = problem_of(4096, k);
    problem.batch_invariant = true;
    problem.accumulate = accumulate;
    std::set<std::int32_t> depths;
    for (const OctileCutlassConfig& tile : tiles()) {
      if (check_cutlass_tile(gpu_of("sm_89"), problem, tile)) {
        depths.insert(tile.tile_k);
      }
    }
    return depths;
  };
  EXPECT_EQ(depths_for(4096, Accumulate::precise).size(), 1U);
  EXPECT_EQ(depths_for(4096, Accumulate::fast).size(), 2U) << "whole instructions: the order is the same";
  EXPECT_EQ(depths_for(4100, Accumulate::fast).size(), 1U) << "padded to 4112, half an instruction is left over";

  Problem problem = problem_of(4096, 4096);
  problem.batch_invariant = true;
  OctileCutlassConfig split = tiles().front();
  split.warp_k = split.tile_k / 2;
  const auto checked = check_cutlass_tile(gpu_of("sm_89"), problem, split);
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message, HasSubstr("splits K"));
}

TEST(CutlassLadder, CoversEveryMOnceWithLegalKernels) {
  for (const bool precise : {false, true}) {
    Problem problem = problem_of(6144, 4096);
    problem.accumulate = precise ? Accumulate::precise : Accumulate::fast;
    const auto all = tiles();
    const auto steps = cutlass_ladder(gpu_of("sm_89"), problem, all, 20000);
    ASSERT_TRUE(steps) << steps.error().message;
    std::int64_t before = 0;
    for (const CutlassStep& step : *steps) {
      EXPECT_GT(step.last_m, before);
      before = step.last_m;
      EXPECT_TRUE(check_cutlass_tile(gpu_of("sm_89"), problem, all[static_cast<std::size_t>(step.tile)]));
    }
    EXPECT_EQ(before, 20000);
  }
}

TEST(CutlassLadder, TakesSmallTilesForFewTokensAndLargeOnesForMany) {
  const auto all = tiles();
  for (const auto& [n, k] : {std::pair{6144, 4096}, {4096, 4096}, {24576, 4096}, {4096, 12288}}) {
    const auto steps = cutlass_ladder(gpu_of("sm_89"), problem_of(n, k), all, 8192);
    ASSERT_TRUE(steps);
    EXPECT_EQ(all[static_cast<std::size_t>(steps->front().tile)].tile_m, 16);
    const OctileCutlassConfig& last = all[static_cast<std::size_t>(steps->back().tile)];
    EXPECT_GE(last.tile_m * last.tile_n, 128 * 128);
  }
}

TEST(CutlassLadder, WithoutALegalKernelTheReasonsAreGiven) {
  auto few = tiles();
  few.resize(2);
  const auto steps = cutlass_ladder(gpu_of("sm_89", 1024), problem_of(64, 64), few, 16);
  ASSERT_FALSE(steps);
  EXPECT_EQ(steps.error().code, ErrorCode::unavailable);
  EXPECT_THAT(steps.error().message, HasSubstr("allows 1024; cutlass: "));
}

}  // namespace
}  // namespace octile::cuda
