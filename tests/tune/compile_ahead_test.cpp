// SPDX-License-Identifier: Apache-2.0
#include "octile/tune/compile_ahead.h"

#include <gtest/gtest.h>

#include <limits>

namespace octile::test {
namespace {

TEST(CompileAhead, ABatchKeepsTheCoresBusyForAFewSecondsAndNoLonger) {
  EXPECT_EQ(compile_batch_size(16), 384U);
  EXPECT_EQ(compile_batch_size(1), 64U);
  EXPECT_EQ(compile_batch_size(0), 64U) << "a number of cores that nobody knows";
  EXPECT_EQ(compile_batch_size(-1), 64U);
  EXPECT_EQ(compile_batch_size(192), compile_batch_size(64)) << "no more compile than 64 threads";
  EXPECT_EQ(compile_batch_size(std::numeric_limits<int>::max()), compile_batch_size(64));
}

}  // namespace
}  // namespace octile::test
