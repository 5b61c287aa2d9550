// SPDX-License-Identifier: Apache-2.0
// What the built CUTLASS component alone must do on a GPU; what every family must do is in families_gpu_test.cpp. Skipped
// without a GPU or a component.
#include "octile/core/env.h"
#include "octile/kernels/cuda/cutlass_family.h"
#include "octile/kernels/cuda/cutlass_tiles.h"
#include "support/product_case.h"

#include <optional>

namespace octile::cuda {
namespace {

using test::ProductCase;
using test::ProductShape;

class CutlassOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    OCTILE_REQUIRE_GPU();
    anywhere_.emplace("OCTILE_CUTLASS_ON_ANY_GPU", "on");
    if (const auto available = cutlass_family().available(device()); !available) {
      GTEST_SKIP() << available.error().message;
    }
  }
  void TearDown() override { anywhere_.reset(); }

  static const DeviceInfo& device() { return test::gpu().context->info; }

 private:
  std::optional<env::ScopedOverride> anywhere_;
};

TEST_F(CutlassOnGpu, ItsOwnChoiceIsRightOnBothSidesOfEveryStep) {
  ProductShape shape;
  shape.n = 2048;
  shape.k = 256;
  const auto tiles = cutlass_tiles(*cutlass_component().api);
  Problem problem;
  problem.n = shape.n;
  problem.k = shape.k;
  const auto steps = cutlass_ladder(device(), problem, tiles, 1024);
  ASSERT_TRUE(steps) << steps.error().message;
  EXPECT_GT(steps->size(), 1U);
  for (const CutlassStep& step : *steps) {
    for (const std::int64_t m : {step.last_m, step.last_m + 1}) {
      shape.m = m;
      ProductCase one(shape);
      one.expect_right(cutlass_family(), {});
    }
  }
}

// K of whole instructions and of half ones, shorter and longer than a step.
TEST_F(CutlassOnGpu, KernelsOfOneOrderOfAdditionsHaveTheSameBits) {
  for (const std::int64_t k : {48, 112, 1504, 1520, 1536}) {
    for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
      ProductShape shape;
      shape.m = 34;
      shape.n = 264;
      shape.k = k;
      shape.accumulate = accumulate;
      shape.out_dtype = DType::fp32;
      ProductCase one(shape);
      SCOPED_TRACE(test::text(shape) + " " + test::seed_text());
      Problem problem = one.problem();
      problem.batch_invariant = true;
      std::vector<unsigned char> bits;
      for (const OctileCutlassConfig& tile : cutlass_tiles(*cutlass_component().api)) {
        if (!check_cutlass_tile(device(), problem, tile)) {
          continue;
        }
        auto kernel = cutlass_family().prepare(device(), problem, to_config(tile), shape.m);
        ASSERT_TRUE(kernel) << kernel.error().message;
        const auto came = one.run(**kernel);
        if (bits.empty()) {
          bits = came;
        }
        EXPECT_EQ(came, bits) << to_config(tile).to_json();
      }
      EXPECT_FALSE(bits.empty());
    }
  }
}

}  // namespace
}  // namespace octile::cuda
