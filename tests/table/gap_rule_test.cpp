// SPDX-License-Identifier: Apache-2.0
// What neighbours in a table say of the M between them, held against points that were measured between others.
#include "octile/table/gap_rule.h"

#include "octile/table/table_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace octile {
namespace {

TEST(GapRule, TheKernelAboveHasToBeatTheBaselineOnBothSides) {
  EXPECT_TRUE(bridges_gap(10, 10.5, 12));
  EXPECT_FALSE(bridges_gap(10, 10.4, 12));
  EXPECT_FALSE(bridges_gap(10, 12, 10.4));
  EXPECT_TRUE(is_level_gap(11, 10));
  EXPECT_FALSE(is_level_gap(11.1, 10));
}

// Of three entries in a row the middle one is taken out: would the third serve it, and what would that cost at most? Where
// the two are no farther from each other than neighbours of a quick tune, which measures M and twice as many.
TEST(GapRule, PointsHeldOutOfTheTablesOfAnH200AreRarelySlowerThanTheBaseline) {
  int served = 0;
  int slower = 0;
  std::vector<double> losses;
  for (const auto& file : std::filesystem::directory_iterator(std::string(OCTILE_TEST_SOURCE_DIR) + "/tables/NVIDIA_H200")) {
    if (!file.path().string().ends_with(".octile.json")) {
      continue;
    }
    std::vector<Finding> findings;
    const Expected<TileTable> table = read_table(file.path(), findings);
    ASSERT_TRUE(table.has_value()) << table.error().message;
    const std::vector<TableEntry>& entries = table->entries;
    for (std::size_t i = 2; i < entries.size(); ++i) {
      const TableEntry& below = entries[i - 2];
      const TableEntry& held_out = entries[i - 1];
      const TableEntry& above = entries[i];
      if (above.m_lo <= 2 * below.m_hi && above.ratio && above.ratio->lo > 1 &&
          bridges_gap(*above.us, *below.baseline_us, *above.baseline_us)) {
        ++served;
        slower += *above.us > *held_out.baseline_us ? 1 : 0;
        losses.push_back(*above.us / *held_out.us);
      }
    }
  }
  ASSERT_GT(served, 100);
  std::ranges::sort(losses);
  EXPECT_LE(slower, served / 40) << "of " << served;
  EXPECT_LE(losses[losses.size() / 2], 1.06);
  EXPECT_LE(losses[losses.size() * 9 / 10], 1.14);
}

}  // namespace
}  // namespace octile
