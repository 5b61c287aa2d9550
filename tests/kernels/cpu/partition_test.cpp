// SPDX-License-Identifier: Apache-2.0
// Even cuts of a range.
#include "octile/kernels/cpu/partition.h"

#include <gtest/gtest.h>

namespace octile::cpu {
namespace {

TEST(Partition, CoversTheRangeOnceInPartsThatDifferByAtMostOne) {
  for (std::int64_t total = 1; total < 70; ++total) {
    for (std::int64_t largest = 1; largest < 20; ++largest) {
      const Partition cut = Partition::with_largest(total, largest);
      std::int64_t element = 0;
      for (std::int64_t part = 0; part < cut.parts; ++part) {
        ASSERT_EQ(cut.begin(part), element);
        ASSERT_GE(cut.size(part), 1);
        ASSERT_LE(cut.size(part), largest);
        ASSERT_LE(cut.size(0) - cut.size(part), 1);
        for (std::int64_t i = 0; i < cut.size(part); ++i, ++element) {
          ASSERT_EQ(cut.part_of(element), part) << element << " of " << total << " in parts of " << largest;
        }
      }
      ASSERT_EQ(element, total);
    }
  }
}

TEST(Partition, UsesTheFewestParts) {
  EXPECT_EQ(Partition::with_largest(13, 6).parts, 3);
  EXPECT_EQ(Partition::with_largest(12, 6).parts, 2);
  EXPECT_EQ(Partition::with_largest(0, 6).parts, 0);
}

}  // namespace
}  // namespace octile::cpu
