// SPDX-License-Identifier: Apache-2.0
// From points to entries: what may be joined, and what must stay apart.
#include "octile/tune/intervals.h"

#include "support/simulated_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TunePoint tile_at(std::int64_t m, std::int64_t v, double ratio = 1.5) {
  TunePoint point;
  point.shape = {"x", 48, 64};
  point.m = m;
  point.status = PointStatus::tile;
  point.kernel = "fake_tile";
  point.config = TileConfig{{{"v", v}}};
  point.us = 10;
  point.baseline_us = 10 * ratio;
  point.ratio = ratio;
  point.ratio_lo = ratio - 0.1;
  point.ratio_hi = ratio + 0.1;
  point.rel_error = 1e-3;
  return point;
}

TunePoint at(std::int64_t m, PointStatus status) {
  TunePoint point = tile_at(m, 0);
  point.status = status;
  point.kernel = kBaselineKernel;
  point.config = {};
  return point;
}

std::vector<TableEntry> entries_of(const std::vector<TunePoint>& points) {
  const SimulatedBackend backend{Scenario{}};
  return make_entries(points, backend, "2026-11-29T00:00:00Z");
}

TEST(Intervals, NeighboursWithTheSameWinnerBecomeOneIntervalMeasuredAtBothEnds) {
  const auto entries = entries_of({tile_at(16, 2), tile_at(1, 2), tile_at(4, 2)});
  ASSERT_THAT(entries, SizeIs(1));
  EXPECT_EQ(entries[0].m_lo, 1);
  EXPECT_EQ(entries[0].m_hi, 16);
  EXPECT_FALSE(entries[0].inferred);
  EXPECT_EQ(entries[0].kernel_source_hash, "bbbb");
}

TEST(Intervals, AnIntervalCarriesTheProofOfItsWeakestPoint) {
  const auto entries = entries_of({tile_at(1, 2, 1.8), tile_at(4, 2, 1.3), tile_at(16, 2, 1.6)});
  ASSERT_THAT(entries, SizeIs(1));
  EXPECT_DOUBLE_EQ(entries[0].ratio->mid, 1.3);
  EXPECT_DOUBLE_EQ(*entries[0].baseline_us, 13);
}

TEST(Intervals, DifferentWinnersLeaveAGapBetweenThem) {
  const auto entries = entries_of({tile_at(1, 2), tile_at(4, 2), tile_at(16, 3), at(64, PointStatus::baseline)});
  ASSERT_THAT(entries, SizeIs(3));
  EXPECT_EQ(entries[0].m_hi, 4);
  EXPECT_EQ(entries[1].m_lo, 16);
  EXPECT_EQ(entries[1].m_hi, 16);
  EXPECT_EQ(entries[2].m_lo, 64);
  EXPECT_EQ(entries[2].kernel, kBaselineKernel);
  EXPECT_FALSE(entries[2].ratio.has_value());
}

TEST(Intervals, APointWithoutBudgetIsPassedOverAndAFailedOneBreaksAnInterval) {
  EXPECT_THAT(entries_of({tile_at(1, 2), at(4, PointStatus::no_budget), tile_at(16, 2)}), SizeIs(1));
  EXPECT_THAT(entries_of({tile_at(1, 2), at(4, PointStatus::failed), tile_at(16, 2)}), SizeIs(2));
  EXPECT_THAT(entries_of({at(4, PointStatus::no_budget)}), IsEmpty());
}

TEST(Intervals, BordersAreLookedForInTheWidestGapFirst) {
  EXPECT_THAT(border_candidates({tile_at(1, 2), tile_at(4, 3), at(64, PointStatus::baseline)}), ElementsAre(16, 2));
  EXPECT_THAT(border_candidates({tile_at(1, 2), tile_at(2, 3)}), IsEmpty()) << "nothing lies between 1 and 2";
  EXPECT_THAT(border_candidates({tile_at(1, 2), tile_at(64, 2)}), IsEmpty());
  EXPECT_THAT(border_candidates({tile_at(1, 2), at(8, PointStatus::failed), tile_at(64, 3)}), IsEmpty());
}

TEST(Intervals, WhatServesInALevelGapNeedsNoOtherMeasurementWhereTimeIsNotGivenForIt) {
  const auto candidates = [](double us, double baseline_us, bool level) {
    TunePoint above = tile_at(4, 3);
    above.us = us;
    TunePoint below = tile_at(1, 2);
    below.baseline_us = baseline_us;
    return border_candidates({below, above}, level);
  };
  EXPECT_THAT(candidates(10.9, 15, false), IsEmpty());
  EXPECT_THAT(candidates(10.9, 15, true), ElementsAre(2));
  EXPECT_THAT(candidates(11.1, 15, false), ElementsAre(2)) << "more than a tenth above the best below";
  EXPECT_THAT(candidates(10.9, 11, false), ElementsAre(2)) << "no faster than the baseline below";
  EXPECT_THAT(border_candidates({tile_at(1, 2), at(4, PointStatus::baseline)}, false), ElementsAre(2));
}

}  // namespace
}  // namespace octile::test
