// SPDX-License-Identifier: Apache-2.0
// lint, show, diff, import and export.
#include "octile/table/table_ops.h"

#include "octile/table/field_format.h"
#include "octile/table/own_format.h"
#include "octile/table/table_store.h"
#include "support/files.h"
#include "table/random_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace octile {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string l40s_directory() { return std::string(OCTILE_TEST_SOURCE_DIR) + "/tables/NVIDIA_L40S"; }

TileTable l40s_table(std::int64_t n, std::int64_t k) {
  TableKey key;
  key.device_name = "NVIDIA_L40S";
  key.n = n;
  key.k = k;
  std::vector<Finding> findings;
  auto table = read_table(l40s_directory() + "/" + table_file_name(key, true), findings);
  EXPECT_TRUE(table) << table.error().message;
  return table ? *table : TileTable{};
}

TileConfig small_tile() {
  TileConfig tile;
  tile.set("BLOCK_SIZE_M", 16);
  tile.set("BLOCK_SIZE_N", 32);
  tile.set("BLOCK_SIZE_K", 256);
  tile.set("num_warps", 4);
  tile.set("num_stages", 3);
  return tile;
}

TableEntry entry_of(std::int64_t lo, std::int64_t hi, const std::string& kernel, const TileConfig& config = {}) {
  TableEntry entry;
  entry.m_lo = lo;
  entry.m_hi = hi;
  entry.kernel = kernel;
  entry.config = config;
  return entry;
}

TileTable own_table(std::vector<TableEntry> entries) {
  TileTable table = test::random_own_table();
  table.key.device_name = "NVIDIA_L40S";
  table.entries = std::move(entries);
  return table;
}

std::string text_of(const std::vector<TableDifference>& differences) {
  std::string text;
  for (const TableDifference& d : differences) {
    text += d.where + ": " + d.left + " | " + d.right + (d.choice ? " (choice)\n" : "\n");
  }
  return text;
}

TEST(TableLint, ThePublishedTablesAreClean) {
  const LintReport report = lint_tables({l40s_directory()}, 101'376);
  EXPECT_EQ(report.files.size(), 3U);
  EXPECT_TRUE(report.ok()) << report.findings.front().message;
}

TEST(TableLint, EveryFaultBelowADirectoryIsAFinding) {
  const test::TemporaryDirectory directory;
  directory.write("README.md", "not a table");
  directory.write("notes.json", "{}");
  directory.write("D/N=1,K=1,device_name=D,dtype=fp8_w8a8_channelwise.json", R"({"1": null, "2": 7, "x": null})");
  directory.write("D/N=1,K=1,device_name=D,dtype=fp8_w8a8,block_shape=[128, 128].json", "{}");
  const LintReport report = lint_tables({directory.path()});
  EXPECT_EQ(report.files.size(), 3U);
  EXPECT_FALSE(report.ok());
  std::vector<std::string> kinds;
  for (const Finding& finding : report.findings) {
    kinds.push_back(finding.kind);
    EXPECT_THAT(finding.file, HasSubstr(directory.path()));
  }
  EXPECT_THAT(kinds, ElementsAre("unsupported_scheme", "bad_tile", "bad_key", "bad_name"));
}

TEST(TableLint, WhatCannotBeReadIsAFinding) {
  const test::TemporaryDirectory directory;
  const LintReport report = lint_tables({directory.file("none.json"), directory.path()});
  ASSERT_EQ(report.findings.size(), 2U);
  EXPECT_EQ(report.findings[0].kind, "no_tables");
  EXPECT_EQ(report.findings[1].kind, "io");
}

TEST(TableLint, AFileNamedTwiceIsLookedAtOnce) {
  const std::string file = l40s_directory() + "/N=4096,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json";
  EXPECT_EQ(lint_tables({file, file, l40s_directory()}).files.size(), 3U);
}

TEST(TableLint, TilesThatDoNotFitTheDeviceAreFindingsOnlyWhereAskedFor) {
  EXPECT_TRUE(lint_tables({l40s_directory()}).ok());
  const LintReport report = lint_tables({l40s_directory()}, 65'536);
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.findings.front().kind, "shared_memory");
}

TEST(TableShow, EveryEntryIsARow) {
  const std::vector<TableRow> field = show_rows(l40s_table(24576, 4096));
  ASSERT_EQ(field.size(), 17U);
  EXPECT_EQ(field[0].m, "1");
  EXPECT_EQ(field[0].kernel, "ada_mma");
  EXPECT_EQ(field[0].config,
            R"({"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "BLOCK_SIZE_K": 1024, "num_warps": 2, "num_stages": 2})");
  EXPECT_EQ(field[0].us, "-");
  EXPECT_EQ(field[12].m, "512");
  EXPECT_EQ(field[12].kernel, "baseline");
  EXPECT_EQ(field[12].config, "");

  TableEntry entry = entry_of(17, 64, "hopper_decode", small_tile());
  entry.us = 10.5;
  entry.baseline_us = 12.25;
  entry.ratio = Ratio{1.1667, 1.15, 1.18};
  entry.inferred = true;
  entry.date = "2026-11-02";
  const std::vector<TableRow> own = show_rows(own_table({entry}));
  EXPECT_EQ(own[0].m, "[17, 64]");
  EXPECT_EQ(own[0].us, "10.5");
  EXPECT_EQ(own[0].best_vendor_us, "-");
  EXPECT_EQ(own[0].ratio, "1.167 [1.150, 1.180]");
  EXPECT_EQ(own[0].note, "inferred, 2026-11-02");
}

TEST(TableShow, ALeftOutEntrySaysWhy) {
  TileTable table = l40s_table(4096, 4096);
  table.entries[0].left_out = "num_warps is 3";
  EXPECT_EQ(show_rows(table)[0].note, "left out: num_warps is 3");
}

TEST(TableShow, DescribesKeysAndProvenance) {
  const auto own = describe_table(own_table({}));
  EXPECT_THAT(own, ::testing::Contains(std::pair<std::string, std::string>("sm_count", "132")));
  EXPECT_THAT(own, ::testing::Contains(::testing::Key("date")));
  const auto field = describe_table(l40s_table(4096, 4096));
  EXPECT_THAT(field, ::testing::Contains(std::pair<std::string, std::string>("format", "field")));
  EXPECT_THAT(field, ::testing::Not(::testing::Contains(::testing::Key("sm_count"))));
}

TEST(TableDiff, ATableDoesNotDifferFromItself) {
  SCOPED_TRACE(test::seed_text());
  EXPECT_THAT(diff_tables(l40s_table(4096, 4096), l40s_table(4096, 4096)), IsEmpty());
  for (int i = 0; i < 20; ++i) {
    const TileTable table = test::random_own_table();
    EXPECT_THAT(diff_tables(table, table), IsEmpty());
  }
}

TEST(TableDiff, NamesTheStretchesWhereAnotherChoiceRuns) {
  TileTable left = own_table({entry_of(1, 16, "a"), entry_of(17, 64, "b")});
  TileTable right = left;
  right.entries = {entry_of(1, 32, "a"), entry_of(33, 64, "b"), entry_of(65, 128, "baseline")};
  EXPECT_EQ(text_of(diff_tables(left, right)),
            "M [17, 32]: b {} | a {} (choice)\n"
            "M [65, 128]: untuned | baseline (choice)\n");
}

TEST(TableDiff, NamesKeysProvenanceAndProof) {
  TileTable left = own_table({entry_of(1, 16, "a")});
  left.provenance = {{"date", "1"}, {"driver", "5"}};
  TileTable right = left;
  right.key.sm_count = 114;
  right.provenance = {{"date", "2"}, {"driver", "5"}, {"clocks", "locked"}};
  right.entries[0].us = 5.0;
  EXPECT_EQ(text_of(diff_tables(left, right)),
            "key sm_count: 132 | 114\n"
            "provenance clocks: - | locked\n"
            "provenance date: 1 | 2\n"
            "M [1, 16]: us -, baseline_us -, best_vendor_us -, rel_error - | us 5, baseline_us -, best_vendor_us -, "
            "rel_error -\n");
}

TEST(TableDiff, FieldTablesDifferWhereTheNearestKeyDoes) {
  const TileTable left = l40s_table(24576, 4096);
  TileTable right = left;
  right.entries[12].kernel = kFieldKernel;  // 512 was null.
  right.entries[12].config = small_tile();
  // 512 serves from 385 (256 is a tie at 384) to 768 (1024 is a tie there).
  EXPECT_EQ(text_of(diff_tables(left, right)), "M [385, 768]: baseline | ada_mma " + small_tile().to_json() + " (choice)\n");
}

TEST(TableImport, PointsAreTheKeysAndNothingElse) {
  TableKey key;
  key.arch = "sm_89";
  key.sm_count = 142;
  const auto own = import_field_table(l40s_table(24576, 4096), key);
  ASSERT_TRUE(own) << own.error().message;
  EXPECT_FALSE(own->field_format);
  EXPECT_EQ(own->key.device_name, "NVIDIA_L40S");
  EXPECT_EQ(own->key.n, 24576);
  EXPECT_EQ(own->key.sm_count, 142);
  ASSERT_EQ(own->entries.size(), 17U);
  EXPECT_EQ(own->find(3), nullptr);
  EXPECT_EQ(own->find(512)->kernel, kBaselineKernel);
  EXPECT_EQ(own->find(64)->config, l40s_table(24576, 4096).find(64)->config);
  EXPECT_FALSE(own->find(64)->inferred);
  EXPECT_EQ(own->find(64)->us, std::nullopt);
  EXPECT_EQ(own->provenance.at("imported_from"), "N=24576,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json");
  EXPECT_TRUE(own_table_text(*own));
}

TEST(TableImport, NearestRangesGiveTheSameChoiceUpToTheLargestKey) {
  for (const auto& [n, k] : {std::pair{24576, 4096}, {4096, 12288}, {4096, 4096}}) {
    const TileTable field = l40s_table(n, k);
    const auto own = import_field_table(field, {}, ImportRanges::nearest);
    ASSERT_TRUE(own);
    for (std::int64_t m = 1; m <= 8192; ++m) {
      const TableEntry* const entry = own->find(m);
      ASSERT_NE(entry, nullptr) << m;
      ASSERT_EQ(entry->kernel, field.find(m)->kernel) << m;
      ASSERT_EQ(entry->config, field.find(m)->config) << m;
      ASSERT_EQ(entry->inferred, entry->m_lo != entry->m_hi) << m;
    }
    EXPECT_EQ(own->find(8193), nullptr);
    EXPECT_TRUE(own_table_text(*own));
  }
}

TEST(TableImport, LeftOutEntriesAreNotImported) {
  TileTable field = l40s_table(4096, 4096);
  field.entries[0].left_out = "num_warps is 3";
  field.entries[0].kernel = kBaselineKernel;
  const auto own = import_field_table(field, {}, ImportRanges::nearest);
  ASSERT_TRUE(own);
  EXPECT_EQ(own->find(1), nullptr);
  EXPECT_NE(own->find(2), nullptr);
}

TEST(TableImport, AnotherShapeDeviceOrFormatIsRefused) {
  const TileTable field = l40s_table(4096, 4096);
  TableKey key;
  key.n = 6144;
  EXPECT_FALSE(import_field_table(field, key));
  key.n = 0;
  key.device_name = "NVIDIA_H200";
  EXPECT_FALSE(import_field_table(field, key));
  EXPECT_FALSE(import_field_table(own_table({})));
}

std::string keys_of(const TileTable& field) {
  std::string text;
  for (const TableEntry& entry : field.entries) {
    text += std::to_string(entry.m_lo) + (entry.kernel == kFieldKernel ? ":tile " : ":null ");
  }
  return text;
}

TEST(TableExport, WritesOnlyWhatATritonLoaderCanRun) {
  TileConfig extra = small_tile();
  extra.set("stages", 4);
  TileConfig vendor;
  vendor.set("tile", 18);
  const auto exported = export_field_table(own_table(
      {entry_of(1, 16, "ada_mma", small_tile()), entry_of(17, 32, "baseline"), entry_of(33, 48, "cublaslt", vendor),
       entry_of(49, 64, "ada_mma", extra), entry_of(65, 65, "ada_mma", small_tile())}));
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(keys_of(exported->table), "1:tile 16:tile 17:null 32:null 33:null 48:null 49:null 64:null 65:tile 66:null ");
  EXPECT_EQ(exported->tiles, 3);
  EXPECT_EQ(exported->nulls, 7);
  const auto text = field_table_text(exported->table);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_THAT(*text, AllOf(HasSubstr("\"17\": null"), HasSubstr("\"BLOCK_SIZE_M\": 16")));
}

TEST(TableExport, GapsBecomeNull) {
  const auto exported =
      export_field_table(own_table({entry_of(5, 8, "ada_mma", small_tile()), entry_of(16, 16, "ada_mma", small_tile())}));
  ASSERT_TRUE(exported);
  EXPECT_EQ(keys_of(exported->table), "1:null 4:null 5:tile 8:tile 9:null 15:null 16:tile 17:null ");
}

TEST(TableExport, AnEmptyTableIsAllBaseline) {
  const auto exported = export_field_table(own_table({}));
  ASSERT_TRUE(exported);
  EXPECT_EQ(keys_of(exported->table), "1:null ");
}

TEST(TableExport, TheNearestKeyGivesTheSameChoiceAtEveryM) {
  SCOPED_TRACE(test::seed_text());
  for (int round = 0; round < 100; ++round) {
    TileTable own = test::random_own_table();
    for (TableEntry& entry : own.entries) {
      if (entry.kernel == "hopper_decode") {
        entry.kernel = "ada_mma";
        entry.config = small_tile();
      }
    }
    const auto exported = export_field_table(own);
    ASSERT_TRUE(exported);
    ASSERT_TRUE(field_table_text(exported->table));
    for (std::int64_t m = 1; m <= own.entries.back().m_hi + 100; ++m) {
      const TableEntry* const ours = own.find(m);
      const bool tile = ours != nullptr && ours->kernel == "ada_mma";
      ASSERT_EQ(exported->table.find(m)->kernel == kFieldKernel, tile) << "M = " << m;
    }
  }
}

TEST(TableExport, AnImportedTableComesBackTheSameAtEveryM) {
  const TileTable field = l40s_table(24576, 4096);
  const auto own = import_field_table(field, {}, ImportRanges::nearest);
  ASSERT_TRUE(own);
  const auto back = export_field_table(*own);
  ASSERT_TRUE(back);
  for (std::int64_t m = 1; m <= 8192; ++m) {
    ASSERT_EQ(back->table.find(m)->kernel, field.find(m)->kernel) << m;
    ASSERT_EQ(back->table.find(m)->config, field.find(m)->config) << m;
  }
  // Beyond the largest key nothing was known, and nothing is invented.
  EXPECT_EQ(back->table.find(100'000)->kernel, kBaselineKernel);
  EXPECT_FALSE(export_field_table(field));
}

TEST(TableExport, AnIntervalWithoutEndNeedsNoKeyBeyondIt) {
  const auto exported =
      export_field_table(own_table({entry_of(1, std::numeric_limits<std::int64_t>::max(), "ada_mma", small_tile())}));
  ASSERT_TRUE(exported);
  EXPECT_EQ(exported->tiles, 2);
  EXPECT_EQ(exported->nulls, 0);
}

}  // namespace
}  // namespace octile
