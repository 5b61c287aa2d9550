// SPDX-License-Identifier: Apache-2.0
// Sums over measured points.
#include "octile/report/point_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace octile {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Optional;

BenchRow point(const std::string& shape, std::int64_t m, double us, double ratio = 1.0, const std::string& choice = "tile") {
  BenchRow row;
  row.shape = shape;
  row.n = 64;
  row.k = 32;
  row.m = m;
  row.chosen_us = us;
  row.choice = choice;
  row.ratio = ratio;
  row.ratio_lo = ratio * 0.99;
  row.ratio_hi = ratio * 1.01;
  return row;
}

TEST(PointStatistics, GroupsKeepTheirOrderAndSortTheirM) {
  BenchRow other = point("a", 3, 1);
  other.k = 128;
  const std::vector<BenchRow> rows{point("b", 4, 1), point("a", 1, 1), point("b", 2, 1), other};
  const auto groups = group_points(rows);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].shape, "b");
  EXPECT_THAT(groups[0].rows, ElementsAre(2U, 0U));
  EXPECT_THAT(groups[1].rows, ElementsAre(1U));
  EXPECT_EQ(groups[2].k, 128);
}

TEST(PointStatistics, SummaryCountsWhoServesAndWhatIsProven) {
  std::vector<BenchRow> rows{point("a", 1, 10, 2.0), point("a", 2, 10, 1.0, "baseline"), point("a", 4, 10, 0.5, "vendor"),
                             point("a", 8, 0, 0, "failed"), point("a", 16, 10, 4.0, "heuristic")};
  rows[0].vs_vendor = 3;
  rows[0].floor_share = 0.5;
  rows[2].floor_share = 0.125;
  const PointSummary summary = summarize_points(rows);
  EXPECT_EQ(summary.points, 4);
  EXPECT_EQ(summary.m_lo, 1);
  EXPECT_EQ(summary.m_hi, 16);
  EXPECT_THAT(summary.gain, Optional(DoubleNear(std::sqrt(2.0), 1e-12)));
  EXPECT_EQ(summary.gain_worst, 0.5);
  EXPECT_EQ(summary.gain_best, 4.0);
  EXPECT_THAT(summary.vs_vendor, Optional(DoubleNear(3.0, 1e-12)));
  EXPECT_EQ(summary.vs_vendor_points, 1);
  EXPECT_THAT(summary.floor_share, Optional(DoubleNear(0.25, 1e-12)));
  EXPECT_EQ(summary.faster, 2);
  EXPECT_EQ(summary.equal, 1);
  EXPECT_EQ(summary.slower, 1);
  EXPECT_EQ(summary.serving.tile, 1);
  EXPECT_EQ(summary.serving.vendor, 1);
  EXPECT_EQ(summary.serving.baseline, 1);
  EXPECT_EQ(summary.serving.heuristic, 1);
  EXPECT_EQ(summary.serving.none, 1);
}

TEST(PointStatistics, WithoutAnIntervalNothingIsProven) {
  BenchRow row = point("a", 1, 10, 3.0);
  row.ratio_lo = row.ratio_hi = 0;
  const PointSummary summary = summarize_points(std::vector{row});
  EXPECT_EQ(summary.faster, 0);
  EXPECT_EQ(summary.slower, 0);
  EXPECT_EQ(summary.equal, 1);
}

TEST(PointStatistics, NoPointsGiveNoMeans) {
  const PointSummary summary = summarize_points({});
  EXPECT_EQ(summary.points, 0);
  EXPECT_EQ(summary.gain, std::nullopt);
  EXPECT_EQ(summary.floor_share, std::nullopt);
}

TEST(PointStatistics, StretchesCoverEveryMOnce) {
  std::int64_t next = 1;
  for (const Stretch& stretch : summary_stretches()) {
    EXPECT_EQ(stretch.m_lo, next);
    EXPECT_GE(stretch.m_hi, stretch.m_lo);
    next = stretch.m_hi == INT64_MAX ? 0 : stretch.m_hi + 1;
  }
  EXPECT_EQ(next, 0);
  const std::vector<BenchRow> rows{point("a", 16, 1, 2.0), point("a", 17, 1, 3.0)};
  EXPECT_EQ(summarize_points(rows, 1, 16).gain_best, 2.0);
  EXPECT_EQ(summarize_points(rows, 17, 64).gain_best, 3.0);
}

TEST(PointStatistics, CliffsAreFoundGroupByGroupInTheTimesOfTheChoice) {
  std::vector<BenchRow> rows{point("b", 65, 13, 1, "vendor"), point("a", 1, 10), point("b", 64, 10), point("a", 2, 10.5)};
  rows[0].chosen_kernel = "cublaslt {\"algo_id\": 1}";
  rows[2].chosen_kernel = "hopper_decode";
  const auto cliffs = cliffs_of(rows, group_points(rows));
  ASSERT_EQ(cliffs.size(), 1U);
  EXPECT_EQ(cliffs[0].group, 0U);
  EXPECT_EQ(cliffs[0].cliff.kind, Cliff::Kind::step);
  EXPECT_EQ(cliffs[0].cliff.from.m, 64);
  EXPECT_EQ(cliffs[0].cliff.from.kernel, "tile hopper_decode");
  EXPECT_EQ(cliffs[0].cliff.to.kernel, "vendor cublaslt");
  EXPECT_NEAR(cliffs[0].cliff.ratio, 1.3, 1e-12);
}

TEST(PointStatistics, CliffsLookPastWhatWasNotMeasuredAndTakeAnMOnce) {
  const std::vector<BenchRow> rows{point("a", 64, 20), point("a", 65, 0, 0, "failed"), point("a", 66, 40),
                                   point("a", 66, 1)};
  const auto cliffs = cliffs_of(rows, group_points(rows));
  ASSERT_EQ(cliffs.size(), 1U);
  EXPECT_EQ(cliffs[0].cliff.from.m, 64);
  EXPECT_EQ(cliffs[0].cliff.to.m, 66);
}

TEST(PointStatistics, CliffsOfOurFamiliesAloneStandBesideThoseOfTheChoice) {
  std::vector<BenchRow> rows{point("a", 1, 10), point("a", 2, 10), point("a", 3, 10)};
  rows[0].own_us = 10;
  rows[1].own_us = 0;
  rows[2].own_us = 40;
  rows[2].own_kernel = "hopper_wgmma {\"BM\": 64}";
  const auto cliffs = cliffs_of(rows, group_points(rows));
  ASSERT_EQ(cliffs.size(), 1U);
  EXPECT_EQ(cliffs[0].curve, Curve::own);
  EXPECT_EQ(cliffs[0].cliff.from.m, 1);
  EXPECT_EQ(cliffs[0].cliff.to.m, 3);
  EXPECT_EQ(cliffs[0].cliff.to.kernel, "hopper_wgmma");
}

TEST(PointStatistics, AHeatMapHasARowAnMAndACellAGroup) {
  const std::vector<BenchRow> rows{point("a", 2, 1, 1.5), point("b", 1, 1, 2.0), point("b", 2, 1, 3.0)};
  const auto groups = group_points(rows);
  const auto map = heat_map(rows, groups, Gain::over_baseline);
  ASSERT_EQ(map.size(), 2U);
  EXPECT_EQ(map[0].m_lo, 1);
  EXPECT_EQ(map[0].cells[0], std::nullopt);
  EXPECT_THAT(map[0].cells[1], Optional(DoubleNear(2.0, 1e-12)));
  EXPECT_THAT(map[1].cells[0], Optional(DoubleNear(1.5, 1e-12)));
  EXPECT_TRUE(heat_map(rows, groups, Gain::over_vendor).empty());
}

TEST(PointStatistics, AHeatMapOfManyMPutsNeighboursTogetherAndLosesNone) {
  std::vector<BenchRow> rows;
  for (std::int64_t m = 1; m <= 4096; ++m) {
    rows.push_back(point("a", m, 1, m == 4096 ? 8.0 : 2.0));
  }
  const auto map = heat_map(rows, group_points(rows), Gain::over_baseline);
  EXPECT_LE(map.size(), kMostHeatRows);
  EXPECT_GE(map.size(), kMostHeatRows / 2);
  std::int64_t next = 1;
  for (const HeatRow& row : map) {
    EXPECT_EQ(row.m_lo, next);
    next = row.m_hi + 1;
    ASSERT_TRUE(row.cells[0].has_value());
  }
  EXPECT_EQ(next, 4097);
  EXPECT_NEAR(*map.front().cells[0], 2.0, 1e-12);
  EXPECT_GT(*map.back().cells[0], 2.0);
}

}  // namespace
}  // namespace octile
