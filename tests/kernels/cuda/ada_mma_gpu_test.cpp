// SPDX-License-Identifier: Apache-2.0
// ada_mma on a GPU against the double-precision reference. Skipped without one.
#include "kernels/cuda/l40s_tables.h"
#include "octile/core/float_formats.h"
#include "octile/kernels/cuda/ada_mma_config.h"
#include "octile/kernels/cuda/ada_mma_family.h"
#include "octile/kernels/cuda/compile.h"
#include "support/product_case.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace octile::cuda {
namespace {

using test::ProductCase;
using test::ProductShape;

AdaTile tile_of(int m, int n, int k, int warps, int stages, int split = 1, bool swap = false) {
  AdaTile tile;
  tile.block_m = m;
  tile.block_n = n;
  tile.block_k = k;
  tile.warps = warps;
  tile.stages = stages;
  tile.split_k = split;
  tile.swap_ab = swap;
  return tile;
}

// Tiles of every kind: each warp grid, ring depth, orientation and split.
std::vector<TileConfig> tiles_of_every_kind() {
  std::vector<TileConfig> tiles = test::l40s_tiles();
  for (const AdaTile& tile :
       {tile_of(16, 16, 32, 1, 1), tile_of(16, 16, 64, 2, 3), tile_of(16, 128, 64, 4, 6), tile_of(32, 64, 32, 4, 4, 3),
        tile_of(8, 32, 256, 4, 4, 1, true), tile_of(8, 16, 512, 4, 3, 2, true), tile_of(16, 64, 128, 4, 4, 1, true),
        tile_of(64, 64, 64, 4, 3, 4), tile_of(64, 128, 128, 8, 3, 1, true), tile_of(128, 64, 128, 4, 3, 2),
        tile_of(16, 256, 128, 8, 3), tile_of(256, 16, 128, 8, 3), tile_of(128, 128, 128, 16, 3),
        tile_of(16, 16, 1024, 16, 3, 5)}) {
    tiles.push_back(to_config(tile));
  }
  return tiles;
}

// Compiles the configs by all cores into the cache, since one after the other they take minutes of the GPU's time.
void compile_ahead(const Problem& problem, const std::vector<TileConfig>& configs) {
  const DeviceInfo& device = test::gpu().context->info;
  std::vector<CompileRequest> requests;
  for (const TileConfig& config : configs) {
    const auto tile = parse_ada_tile(config);
    const auto grid = tile ? check_ada_tile(device, problem, *tile) : Expected<WarpGrid>(tile.error());
    if (!grid) {
      continue;  // Whoever runs it says why.
    }
    const auto defines = ada_defines(*tile, *grid, problem.out_dtype, resolve_accumulate(problem.accumulate));
    requests.push_back({compile_arch(device.arch), "ada_mma.cuh", defines, "octile_ada_mma"});
    if (tile->split_k > 1) {
      requests.push_back({compile_arch(device.arch), "ada_mma.cuh", defines, "octile_ada_mma_reduce"});
    }
  }
  for (const auto& compiled : compile_all(requests)) {
    EXPECT_TRUE(compiled) << compiled.error().message;
  }
}

TEST(AdaMma, EveryKindOfTileIsRightWithTailsInEveryDimension) {
  OCTILE_REQUIRE_GPU();
  ProductShape shape;
  shape.n = 331;
  shape.k = 1100;
  shape.bias = true;
  shape.x_pad = 5;
  shape.y_pad = 3;
  for (const std::int64_t m : {1, 17, 130}) {
    shape.m = m;
    ProductCase one(shape);
    compile_ahead(one.problem(), tiles_of_every_kind());
    for (const TileConfig& config : tiles_of_every_kind()) {
      one.expect_right(ada_mma_family(), config);
    }
  }
}

TEST(AdaMma, EveryKindOfTileIsRightInPreciseMode) {
  OCTILE_REQUIRE_GPU();
  ProductShape shape;
  shape.m = 70;
  shape.n = 200;
  shape.k = 2080;
  shape.accumulate = Accumulate::precise;
  shape.out_dtype = DType::fp32;
  ProductCase one(shape);
  compile_ahead(one.problem(), tiles_of_every_kind());
  for (const TileConfig& config : tiles_of_every_kind()) {
    one.expect_right(ada_mma_family(), config);
  }
}

TEST(AdaMma, TinyShapesAndEveryOutputType) {
  OCTILE_REQUIRE_GPU();
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
        one.expect_right(ada_mma_family(), to_config(tile_of(16, 32, 128, 4, 3)));
        one.expect_right(ada_mma_family(), to_config(tile_of(64, 64, 64, 4, 3)));
        one.expect_right(ada_mma_family(), to_config(tile_of(8, 32, 64, 2, 3, 2, true)));
      }
    }
  }
}

TEST(AdaMma, OnesWithPowersOfTwoAsScalesAreExactEverywhere) {
  OCTILE_REQUIRE_GPU();
  ProductShape shape;
  shape.m = 260;
  shape.n = 516;
  shape.k = 256;
  shape.out_dtype = DType::fp32;
  ProductCase one(shape);
  one.codes_x.assign(one.codes_x.size(), 0x38);  // 1.0
  one.codes_w.assign(one.codes_w.size(), 0x38);
  for (std::int64_t i = 0; i < shape.m; ++i) {
    one.scales_x[static_cast<std::size_t>(i)] = std::ldexp(1.0F, static_cast<int>(i % 41) - 20);
  }
  for (std::int64_t i = 0; i < shape.n; ++i) {
    one.scales_w[static_cast<std::size_t>(i)] = std::ldexp(1.0F, static_cast<int>(i % 37) - 18);
  }
  one.upload();
  compile_ahead(one.problem(), tiles_of_every_kind());
  for (const TileConfig& config : tiles_of_every_kind()) {
    const auto kernel = one.prepare(ada_mma_family(), config);
    ASSERT_NE(kernel, nullptr);
    const auto bytes = one.run(*kernel);
    for (std::int64_t m = 0; m < shape.m; ++m) {
      for (std::int64_t n = 0; n < shape.n; ++n) {
        const float want = 256.0F * one.scales_x[static_cast<std::size_t>(m)] * one.scales_w[static_cast<std::size_t>(n)];
        ASSERT_EQ(load_as_float(bytes.data(), DType::fp32, m * shape.n + n), want)
            << config.to_json() << " at (" << m << ", " << n << ")";
      }
    }
  }
}

TEST(AdaMma, ARowOrChannelOfNaNStaysAlone) {
  OCTILE_REQUIRE_GPU();
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
  compile_ahead(one.problem(), tiles_of_every_kind());
  for (const TileConfig& config : tiles_of_every_kind()) {
    one.expect_right(ada_mma_family(), config);
  }
}

TEST(AdaMma, AHundredRunsGiveTheSameBits) {
  OCTILE_REQUIRE_GPU();
  ProductShape shape;
  shape.m = 77;
  shape.n = 1030;
  shape.k = 4100;
  ProductCase one(shape);
  compile_ahead(one.problem(), tiles_of_every_kind());
  for (const TileConfig& config : tiles_of_every_kind()) {
    const auto kernel = one.prepare(ada_mma_family(), config);
    ASSERT_NE(kernel, nullptr);
    const auto first = one.run(*kernel);
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(one.run(*kernel), first) << config.to_json() << ", run " << i;
    }
  }
}

TEST(AdaMma, ARowsBitsDoNotDependOnTheBatchInBatchInvariantMode) {
  OCTILE_REQUIRE_GPU();
  ProductShape shape;
  shape.m = 96;
  shape.n = 264;
  shape.k = 1500;
  ProductCase all(shape);
  const DeviceInfo& device = test::gpu().context->info;
  for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
    std::vector<unsigned char> rows;
    int compared = 0;
    Problem problem = all.problem();
    problem.accumulate = accumulate;
    problem.batch_invariant = true;
    compile_ahead(problem, tiles_of_every_kind());
    for (const TileConfig& config : tiles_of_every_kind()) {
      if (!ada_mma_family().check(device, problem, config)) {
        continue;
      }
      auto kernel = ada_mma_family().prepare(device, problem, config, shape.m);
      ASSERT_TRUE(kernel) << kernel.error().message;
      const auto bytes = all.run(**kernel);
      if (rows.empty()) {
        rows = bytes;
      }
      EXPECT_EQ(bytes, rows) << config.to_json() << " " << to_string(accumulate);
      ++compared;
    }
    EXPECT_GT(compared, 5);
  }
}

TEST(AdaMma, RefusesCallsThatDoNotFitWhatWasPrepared) {
  OCTILE_REQUIRE_GPU();
  ProductShape shape;
  shape.m = 4;
  shape.n = 64;
  shape.k = 64;
  ProductCase one(shape);
  const auto kernel = one.prepare(ada_mma_family(), to_config(tile_of(16, 32, 64, 2, 3)));
  ASSERT_NE(kernel, nullptr);
  shape.n = 65;
  ProductCase other(shape);
  test::DeviceBytes memory(1 << 16);
  LaunchArgs args;
  args.activation.x = {memory.data(), DType::e4m3, 4, 64, 64, 1};
  args.activation.scales = static_cast<const float*>(memory.data());
  args.y = {memory.data(), DType::bf16, 4, 64, 64, 1};
  args.workspace = memory.data();
  WeightSource source;
  source.n = 64;
  source.k = 64;
  source.codes = one.codes_w.data();
  source.scales = one.scales_w.data();
  source.scale_count = 64;
  const auto weight = pack_row_major(*test::gpu().context, source);
  ASSERT_TRUE(weight);
  EXPECT_FALSE(kernel->run(**weight, args)) << "no workspace";
  args.workspace_bytes = memory.bytes();
  EXPECT_TRUE(kernel->run(**weight, args));
  args.y.cols = 63;
  EXPECT_FALSE(kernel->run(**weight, args)) << "another N";
  args.y.cols = 64;
  args.y.dtype = DType::fp16;
  EXPECT_FALSE(kernel->run(**weight, args)) << "another output type";
}

}  // namespace
}  // namespace octile::cuda
