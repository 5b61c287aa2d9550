// SPDX-License-Identifier: Apache-2.0
// The cost model and the sharing of a budget.
#include "octile/tune/budget.h"

#include <gtest/gtest.h>

#include <vector>

namespace octile {
namespace {

TEST(CostModel, BelievesThePredictionUntilSomethingWasMeasured) {
  const CostModel costs;
  EXPECT_DOUBLE_EQ(costs.estimate_us("f", 10, 10, 4, 123), 123);
}

TEST(CostModel, ScalesWhatWasMeasuredByThePredictions) {
  CostModel costs;
  costs.record("f", 10, 10, 4, 100, 300);
  EXPECT_DOUBLE_EQ(costs.estimate_us("f", 10, 10, 8, 150), 450);
}

TEST(CostModel, PrefersTheSameWeightAndTheNearestM) {
  CostModel costs;
  costs.record("f", 10, 10, 1, 1, 10);
  costs.record("f", 10, 10, 64, 1, 20);
  costs.record("f", 20, 20, 32, 1, 5);
  EXPECT_DOUBLE_EQ(costs.estimate_us("f", 10, 10, 64, 1), 20);
}

TEST(CostModel, DoesNotBelieveThatTwiceTheWorkCostsAHundredTimes) {
  CostModel costs;
  costs.record("f", 10, 10, 4, 1, 10);
  EXPECT_LE(costs.estimate_us("f", 10, 10, 8, 100), 30);
  EXPECT_GE(costs.estimate_us("f", 10, 10, 8, 0.001), 10);
}

TEST(ShareOfBudget, GivesTheUsualTimeAndMoreWhereEverythingFits) {
  const std::vector<PointCost> points{{1, 4}, {1, 4}};
  EXPECT_GE(share_of_budget(points, 100), 4);
  EXPECT_LE(share_of_budget(points, 100), 12);
}

TEST(ShareOfBudget, GivesLessThanUsualButNoLessThanMinimalWhereItIsTight) {
  const std::vector<PointCost> points{{1, 4}, {1, 4}, {1, 4}};
  const double share = share_of_budget(points, 6);
  EXPECT_GE(share, 1);
  EXPECT_LT(share, 4);
  EXPECT_LE(3 * share, 6.0);
}

TEST(ShareOfBudget, PutsADearPointOffWhereCheaperOnesWouldSuffer) {
  const std::vector<PointCost> dear_first{{50, 60}, {1, 4}, {1, 4}};
  EXPECT_EQ(share_of_budget(dear_first, 20), 0);
  const std::vector<PointCost> cheap_first{{1, 4}, {50, 60}, {1, 4}};
  EXPECT_GT(share_of_budget(cheap_first, 20), 0);
}

TEST(ShareOfBudget, GivesNothingWithoutTime) {
  const std::vector<PointCost> points{{1, 4}};
  EXPECT_EQ(share_of_budget(points, 0.5), 0);
  EXPECT_EQ(share_of_budget(points, -1), 0);
  EXPECT_EQ(share_of_budget({}, 10), 0);
}

}  // namespace
}  // namespace octile
