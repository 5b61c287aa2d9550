// SPDX-License-Identifier: Apache-2.0
// Merging tables: what wins, what is refused, and that the order does not matter.
#include "octile/table/own_format.h"
#include "octile/table/table_ops.h"
#include "table/random_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace octile {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TableEntry entry_of(std::int64_t lo, std::int64_t hi, const std::string& kernel, const std::string& date = "2026-11-02") {
  TableEntry entry;
  entry.m_lo = lo;
  entry.m_hi = hi;
  entry.kernel = kernel;
  entry.date = date;
  return entry;
}

TileTable table_of(std::vector<TableEntry> entries, const std::string& date = "2026-11-02") {
  TileTable table = test::random_own_table();
  table.provenance = {{"date", date}};
  table.entries = std::move(entries);
  return table;
}

std::string intervals(const Expected<TileTable>& table) {
  if (!table) {
    return "error: " + table.error().message;
  }
  std::string text;
  for (const TableEntry& entry : table->entries) {
    text += "[" + std::to_string(entry.m_lo) + ", " + std::to_string(entry.m_hi) + "] " + entry.kernel +
            (entry.inferred ? " inferred" : "") + "; ";
  }
  return text;
}

TEST(Merge, DisjointResultsAreUnited) {
  EXPECT_EQ(
      intervals(merge_tables({table_of({entry_of(17, 64, "b")}), table_of({entry_of(1, 16, "a"), entry_of(96, 96, "c")})})),
      "[1, 16] a; [17, 64] b; [96, 96] c; ");
}

TEST(Merge, TheLaterMeasurementWins) {
  const TileTable old_one = table_of({entry_of(1, 16, "a", "2026-11-02")});
  const TileTable new_one = table_of({entry_of(1, 16, "b", "2026-11-03")});
  EXPECT_EQ(intervals(merge_tables({old_one, new_one})), "[1, 16] b; ");
  EXPECT_EQ(intervals(merge_tables({new_one, old_one})), "[1, 16] b; ");
}

TEST(Merge, WhatWasMeasuredJustNowWinsWhateverTheClockSaid) {
  const TileTable there = table_of({entry_of(1, 64, "a", "2026-11-02")});
  for (const char* date : {"2026-11-03", "2026-11-02", "1970-01-01"}) {
    TableEntry now = entry_of(20, 30, "b", date);
    EXPECT_EQ(intervals(merge_newer(there, table_of({now}))), "[1, 19] a inferred; [20, 30] b; [31, 64] a inferred; ")
        << date;
    now.inferred = true;
    EXPECT_EQ(intervals(merge_newer(there, table_of({now}))), "[1, 64] a; ") << date << ": what was only inferred does not";
  }
}

TEST(Merge, EntriesWithoutADateHaveThatOfTheirTable) {
  const auto merged =
      merge_tables({table_of({entry_of(1, 16, "a", "")}, "2026-11-05"), table_of({entry_of(1, 16, "b", "")}, "2026-11-04")});
  EXPECT_EQ(intervals(merged), "[1, 16] a; ");
  EXPECT_EQ(merged->entries.front().date, "2026-11-05");
  EXPECT_EQ(merged->provenance.at("date"), "2026-11-05");
}

TEST(Merge, AMeasuredEntryBeatsALaterInferredOne) {
  TableEntry inferred = entry_of(1, 16, "a", "2026-11-09");
  inferred.inferred = true;
  EXPECT_EQ(intervals(merge_tables({table_of({inferred}), table_of({entry_of(1, 16, "b", "2026-11-02")})})), "[1, 16] b; ");
}

TEST(Merge, OnTheSameDateTheBetterProofWins) {
  TableEntry weak = entry_of(1, 16, "a");
  weak.ratio = Ratio{1.3, 1.02, 1.5};
  TableEntry strong = entry_of(1, 16, "b");
  strong.ratio = Ratio{1.2, 1.15, 1.25};
  EXPECT_EQ(intervals(merge_tables({table_of({weak}), table_of({strong})})), "[1, 16] b; ");
}

TEST(Merge, WhatIsCutKeepsItsProofAndIsMarkedInferred) {
  TableEntry wide = entry_of(1, 100, "a", "2026-11-02");
  wide.us = 7.0;
  const auto merged = merge_tables({table_of({wide}), table_of({entry_of(50, 60, "b", "2026-11-03")})});
  EXPECT_EQ(intervals(merged), "[1, 49] a inferred; [50, 60] b; [61, 100] a inferred; ");
  EXPECT_EQ(merged->entries[2].us, 7.0);
  // Merging the old table in again changes nothing: cut pieces never beat what cut them.
  EXPECT_EQ(intervals(merge_tables({*merged, table_of({wide})})), intervals(merged));
}

TEST(Merge, ALaterIntervalWithinItselfIsNotSplit) {
  // The old entry opens and closes inside the new one: the new one's pieces are one entry again.
  EXPECT_EQ(intervals(merge_tables(
                {table_of({entry_of(1, 100, "b", "2026-11-03")}), table_of({entry_of(50, 60, "a", "2026-11-02")})})),
            "[1, 100] b; ");
}

TEST(Merge, AnIntervalWithoutEndIsMerged) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(intervals(merge_tables(
                {table_of({entry_of(8, kMax, "a", "2026-11-02")}), table_of({entry_of(1, 9, "b", "2026-11-03")})})),
            "[1, 9] b; [10, 9223372036854775807] a inferred; ");
}

TEST(Merge, WhatTouchesAndMakesTheSameChoiceIsOneIntervalWithTheWeakerProofAndTheEarlierDate) {
  TableEntry low = entry_of(1, 16, "a", "2026-11-04");
  low.ratio = Ratio{1.3, 1.25, 1.4};
  low.us = 5.0;
  low.rel_error = 2e-3;
  TableEntry high = entry_of(17, 64, "a", "2026-11-03");
  high.ratio = Ratio{1.2, 1.15, 1.25};
  high.us = 9.0;
  high.rel_error = 1e-3;
  const auto merged = merge_tables({table_of({high}), table_of({low, entry_of(65, 80, "b")})});
  ASSERT_EQ(intervals(merged), "[1, 64] a; [65, 80] b; ");
  EXPECT_EQ(merged->entries[0].ratio->lo, 1.15);
  EXPECT_EQ(merged->entries[0].us, 9.0);
  EXPECT_EQ(merged->entries[0].rel_error, 2e-3);
  EXPECT_EQ(merged->entries[0].date, "2026-11-03");
}

TEST(Merge, IntervalsThatShareAMeasuredMAndTheChoiceAreOneWhateverTheirDates) {
  for (const char* date : {"2026-11-01", "2026-11-03"}) {
    EXPECT_EQ(intervals(merge_tables({table_of({entry_of(1, 48, "a", date)}), table_of({entry_of(48, 512, "a")}),
                                      table_of({entry_of(512, 1024, "a", date)})})),
              "[1, 1024] a; ");
  }
}

TEST(Merge, AnEndThatWasNotMeasuredIsNotTakenIntoAnInterval) {
  // "b" cuts the old "a" off at 80: [65, 79] would end where nothing was measured.
  EXPECT_EQ(intervals(merge_tables({table_of({entry_of(1, 100, "a", "2026-11-02")}),
                                    table_of({entry_of(32, 64, "a", "2026-11-03"), entry_of(80, 100, "b", "2026-11-03")})})),
            "[1, 64] a; [65, 79] a inferred; [80, 100] b; ");
  TableEntry inferred = entry_of(17, 64, "a");
  inferred.inferred = true;
  EXPECT_EQ(intervals(merge_tables({table_of({entry_of(1, 16, "a")}), table_of({inferred})})),
            "[1, 16] a; [17, 64] a inferred; ");
}

TEST(Merge, AnotherVersionOfAKernelIsAnotherChoice) {
  TableEntry newer = entry_of(17, 64, "a");
  newer.kernel_source_hash = "bbbb";
  EXPECT_EQ(intervals(merge_tables({table_of({entry_of(1, 16, "a")}), table_of({newer})})), "[1, 16] a; [17, 64] a; ");
}

TEST(Merge, DifferentHardKeysAreRefusedNamingKeyAndValues) {
  TileTable left = table_of({entry_of(1, 16, "a")});
  left.file = "left.octile.json";
  const auto problem = [&](auto&& change) {
    TileTable right = left;
    right.file = "right.octile.json";
    change(right.key);
    const auto merged = merge_tables({left, right});
    return merged ? "merged" : merged.error().message;
  };
  EXPECT_THAT(
      problem([](TableKey& key) { key.sm_count = 114; }),
      AllOf(HasSubstr("sm_count is \"132\" in left.octile.json"), HasSubstr("sm_count is \"114\" in right.octile.json")));
  EXPECT_THAT(problem([](TableKey& key) { key.device_name = "NVIDIA_H20"; }), HasSubstr("\"NVIDIA_H20\""));
  EXPECT_THAT(problem([](TableKey& key) { key.arch = "sm_89"; }), HasSubstr("arch"));
  EXPECT_THAT(problem([](TableKey& key) { key.model = "some CPU"; }), HasSubstr("some CPU"));
  EXPECT_THAT(problem([](TableKey& key) { key.n = 1; }), HasSubstr("n is \"6144\""));
  EXPECT_THAT(problem([](TableKey& key) { key.k = 1; }), HasSubstr("k is \"4096\""));
  EXPECT_THAT(problem([](TableKey& key) { key.out_dtype = "fp16"; }), HasSubstr("out_dtype"));
  EXPECT_THAT(problem([](TableKey& key) { key.bias = true; }), HasSubstr("bias is \"false\""));
  EXPECT_THAT(problem([](TableKey& key) { key.accumulate = "precise"; }), HasSubstr("accumulate"));
  EXPECT_THAT(problem([](TableKey& key) { key.numerics = "baseline"; }), HasSubstr("numerics"));
  EXPECT_THAT(problem([](TableKey& key) { key.weight_layout = "slabs"; }), HasSubstr("weight_layout"));
  EXPECT_THAT(problem([](TableKey& key) { key.pdl = "full"; }), HasSubstr("pdl"));
  EXPECT_THAT(problem([](TableKey& key) { key.max_sms = 100; }), HasSubstr("max_sms is \"0\" in left"));
  EXPECT_EQ(problem([](TableKey&) {}), "merged");
}

TEST(Merge, NothingAndFieldTablesAreRefused) {
  EXPECT_FALSE(merge_tables({}));
  TileTable field;
  field.field_format = true;
  EXPECT_THAT(intervals(merge_tables({field})), HasSubstr("import"));
}

TEST(Merge, ATableThatBreaksARuleIsRefused) {
  EXPECT_THAT(intervals(merge_tables({table_of({entry_of(5, 4, "a")})})), HasSubstr("lo <= hi"));
}

TEST(Merge, TheOrderOfTheTablesDoesNotMatterAndEveryMHasItsBestEntry) {
  SCOPED_TRACE(test::seed_text());
  for (int round = 0; round < 60; ++round) {
    std::vector<TileTable> tables;
    for (int i = 0; i < 4; ++i) {
      tables.push_back(test::random_own_table());
    }
    const auto merged = merge_tables(tables);
    ASSERT_TRUE(merged) << merged.error().message;
    const auto text = own_table_text(*merged);
    ASSERT_TRUE(text) << text.error().message;
    for (int shuffle = 0; shuffle < 6; ++shuffle) {
      std::shuffle(tables.begin(), tables.end(), test::generator());
      const auto again = merge_tables(tables);
      ASSERT_TRUE(again);
      ASSERT_EQ(*own_table_text(*again), *text);
    }
    for (std::int64_t m = 1; m < 900; ++m) {
      // The best by measured before inferred, then date; beyond these several may be right.
      const TableEntry* best = nullptr;
      const auto rank = [](const TileTable& table, const TableEntry& entry) {
        return std::pair(!entry.inferred, entry.date.empty() ? table.provenance.at("date") : entry.date);
      };
      std::pair<bool, std::string> best_rank;
      for (const TileTable& table : tables) {
        const TableEntry* const entry = table.find(m);
        if (entry != nullptr && (best == nullptr || rank(table, *entry) > best_rank)) {
          best = entry;
          best_rank = rank(table, *entry);
        }
      }
      const TableEntry* const got = merged->find(m);
      ASSERT_EQ(got == nullptr, best == nullptr) << "M = " << m;
      if (got != nullptr) {
        // An interval that was joined has the date of its oldest part.
        ASSERT_LE(got->date, best_rank.second) << "M = " << m;
        const bool is_choice_of_a_best = std::ranges::any_of(tables, [&](const TileTable& table) {
          const TableEntry* const entry = table.find(m);
          return entry != nullptr && rank(table, *entry) == best_rank && entry->kernel == got->kernel &&
                 entry->config == got->config;
        });
        ASSERT_TRUE(is_choice_of_a_best) << "M = " << m;
        ASSERT_TRUE(got->inferred || best_rank.first) << "M = " << m;
      }
    }
  }
}

}  // namespace
}  // namespace octile
