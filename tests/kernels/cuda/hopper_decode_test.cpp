// SPDX-License-Identifier: Apache-2.0
// hopper_decode: configs and device code anywhere, results on a Hopper GPU.
#include "octile/kernels/cuda/hopper_decode_family.h"

#include "octile/core/env.h"
#include "octile/core/float_formats.h"
#include "octile/kernels/cuda/ada_mma_config.h"
#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/cuda/hopper_decode_config.h"
#include "octile/kernels/known_devices.h"
#include "support/product_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace octile::cuda {
namespace {

using test::ProductCase;
using test::ProductShape;
using testing::HasSubstr;

Problem problem_of(std::int64_t n, std::int64_t k) {
  Problem problem;
  problem.n = n;
  problem.k = k;
  return problem;
}

std::string why_illegal(const DecodeTile& tile, const Problem& problem = problem_of(4096, 4096)) {
  const auto checked = hopper_decode_family().check(*known_device("NVIDIA_H200"), problem, to_config(tile));
  return checked ? "legal" : checked.error().message;
}

TEST(HopperDecodeConfig, IllegalConfigsAreRefusedWithTheReason) {
  EXPECT_EQ(why_illegal({8, 2, 6, 1}), "legal");
  EXPECT_THAT(why_illegal({12, 2, 6, 1}), HasSubstr("TOKENS"));
  EXPECT_THAT(why_illegal({8, 2, 6, 3}), HasSubstr("SPLIT_K"));
  EXPECT_THAT(why_illegal({8, 2, 6, 1, 96}), HasSubstr("ROWS"));
  EXPECT_THAT(why_illegal({64, 4, 8, 1}), HasSubstr("bytes of shared memory"));
  EXPECT_THAT(why_illegal({128, 1, 2, 1, 256}), HasSubstr("sums do not fit the ring"));
  EXPECT_THAT(why_illegal({8, 0, 6, 1}), HasSubstr("K_CHUNKS = 0"));
  TileConfig unknown = to_config(DecodeTile{8, 2, 6, 1});
  unknown.set("num_warps", 4);
  const auto parsed = parse_decode_tile(unknown);
  ASSERT_FALSE(parsed);
  EXPECT_THAT(parsed.error().message, HasSubstr("num_warps"));
}

TEST(HopperDecodeConfig, ASplitChangesBitsAndIsRefusedWhereBitsArePromised) {
  Problem problem = problem_of(4096, 4096);
  problem.numerics = Numerics::baseline;
  EXPECT_EQ(why_illegal({8, 2, 6, 1}, problem), "legal");
  EXPECT_THAT(why_illegal({8, 2, 6, 2}, problem), HasSubstr("SPLIT_K"));
}

TEST(HopperDecodeConfig, OnlyHopperHasIt) {
  EXPECT_TRUE(hopper_decode_family().available(*known_device("NVIDIA_H100_PCIe")));
  EXPECT_FALSE(hopper_decode_family().available(*known_device("NVIDIA_L40S")));
  EXPECT_FALSE(hopper_decode_family().available(*known_device("NVIDIA_B200")));
}

TEST(HopperDecodeConfig, BatchInvariantModeIsLeftToAFamilyThatServesEveryM) {
  Problem problem = problem_of(24576, 4096);
  problem.batch_invariant = true;
  EXPECT_THAT(why_illegal({8, 2, 6, 1}, problem), HasSubstr("batch-invariant"));
  EXPECT_TRUE(hopper_decode_family().space(*known_device("NVIDIA_H200"), problem, 8).empty());
}

TEST(HopperDecodeConfig, SpaceAndHeuristicAreLegalForEveryM) {
  const DeviceInfo device = *known_device("NVIDIA_H200");
  for (const std::int64_t m : {1, 8, 9, 33, 64, 65, 100, 128, 200, 5000}) {
    for (const Numerics numerics : {Numerics::deterministic, Numerics::baseline}) {
      Problem problem = problem_of(24576, 4096);
      problem.numerics = numerics;
      const auto space = hopper_decode_family().space(device, problem, m);
      EXPECT_EQ(space.empty(), m > 256) << m;
      for (const TileConfig& config : space) {
        const auto checked = hopper_decode_family().check(device, problem, config);
        ASSERT_TRUE(checked) << checked.error().message;
      }
      const auto heuristic =
          hopper_decode_family().check(device, problem, hopper_decode_family().heuristic(device, problem, m));
      ASSERT_TRUE(heuristic) << heuristic.error().message;
    }
  }
}

// Tiles of every width, split, ring and stage.
std::vector<DecodeTile> tiles_of_every_kind() {
  std::vector<DecodeTile> tiles;
  for (const int tokens : {8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128}) {
    tiles.push_back({tokens, tokens % 16 == 0 ? 2 : 1, 4, 1});
  }
  for (const DecodeTile& tile :
       {DecodeTile{8, 1, 12, 2}, DecodeTile{8, 4, 3, 4}, DecodeTile{16, 2, 5, 8}, DecodeTile{32, 4, 2, 2},
        DecodeTile{64, 1, 6, 4}, DecodeTile{128, 1, 3, 2}, DecodeTile{8, 8, 2, 1}, DecodeTile{8, 4, 6, 1, 48},
        DecodeTile{16, 1, 3, 2, 48}, DecodeTile{24, 2, 2, 1, 32}, DecodeTile{8, 1, 32, 4, 32}, DecodeTile{64, 2, 4, 1, 128},
        DecodeTile{16, 1, 2, 4, 128}, DecodeTile{32, 2, 3, 2, 192}, DecodeTile{128, 1, 4, 1, 256}}) {
    tiles.push_back(tile);
  }
  return tiles;
}

CompileRequest request_of(const DecodeTile& tile, DType out, Accumulate accumulate) {
  return {"sm_90a", "hopper_decode.cuh", decode_defines(tile, out, accumulate), "octile_hopper_decode"};
}

TEST(HopperDecodeSource, CompilesWithoutSpillsAndHoldsItsInstructions) {
  const env::ScopedOverride cache("OCTILE_CACHE_DIR", std::string(OCTILE_TEST_BINARY_DIR) + "/cubins");
  std::vector<CompileRequest> requests;
  for (const DecodeTile& tile : tiles_of_every_kind()) {
    requests.push_back(request_of(tile, DType::bf16, requests.size() % 2 == 0 ? Accumulate::fast : Accumulate::precise));
  }
  const auto results = compile_all(requests, 2);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i] && results[i].error().code == ErrorCode::unavailable) {
      GTEST_SKIP() << results[i].error().message;
    }
    ASSERT_TRUE(results[i]) << results[i].error().message;
    EXPECT_EQ(results[i]->spill_store_bytes + results[i]->spill_load_bytes + results[i]->stack_bytes, 0)
        << requests[i].defines[0];
  }
  const auto ptx = compile_to_ptx(requests.front());
  ASSERT_TRUE(ptx) << ptx.error().message;
  EXPECT_THAT(*ptx, HasSubstr("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3"));
  EXPECT_THAT(*ptx, HasSubstr("cp.async.bulk.tensor.2d"));
  EXPECT_THAT(*ptx, HasSubstr("griddepcontrol.wait"));
  EXPECT_EQ(ptx->find("ld.global.nc"), std::string::npos)
      << "a read-only load may be hoisted above the wait for the kernel that wrote its data";
}

// Skips without a Hopper GPU.
class HopperDecode : public testing::Test {
 protected:
  void SetUp() override {
    OCTILE_REQUIRE_GPU();
    if (const auto available = hopper_decode_family().available(test::gpu().context->info); !available) {
      GTEST_SKIP() << available.error().message;
    }
  }

  // One after the other they take minutes of the GPU's time.
  static void compile_ahead(DType out, Accumulate accumulate) {
    std::vector<CompileRequest> requests;
    for (const DecodeTile& tile : tiles_of_every_kind()) {
      requests.push_back(request_of(tile, out, accumulate));
    }
    for (const auto& compiled : compile_all(requests)) {
      EXPECT_TRUE(compiled) << compiled.error().message;
    }
  }
};

TEST_F(HopperDecode, EveryKindOfTileIsRightWithTailsInEveryDimension) {
  ProductShape shape;
  shape.n = 331;
  shape.k = 1100;
  shape.bias = true;
  shape.x_pad = 5;
  shape.y_pad = 3;
  compile_ahead(shape.out_dtype, shape.accumulate);
  for (const std::int64_t m : {1, 17, 150}) {
    shape.m = m;
    ProductCase one(shape);
    for (const DecodeTile& tile : tiles_of_every_kind()) {
      one.expect_right(hopper_decode_family(), to_config(tile));
    }
  }
}

TEST_F(HopperDecode, EveryKindOfTileIsRightInPreciseMode) {
  ProductShape shape;
  shape.m = 70;
  shape.n = 200;
  shape.k = 2080;
  shape.accumulate = Accumulate::precise;
  shape.out_dtype = DType::fp32;
  compile_ahead(shape.out_dtype, shape.accumulate);
  ProductCase one(shape);
  for (const DecodeTile& tile : tiles_of_every_kind()) {
    one.expect_right(hopper_decode_family(), to_config(tile));
  }
}

TEST_F(HopperDecode, TinyShapesAndEveryOutputType) {
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const std::int64_t k : {1, 4, 12, 16, 20, 100}) {
      for (const std::int64_t n : {1, 2, 17, 1001}) {
        ProductShape shape;
        shape.m = 3;
        shape.n = n;
        shape.k = k;
        shape.out_dtype = dtype;
        shape.bias = n % 2 == 1;
        ProductCase one(shape);
        one.expect_right(hopper_decode_family(), to_config(DecodeTile{8, 2, 4, 1}));
        one.expect_right(hopper_decode_family(), to_config(DecodeTile{8, 1, 12, 2}));
      }
    }
  }
}

TEST_F(HopperDecode, ARowOrChannelOfNaNStaysAlone) {
  ProductShape shape;
  shape.m = 21;
  shape.n = 70;
  shape.k = 300;
  ProductCase one(shape);
  for (std::int64_t i = 0; i < shape.k; ++i) {
    one.codes_x[static_cast<std::size_t>(4 * shape.k + i)] = 0x7F;
  }
  one.scales_x[4] = std::numeric_limits<float>::quiet_NaN();
  one.codes_w[static_cast<std::size_t>(33 * shape.k + 299)] = 0xFF;
  one.upload();
  for (const DecodeTile& tile : tiles_of_every_kind()) {
    one.expect_right(hopper_decode_family(), to_config(tile));
  }
}

TEST_F(HopperDecode, AHundredRunsGiveTheSameBits) {
  ProductShape shape;
  shape.m = 61;
  shape.n = 1030;
  shape.k = 4100;
  ProductCase one(shape);
  for (const DecodeTile& tile : tiles_of_every_kind()) {
    const auto kernel = one.prepare(hopper_decode_family(), to_config(tile));
    ASSERT_NE(kernel, nullptr);
    const auto first = one.run(*kernel);
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(one.run(*kernel), first) << to_config(tile).to_json() << ", run " << i;
    }
  }
}

TEST_F(HopperDecode, WithoutASplitEveryTileGivesTheSameBits) {
  for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
    ProductShape shape;
    shape.m = 50;
    shape.n = 264;
    shape.k = 1500;
    shape.accumulate = accumulate;
    compile_ahead(shape.out_dtype, accumulate);
    ProductCase one(shape);
    std::vector<unsigned char> bits;
    for (const DecodeTile& tile : tiles_of_every_kind()) {
      if (tile.split_k > 1) {
        continue;
      }
      const auto kernel = one.prepare(hopper_decode_family(), to_config(tile));
      ASSERT_NE(kernel, nullptr);
      const auto bytes = one.run(*kernel);
      if (bits.empty()) {
        bits = bytes;
      }
      EXPECT_EQ(bytes, bits) << to_config(tile).to_json() << " " << to_string(accumulate);
    }
  }
}

}  // namespace
}  // namespace octile::cuda
