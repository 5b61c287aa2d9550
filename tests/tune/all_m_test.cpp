// SPDX-License-Identifier: Apache-2.0
// The M of curves: which they are, and that any head of their order spans them all.
#include "octile/tune/all_m.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace octile::test {
namespace {

using testing::ElementsAre;

TEST(CurveMs, EveryMUpTo512AndEachSixteenthAbove) {
  const std::vector<std::int64_t> ms = curve_ms(16384);
  ASSERT_EQ(ms.size(), 512U + 992U);
  for (std::int64_t m = 1; m <= 512; ++m) {
    EXPECT_EQ(ms[static_cast<std::size_t>(m - 1)], m);
  }
  EXPECT_EQ(ms[512], 528);
  EXPECT_EQ(ms.back(), 16384);
  EXPECT_EQ(curve_ms(600).back(), 592);
  EXPECT_THAT(curve_ms(3), ElementsAre(1, 2, 3));
  EXPECT_THAT(curve_ms(1), ElementsAre(1));
}

TEST(CurveMs, FromCoarseToFineIsThePermutationThatStartsWithTheCoarse) {
  const std::vector<std::int64_t> ms = curve_ms(600);
  const std::vector<std::int64_t> ordered = coarse_to_fine(ms, {1, 64, 512, 1024});
  EXPECT_THAT(std::vector(ordered.begin(), ordered.begin() + 3), ElementsAre(1, 64, 512));
  std::vector<std::int64_t> sorted = ordered;
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, ms);
}

TEST(CurveMs, AnyHeadOfTheOrderLeavesNoWideHole) {
  const std::vector<std::int64_t> ms = curve_ms(512);
  const std::vector<std::int64_t> ordered = coarse_to_fine(ms, {});
  for (const std::size_t head : {8U, 32U, 100U, 256U}) {
    const std::set<std::int64_t> taken(ordered.begin(), ordered.begin() + static_cast<std::ptrdiff_t>(head));
    std::int64_t last = 0;
    std::int64_t widest = 0;
    for (const std::int64_t m : taken) {
      widest = std::max(widest, m - last);
      last = m;
    }
    widest = std::max(widest, 512 - last);
    EXPECT_LE(widest, 4 * 512 / static_cast<std::int64_t>(head)) << "of the first " << head;
  }
}

}  // namespace
}  // namespace octile::test
