// SPDX-License-Identifier: Apache-2.0
// hopper_wgmma where blocks take many tiles: its roles must agree on every one of them. What else it computes is tested with
// the other families, in families_gpu_test.cpp. Skipped without a GPU.
#include "family_under_test.h"
#include "support/product_case.h"

#include <gtest/gtest.h>

#include <vector>

namespace octile::cuda {
namespace {

// Tiles of 16 to 256 tokens: 16 to 200 of them for each of few channels, one to 30 for a block of an H200, whose rings hold
// the end of one tile and the beginning of the next at every place. K of one stage, of fewer than a ring has, of more.
TEST(HopperWgmma, BlocksOfManyTilesHaveTheBitsOfHopperDecode) {
  OCTILE_REQUIRE_GPU();
  const DeviceInfo& device = test::gpu().context->info;
  if (const auto available = hopper_wgmma_family().available(device); !available) {
    GTEST_SKIP() << available.error().message;
  }
  SCOPED_TRACE(test::seed_text());
  struct Case {
    std::int64_t k;
    Accumulate accumulate;
    WeightLayout layout;
  };
  std::vector<Case> cases = {{512, Accumulate::fast, WeightLayout::slab64}, {1408, Accumulate::fast, WeightLayout::slab64}};
  for (const std::int64_t k : {100, 512, 1408}) {
    for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
      cases.push_back({k, accumulate, WeightLayout::automatic});
    }
  }
  for (const auto& [k, accumulate, layout] : cases) {
    {
      test::ProductShape shape;
      shape.m = 3201;
      shape.n = 2104;
      shape.k = k;
      shape.bias = true;
      shape.accumulate = accumulate;
      test::ProductCase one(fitted(shape, layout));
      Problem problem = one.problem();
      problem.numerics = Numerics::baseline;
      const auto decode = hopper_decode_family().prepare(device, problem, to_config(DecodeTile{64, 2, 4, 1}), shape.m);
      ASSERT_TRUE(decode) << decode.error().message;
      const std::vector<unsigned char> wanted = one.run(**decode);
      const std::vector<TileConfig> configs = legal_wgmma_tiles(problem);
      std::vector<WarmupItem> items;
      for (const TileConfig& config : configs) {
        items.push_back({&hopper_wgmma_family(), problem, config});
      }
      for (const Error& error : warm_up(device, items, {}).failures) {
        ADD_FAILURE() << error.message;
      }
      for (const TileConfig& config : configs) {
        const auto kernel = hopper_wgmma_family().prepare(device, problem, config, shape.m);
        ASSERT_TRUE(kernel) << kernel.error().message;
        // Twice: what a first call leaves behind must not matter.
        for (int call = 0; call < 2; ++call) {
          EXPECT_TRUE(one.run(**kernel) == wanted) << config.to_json() << " " << to_string(layout) << " K=" << k
                                                   << ", accumulate " << to_string(accumulate) << ", call " << call;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octile::cuda
