// SPDX-License-Identifier: Apache-2.0
// What a product's launch is told of its inputs and outputs. Needs no GPU.
#include "octile/kernels/cuda/product_call.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace octile::cuda {
namespace {

TEST(ProductCall, StartsEarlyInAChainAlwaysAndElsewhereOnlyBehindOurOwnQuantiser) {
  for (const bool launched : {false, true}) {
    DeviceCodes codes;
    codes.launched = launched;
    EXPECT_TRUE(product_starts_early(Pdl::full, codes));
    EXPECT_EQ(product_starts_early(Pdl::consume, codes), launched);
    EXPECT_FALSE(product_starts_early(Pdl::off, codes));
    LaunchArgs args;
    args.fenced = true;  // Its weight may still be being written.
    for (const Pdl mode : {Pdl::off, Pdl::consume, Pdl::full}) {
      EXPECT_FALSE(product_starts_early(allowed_pdl(mode, args), codes));
    }
  }
}

TEST(ProductCall, NeighboursAreStoredAtOnceWhereEveryRowStartsAtAMultipleOfThem) {
  alignas(64) static std::uint16_t memory[64];
  const auto aligned = [](int offset, std::int64_t rows, std::int64_t stride, int neighbours) {
    return output_rows({memory + offset, DType::bf16, rows, 8, stride, 1}, neighbours).aligned;
  };
  EXPECT_EQ(aligned(0, 2, 16, 4), 1U);
  EXPECT_EQ(aligned(4, 2, 20, 4), 1U);
  EXPECT_EQ(aligned(4, 2, 16, 8), 0U);
  EXPECT_EQ(aligned(0, 2, 20, 8), 0U);
  EXPECT_EQ(aligned(0, 2, 24, 8), 1U);
  EXPECT_EQ(aligned(0, 1, 9, 8), 1U) << "one row has no stride";
  EXPECT_EQ(aligned(1, 1, 9, 4), 0U);
}

}  // namespace
}  // namespace octile::cuda
