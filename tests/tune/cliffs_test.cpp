// SPDX-License-Identifier: Apache-2.0
// Which steps of a curve count as cliffs.
#include "octile/tune/cliffs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

TEST(Cliffs, ASmoothCurveHasNone) {
  EXPECT_THAT(find_cliffs({}), IsEmpty());
  EXPECT_THAT(find_cliffs({{1, 5, "a"}}), IsEmpty());
  std::vector<CurvePoint> curve;
  for (std::int64_t m = 1; m <= 200; ++m) {
    curve.push_back({m, 5.0 + 0.05 * static_cast<double>(m), "a"});
  }
  EXPECT_THAT(find_cliffs(curve), IsEmpty());
}

TEST(Cliffs, AStepBetweenNeighboursOfMoreThanATenthIsOne) {
  EXPECT_THAT(find_cliffs({{64, 10, "a"}, {65, 10.9, "b"}}), IsEmpty());
  const auto cliffs = find_cliffs({{64, 10, "a"}, {65, 13, "b"}, {66, 13, "b"}});
  ASSERT_THAT(cliffs, SizeIs(1));
  EXPECT_EQ(cliffs[0].kind, Cliff::Kind::step);
  EXPECT_NEAR(cliffs[0].ratio, 1.3, 1e-12);
  EXPECT_EQ(describe(cliffs[0]), "from M = 64 (10.00 us, a) to M = 65 (13.00 us, b): 1.30x");
}

TEST(Cliffs, WhereMsWereLeftOutTheTimeMayGrowWithM) {
  EXPECT_THAT(find_cliffs({{1000, 10, "a"}, {2000, 21, "a"}}), IsEmpty());
  EXPECT_THAT(find_cliffs({{1000, 10, "a"}, {2000, 23, "a"}}), SizeIs(1));
}

TEST(Cliffs, ALargerMThatTakesLessTimeIsNamedOnceForAStretch) {
  const auto cliffs = find_cliffs({{1, 5, "a"}, {2, 9, "b"}, {3, 8, "b"}, {4, 6, "c"}, {5, 6.5, "c"}});
  ASSERT_THAT(cliffs, SizeIs(2));
  EXPECT_EQ(cliffs[0].kind, Cliff::Kind::step);
  EXPECT_EQ(cliffs[0].to.m, 2);
  EXPECT_EQ(cliffs[1].kind, Cliff::Kind::inversion);
  EXPECT_EQ(cliffs[1].from.m, 2) << "the worst of 2 and 3";
  EXPECT_EQ(cliffs[1].to.m, 4);
  EXPECT_EQ(describe(cliffs[1]), "M = 2 (9.00 us, b) takes 1.50x as long as M = 4 (6.00 us, c)");
}

}  // namespace
}  // namespace octile
