// SPDX-License-Identifier: Apache-2.0
// The weight layout "slab64": where bytes lie, which boxes there are, and packing on a fake driver. What the kernels move is
// tested on a GPU, in slab64_gpu_test.cpp.
#include "octile/kernels/cuda/slab64.h"

#include "fake_device.h"
#include "family_under_test.h"
#include "octile/core/env.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/product_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace octile::cuda {
namespace {

using testing::HasSubstr;

TEST(Slab64, ShapesWithoutWholeSlabsAreRefusedWithWhatCame) {
  EXPECT_TRUE(check_slab64_shape(64, 128));
  EXPECT_TRUE(check_slab64_shape(24576, 4096));
  for (const auto& [n, k] : {std::pair{63, 128}, {65, 128}, {64, 127}, {64, 64}, {96, 4096}, {0, 128}, {64, 0}}) {
    const auto refused = check_slab64_shape(n, k);
    ASSERT_FALSE(refused) << n << ' ' << k;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(refused.error().message, testing::AllOf(HasSubstr("N a multiple of 64 and K of 128"),
                                                        HasSubstr("got N = " + std::to_string(n) + ", K = ")));
  }
}

TEST(Slab64, EveryByteOfASlabHasAPlaceOfItsOwnInTheSlab) {
  constexpr std::int64_t kN = 192;
  constexpr std::int64_t kK = 384;
  std::vector<bool> taken(static_cast<std::size_t>(kN * kK));
  for (std::int64_t channel = 0; channel < kN; ++channel) {
    for (std::int64_t column = 0; column < kK; ++column) {
      const std::int64_t at = slab64_offset(channel, column, kK);
      ASSERT_EQ(at / (64 * kK), channel / 64) << channel << ", " << column;
      ASSERT_FALSE(taken[static_cast<std::size_t>(at)]) << channel << ", " << column;
      taken[static_cast<std::size_t>(at)] = true;
    }
  }
}

// A tile of 64 x 128 bytes lies as it would in shared memory behind a box in the 128-byte swizzle: bits 4 to 6 of an address
// XOR its bits 7 to 9.
TEST(Slab64, ATileLiesAsTheSwizzleWouldPutIt) {
  constexpr std::int64_t kK = 256;
  for (std::int64_t row = 0; row < 64; ++row) {
    for (std::int64_t column = 0; column < 128; ++column) {
      const std::int64_t plain = row * 128 + column;
      const std::int64_t swizzled = plain ^ ((plain >> 7 & 7) << 4);
      ASSERT_EQ(slab64_offset(row, column, kK), swizzled);
      ASSERT_EQ(slab64_offset(row, 128 + column, kK), 8192 + swizzled) << "the next chunk of K is the next tile";
      ASSERT_EQ(slab64_offset(64 + row, column, kK), 64 * kK + swizzled) << "the next slab";
    }
  }
}

TEST(Slab64, EveryBoxHasAPlaceAndLiesInOneSlab) {
  for (std::size_t i = 0; i < kSlabBoxes; ++i) {
    const SlabBox box = slab_box(i);
    EXPECT_EQ(slab_box_index(box), i);
    EXPECT_EQ(64 % box.rows, 0);
    EXPECT_TRUE(box.chunks >= 1 && box.chunks <= kMostSlabChunks);
  }
  for (const DecodeTile& tile : decode_tiles_of_every_kind()) {
    const int rows = tile.rows_of_slab_box();
    const SlabBox wanted = {rows, rows == tile.rows ? tile.k_chunks : 1};
    const SlabBox found = slab_box(slab_box_index(wanted));
    EXPECT_EQ(tile.rows % rows, 0) << to_config(tile).to_json();
    EXPECT_EQ(found.rows, wanted.rows) << to_config(tile).to_json();
    EXPECT_EQ(found.chunks, wanted.chunks) << to_config(tile).to_json();
  }
}

TEST(Slab64, ATileWhoseBoxesWouldCrossASlabIsRefused) {
  Problem problem;
  problem.n = problem.k = 4096;
  WgmmaTile tile = wgmma_tile(64, 72, 1, false, 1, 1, 4);
  tile.swap = true;
  const DeviceInfo device = *known_device("NVIDIA_H200");
  EXPECT_TRUE(hopper_wgmma_family().check(device, problem, to_config(tile)));
  problem.layout = WeightLayout::slab64;
  const auto refused = hopper_wgmma_family().check(device, problem, to_config(tile));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("steps of 16"));
  tile.channels = 80;
  EXPECT_TRUE(hopper_wgmma_family().check(device, problem, to_config(tile)));
}

TEST(Slab64, HoppersFamiliesReadBothLayoutsAndRefuseShapesWithoutSlabs) {
  const DeviceInfo device = *known_device("NVIDIA_H200");
  Problem problem;
  problem.n = 6144;
  problem.k = 4096;
  for (const KernelFamily* family : {&hopper_decode_family(), &hopper_wgmma_family()}) {
    problem.k = 4096;
    problem.layout = WeightLayout::automatic;
    EXPECT_EQ(family->layout_for(problem), "row_major") << family->name();
    problem.layout = WeightLayout::slab64;
    EXPECT_EQ(family->layout_for(problem), "slab64") << family->name();
    const auto space = family->space(device, problem, 128);
    ASSERT_FALSE(space.empty()) << family->name();
    for (const TileConfig& config : space) {
      ASSERT_TRUE(family->check(device, problem, config)) << family->name() << ' ' << config.to_json();
    }
    const TileConfig config = family->heuristic(device, problem, 128);
    EXPECT_TRUE(family->check(device, problem, config)) << family->name();
    problem.k = 4112;
    const auto refused = family->check(device, problem, config);
    ASSERT_FALSE(refused) << family->name();
    EXPECT_THAT(refused.error().message, HasSubstr("got N = 6144, K = 4112"));
  }
  for (const KernelFamily* family : {&ada_mma_family(), &cublaslt_family(), &cutlass_family()}) {
    EXPECT_EQ(family->layout_for(problem), "row_major") << family->name();
  }
}

class SlabWeights : public FakeDriverTest {
 protected:
  void SetUp() override {
    FakeDriverTest::SetUp();
    if (HasFatalFailure()) {
      return;
    }
    open();
    if (const auto kernel = load_rows_to_slabs(*contexts_[0]); !kernel && kernel.error().code == ErrorCode::unavailable) {
      GTEST_SKIP() << kernel.error().message;
    }
    source_.n = 128;
    source_.k = 256;
    source_.codes = codes_.data();
    source_.scales = &scale_;
    source_.scale_count = 1;
  }

  env::ScopedOverride cache_{"OCTILE_CACHE_DIR", std::string(OCTILE_TEST_BINARY_DIR) + "/cubins"};
  std::vector<std::uint8_t> codes_ = std::vector<std::uint8_t>(128 * 256, 0x38);
  float scale_ = 1.0F;
  WeightSource source_;
};

TEST_F(SlabWeights, OneCopyStaysOnTheDeviceWithAMapForEachBox) {
  const auto weight = pack_slab64(*contexts_[0], source_);
  ASSERT_TRUE(weight) << weight.error().message;
  EXPECT_EQ((*weight)->layout(), "slab64");
  EXPECT_EQ(static_cast<std::size_t>((*weight)->bytes()), state_->allocated) << "what it was packed by way of is freed";
  EXPECT_EQ((*weight)->bytes(), 128 * 256 + 128 * 4);
  for (std::size_t i = 0; i < kSlabBoxes; ++i) {
    const std::uint64_t lines = static_cast<std::uint64_t>(slab_box(i).rows) / 8;
    const TensorMap wanted = {{(*weight)->codes(), 256, 8, 1024, lines}};
    EXPECT_TRUE(std::ranges::equal((*weight)->box(i).opaque, wanted.opaque)) << i;
  }
  ASSERT_FALSE(state_->launches.empty());
  EXPECT_EQ(state_->launches.back().config.gridDimX, 4U) << "one block a tile of 64 x 128";
  EXPECT_EQ(state_->wrong_context_calls, 0);
}

TEST_F(SlabWeights, WhatCannotBePackedLeavesNothingBehind) {
  WeightSource narrow = source_;
  narrow.n = 96;
  const auto refused = pack_slab64(*contexts_[0], narrow);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("got N = 96, K = 256"));
  for (const char* call :
       {"cuMemAlloc", "cuStreamCreate", "cuMemcpy2DAsync", "cuLaunchKernelEx", "cuMemcpyHtoD", "cuTensorMapEncodeTiled"}) {
    state_->failing_call = call;
    EXPECT_FALSE(pack_slab64(*contexts_[0], source_)) << call;
    EXPECT_EQ(state_->allocated, 0U) << call;
  }
  state_->failing_call.clear();
}

TEST_F(SlabWeights, AWeightInAnotherLayoutThanAKernelReadsIsRefused) {
  const auto slabs = pack_slab64(*contexts_[0], source_);
  const auto rows = pack_row_major(*contexts_[0], source_);
  ASSERT_TRUE(slabs && rows);
  Problem problem;
  problem.n = 128;
  problem.k = 256;
  LaunchArgs args;
  args.activation.x = {nullptr, DType::e4m3, 0, 256, 256, 1};
  args.y = {nullptr, DType::bf16, 0, 128, 128, 1};
  EXPECT_TRUE(check_product_call("f", *contexts_[0], problem, **rows, args, 0));
  EXPECT_TRUE(check_product_call("f", *contexts_[0], problem, **slabs, args, 0, kSlab64));
  const auto wrong = check_product_call("f", *contexts_[0], problem, **slabs, args, 0);
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("f: want a weight in layout row_major, got layout slab64"));
  EXPECT_FALSE(check_product_call("f", *contexts_[0], problem, **rows, args, 0, kSlab64));
}

}  // namespace
}  // namespace octile::cuda
