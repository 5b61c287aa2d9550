// SPDX-License-Identifier: Apache-2.0
// The published L40S tables, the real input of this layer: which key serves each M, by hand from the files.
//
// Keys of all three files: 1 2 4 8 16 32 48 64 96 128 192 256 512 1024 2048 4096 8192, in this order. Ties go to the key
// that comes first in the file, here the smaller:
//   M = 3       2 and 4 are 1 away: 2        M = 257     256 (1 away)
//   M = 6       4 and 8 are 2 away: 4        M = 384     256 and 512 are 128 away: 256
//   M = 7       8                            M = 385     512 (127 away, 256 is 129)
//   M = 12      8 and 16 are 4 away: 8       M = 3072    2048 and 4096 are 1024 away: 2048
//   M = 13      16 (3 away, 8 is 5)          M = 3073    4096
//                                            M = 100000  8192, the last: there is no upper bound
#include "octile/table/field_format.h"
#include "octile/table/table_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>

namespace octile {
namespace {

struct Served {
  std::int64_t m;
  std::int64_t key;
  std::vector<std::int64_t> tile;  // BLOCK_SIZE_M, _N, _K, num_warps, num_stages; empty: null, the baseline.
};

struct Published {
  std::int64_t n;
  std::int64_t k;
  std::vector<Served> served;

  friend std::ostream& operator<<(std::ostream& out, const Published& file) { return out << file.n << "x" << file.k; }
};

std::string published_directory() { return std::string(OCTILE_TEST_SOURCE_DIR) + "/tables/NVIDIA_L40S"; }

TileTable published_table(std::int64_t n, std::int64_t k) {
  TableKey key;
  key.device_name = "NVIDIA_L40S";
  key.n = n;
  key.k = k;
  std::vector<Finding> findings;
  auto table = read_table(published_directory() + "/" + table_file_name(key, true), findings);
  EXPECT_TRUE(table) << table.error().message;
  EXPECT_TRUE(findings.empty()) << findings.front().message;
  return table ? *table : TileTable{};
}

class PublishedTable : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedTable, ServesEachMFromTheNearestKey) {
  const TileTable table = published_table(GetParam().n, GetParam().k);
  const std::vector<const char*> names = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps", "num_stages"};
  for (const Served& wanted : GetParam().served) {
    SCOPED_TRACE(wanted.m);
    const TableEntry* const entry = table.find(wanted.m);
    ASSERT_NE(entry, nullptr);
    EXPECT_EQ(entry->m_lo, wanted.key);
    EXPECT_EQ(entry->m_hi, wanted.key);
    EXPECT_EQ(entry->kernel, wanted.tile.empty() ? kBaselineKernel : kFieldKernel);
    TileConfig tile;
    for (std::size_t i = 0; i < wanted.tile.size(); ++i) {
      tile.set(names[i], wanted.tile[i]);
    }
    EXPECT_EQ(entry->config, tile) << entry->config.to_json() << " instead of " << tile.to_json();
  }
}

INSTANTIATE_TEST_SUITE_P(L40S, PublishedTable,
                         ::testing::Values(Published{24576,
                                                     4096,
                                                     {{3, 2, {16, 16, 1024, 4, 3}},
                                                      {6, 4, {16, 16, 1024, 4, 3}},
                                                      {7, 8, {16, 16, 1024, 4, 3}},
                                                      {12, 8, {16, 16, 1024, 4, 3}},
                                                      {13, 16, {16, 32, 1024, 4, 3}},
                                                      {257, 256, {256, 64, 256, 8, 1}},
                                                      {384, 256, {256, 64, 256, 8, 1}},
                                                      {385, 512, {}},
                                                      {3072, 2048, {}},
                                                      {3073, 4096, {256, 128, 128, 8, 2}},
                                                      {100000, 8192, {256, 128, 128, 8, 2}}}},
                                           Published{4096,
                                                     12288,
                                                     {{3, 2, {16, 32, 1024, 4, 3}},
                                                      {6, 4, {16, 32, 1024, 4, 3}},
                                                      {7, 8, {16, 32, 1024, 4, 3}},
                                                      {12, 8, {16, 32, 1024, 4, 3}},
                                                      {13, 16, {16, 32, 1024, 4, 3}},
                                                      {257, 256, {64, 128, 256, 8, 3}},
                                                      {384, 256, {64, 128, 256, 8, 3}},
                                                      {385, 512, {128, 128, 128, 8, 4}},
                                                      {3072, 2048, {128, 256, 128, 8, 3}},
                                                      {3073, 4096, {128, 256, 128, 8, 3}},
                                                      {100000, 8192, {128, 256, 128, 8, 2}}}},
                                           Published{4096,
                                                     4096,
                                                     {{3, 2, {16, 32, 1024, 4, 1}},
                                                      {6, 4, {16, 16, 256, 4, 4}},
                                                      {7, 8, {16, 32, 1024, 4, 1}},
                                                      {12, 8, {16, 32, 1024, 4, 1}},
                                                      {13, 16, {16, 16, 256, 2, 4}},
                                                      {257, 256, {64, 128, 256, 4, 3}},
                                                      {384, 256, {64, 128, 256, 4, 3}},
                                                      {385, 512, {128, 128, 128, 8, 4}},
                                                      {3072, 2048, {128, 256, 128, 8, 3}},
                                                      {3073, 4096, {128, 128, 128, 4, 2}},
                                                      {100000, 8192, {256, 128, 128, 8, 2}}}}),
                         ::testing::PrintToStringParamName());

// (N=24576, K=4096) is null at 512, 1024 and 2048: from M = 385 (nearer to 512 than to 256) to M = 3072 (as near to 2048 as
// to 4096, and 2048 comes first). The other two files have no null.
TEST(PublishedTables, NullSendsAStretchOfMToTheBaseline) {
  for (const auto& [n, k] : {std::pair{24576, 4096}, {4096, 12288}, {4096, 4096}}) {
    const TileTable table = published_table(n, k);
    for (std::int64_t m = 1; m <= 10000; ++m) {
      const bool baseline = n == 24576 && m >= 385 && m <= 3072;
      ASSERT_EQ(table.find(m)->kernel == kBaselineKernel, baseline) << "N=" << n << " K=" << k << " M=" << m;
    }
  }
}

// 98,304 bytes fit the 101,376 that a block may have on sm_89 with a kilobyte of the system's per block and some left.
TEST(PublishedTables, EveryTileFitsTheSharedMemoryOfAnL40S) {
  std::int64_t largest = 0;
  for (const auto& [n, k] : {std::pair{24576, 4096}, {4096, 12288}, {4096, 4096}}) {
    const TileTable table = published_table(n, k);
    EXPECT_TRUE(tiles_beyond_shared_memory(table, 101'376).empty());
    for (const TableEntry& entry : table.entries) {
      largest = std::max(largest, entry.kernel == kFieldKernel ? field_tile_shared_bytes(entry.config) : 0);
    }
  }
  EXPECT_EQ(largest, 98'304);
}

TEST(PublishedTables, WritingOneGivesThePublishedTextBack) {
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(published_directory())) {
    if (file.path().extension() != ".json") {
      continue;
    }
    std::vector<Finding> findings;
    const auto table = read_table(file.path().string(), findings);
    ASSERT_TRUE(table) << table.error().message;
    const auto text = field_table_text(*table);
    ASSERT_TRUE(text) << text.error().message;
    const auto published = read_whole_file(file.path().string());
    ASSERT_TRUE(published) << published.error().message;
    // The published files end without a line break.
    EXPECT_EQ(*text, *published + (published->ends_with('\n') ? "" : "\n"));
    ++files;
  }
  EXPECT_EQ(files, 3U);
}

}  // namespace
}  // namespace octile
