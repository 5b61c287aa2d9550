// SPDX-License-Identifier: Apache-2.0
// What a product's launch is told of its inputs and outputs. Needs no GPU.
#include "octile/kernels/cuda/product_call.h"

#include <gtest/gtest.h>

namespace octile::cuda {
namespace {

TEST(ProductCall, StartsEarlyInAChainAlwaysAndElsewhereOnlyBehindOurOwnQuantiser) {
  for (const bool launched : {false, true}) {
    DeviceCodes codes;
    codes.launched = launched;
    EXPECT_TRUE(product_starts_early(Pdl::full, codes));
    EXPECT_EQ(product_starts_early(Pdl::consume, codes), launched);
    EXPECT_FALSE(product_starts_early(Pdl::off, codes));
  }
}

}  // namespace
}  // namespace octile::cuda
