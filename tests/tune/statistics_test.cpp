// SPDX-License-Identifier: Apache-2.0
// Intervals and looks: coverage on simulated noise with fixed seeds, and the exact values of small cases.
#include "octile/tune/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace octile {
namespace {

TEST(Median, IsTheMiddleOrTheMeanOfTheTwoMiddleValues) {
  EXPECT_DOUBLE_EQ(median(std::vector<double>{5, 1, 3}), 3);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
}

TEST(SignedRankInterval, SevenDifferencesReachAtBestOneIn128) {
  const std::vector<double> d{1, 2, 3, 4, 5, 6, 7};
  const Interval at_limit = signed_rank_interval(d, 1.0 / 128);
  EXPECT_DOUBLE_EQ(at_limit.lo, 1);
  EXPECT_DOUBLE_EQ(at_limit.hi, 7);
  EXPECT_DOUBLE_EQ(at_limit.mid, 4);
  const Interval beyond = signed_rank_interval(d, 0.99 / 128);
  EXPECT_TRUE(std::isinf(beyond.lo));
  EXPECT_TRUE(std::isinf(beyond.hi));
}

TEST(SignedRankInterval, KnowsTheTabulatedCriticalValueOfTenDifferences) {
  // Tables of Wilcoxon's test: n = 10, two-sided 5 %: reject at W <= 8, so the bounds are the 9th smallest and largest of
  // the 55 pairwise means.
  std::vector<double> d;
  std::vector<double> means;
  for (int i = 0; i < 10; ++i) {
    d.push_back(std::pow(1.7, i));
  }
  for (std::size_t i = 0; i < d.size(); ++i) {
    for (std::size_t j = i; j < d.size(); ++j) {
      means.push_back((d[i] + d[j]) / 2);
    }
  }
  std::sort(means.begin(), means.end());
  const Interval interval = signed_rank_interval(d, 0.025);
  EXPECT_DOUBLE_EQ(interval.lo, means[8]);
  EXPECT_DOUBLE_EQ(interval.hi, means[46]);
}

TEST(SignedRankInterval, MissesTheCentreOfHeavyTailedNoiseNoMoreOftenThanPromised) {
  std::mt19937_64 rng(20251);
  std::cauchy_distribution<double> cauchy(0.3, 0.05);  // No variance at all.
  int below = 0;
  int above = 0;
  const int trials = 4000;
  for (int t = 0; t < trials; ++t) {
    std::vector<double> d(12);
    for (double& x : d) {
      x = cauchy(rng);
    }
    const Interval interval = signed_rank_interval(d, 0.025);
    below += interval.hi < 0.3 ? 1 : 0;
    above += interval.lo > 0.3 ? 1 : 0;
  }
  EXPECT_LE(below, trials * 0.035);  // 0.025 and four standard deviations of the count.
  EXPECT_LE(above, trials * 0.035);
  EXPECT_GT(below + above, trials / 100) << "an interval that never misses is too wide to decide anything";
}

TEST(PairedRatio, IsTheNumeratorOverTheDenominator) {
  const std::vector<double> a{20, 22, 18, 21, 19, 20, 20, 20};
  const std::vector<double> b{10, 11, 9, 10.5, 9.5, 10, 10, 10};
  const Interval interval = paired_ratio_95(a, b);
  EXPECT_NEAR(interval.mid, 2.0, 1e-12);
  EXPECT_NEAR(interval.lo, 2.0, 1e-12);
}

TEST(PairedRatio, WithFewPairsStaysWiderThanTheSpreadOfThePairs) {
  const std::vector<double> a{10.0, 10.4, 9.9};
  const std::vector<double> b{10.0, 10.0, 10.0};
  const Interval interval = paired_ratio_95(a, b);
  EXPECT_LT(interval.lo, 0.99);
  EXPECT_GT(interval.hi, 1.04);
}

TEST(PlanLooks, SpendsTheWholeErrorAndNoMore) {
  for (const int comparisons : {1, 2, 3, 5, 9}) {
    for (const int max_rounds : {7, 12, 20, 40, 56, 100}) {
      const std::vector<Look> looks = plan_looks(0.025, comparisons, max_rounds);
      double spent = 0;
      int previous = 0;
      for (const Look& look : looks) {
        EXPECT_GT(look.rounds, previous);
        EXPECT_LE(std::ldexp(1.0, -look.rounds), look.tail) << "no data could pass this look";
        previous = look.rounds;
        spent += look.tail * comparisons;
      }
      if (!looks.empty()) {
        EXPECT_NEAR(spent, 0.025, 1e-12) << comparisons << " comparisons, " << max_rounds << " rounds";
        EXPECT_EQ(looks.back().rounds, max_rounds);
      }
    }
  }
}

TEST(PlanLooks, PlansNothingWhereNoDataCouldDecide) {
  EXPECT_TRUE(plan_looks(0.025, 1, 5).empty());
  EXPECT_FALSE(plan_looks(0.025, 1, 6).empty());
  EXPECT_TRUE(plan_looks(0.025, 4, 7).empty());
}

TEST(PlanLooks, OneComparisonCanBeDecidedAfterSevenRounds) { EXPECT_EQ(fewest_rounds(0.025, 1), 7); }

}  // namespace
}  // namespace octile
