// SPDX-License-Identifier: Apache-2.0
// Look-up against brute force, segments, file names.
#include "octile/table/tile_table.h"

#include "support/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

namespace octile {
namespace {

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

TileTable field_table(const std::vector<std::int64_t>& keys) {
  TileTable table;
  table.field_format = true;
  for (const std::int64_t key : keys) {
    TableEntry entry;
    entry.m_lo = entry.m_hi = key;
    entry.kernel = "ada_mma";
    table.entries.push_back(entry);
  }
  return table;
}

TileTable own_table(const std::vector<std::pair<std::int64_t, std::int64_t>>& intervals) {
  TileTable table;
  for (const auto& [lo, hi] : intervals) {
    TableEntry entry;
    entry.m_lo = lo;
    entry.m_hi = hi;
    entry.kernel = "reference";
    table.entries.push_back(entry);
  }
  return table;
}

std::int64_t key_at(const TileTable& table, std::int64_t m) {
  const TableEntry* const entry = table.find(m);
  return entry == nullptr ? 0 : entry->m_lo;
}

TEST(TileTable, ATieGoesToTheKeyThatComesFirstInTheFile) {
  EXPECT_EQ(key_at(field_table({2, 4}), 3), 2);
  EXPECT_EQ(key_at(field_table({4, 2}), 3), 4);
  EXPECT_EQ(key_at(field_table({64, 8, 32, 16}), 48), 64);
  EXPECT_EQ(key_at(field_table({64, 8, 32, 16}), 24), 32);
}

TEST(TileTable, TheLargestKeyServesEveryLargerM) {
  EXPECT_EQ(key_at(field_table({1, 64}), kInt64Max), 64);
  EXPECT_EQ(key_at(field_table({1, kInt64Max}), kInt64Max), kInt64Max);
}

TEST(TileTable, AnEmptyTableAndAnMThatIsNoneServeNothing) {
  EXPECT_EQ(TileTable{}.find(1), nullptr);
  EXPECT_EQ(field_table({}).find(1), nullptr);
  EXPECT_EQ(field_table({1}).find(0), nullptr);
  EXPECT_EQ(own_table({{1, 8}}).find(0), nullptr);
  EXPECT_EQ(field_table({1}).find(std::numeric_limits<std::int64_t>::min()), nullptr);
}

TEST(TileTable, AnIntervalServesBothItsEndsAndAGapNothing) {
  const TileTable table = own_table({{2, 16}, {17, 17}, {32, 64}});
  EXPECT_EQ(key_at(table, 1), 0);
  EXPECT_EQ(key_at(table, 2), 2);
  EXPECT_EQ(key_at(table, 16), 2);
  EXPECT_EQ(key_at(table, 17), 17);
  EXPECT_EQ(key_at(table, 18), 0);
  EXPECT_EQ(key_at(table, 31), 0);
  EXPECT_EQ(key_at(table, 32), 32);
  EXPECT_EQ(key_at(table, 64), 32);
  EXPECT_EQ(key_at(table, 65), 0);
}

TEST(TileTable, RandomNearestKeysAgreeWithBruteForceAndWithTheSegments) {
  SCOPED_TRACE(test::seed_text());
  auto& random = test::generator();
  for (int round = 0; round < 300; ++round) {
    std::set<std::int64_t> distinct;
    const std::int64_t range = round % 2 == 0 ? 40 : 4000;
    const int count = std::uniform_int_distribution(1, 24)(random);
    while (std::cmp_less(distinct.size(), count)) {
      distinct.insert(std::uniform_int_distribution<std::int64_t>(1, range)(random));
    }
    std::vector<std::int64_t> keys(distinct.begin(), distinct.end());
    std::shuffle(keys.begin(), keys.end(), random);
    const TileTable table = field_table(keys);
    const std::vector<TableSegment> segments = segments_of(table);
    ASSERT_EQ(segments.size(), keys.size());
    ASSERT_EQ(segments.front().m_lo, 1);
    ASSERT_EQ(segments.back().m_hi, kInt64Max);
    std::size_t at = 0;
    for (std::int64_t m = 1; m <= range + 50; ++m) {
      std::int64_t best = keys[0];
      for (const std::int64_t key : keys) {
        if (std::abs(key - m) < std::abs(best - m)) {
          best = key;
        }
      }
      ASSERT_EQ(key_at(table, m), best) << "M = " << m;
      while (segments[at].m_hi < m) {
        ++at;
        ASSERT_EQ(segments[at].m_lo, segments[at - 1].m_hi + 1);
      }
      ASSERT_EQ(segments[at].entry->m_lo, best) << "segment of M = " << m;
    }
  }
}

TEST(TileTable, RandomIntervalsAgreeWithBruteForce) {
  SCOPED_TRACE(test::seed_text());
  auto& random = test::generator();
  std::uniform_int_distribution<std::int64_t> step(0, 9);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<std::int64_t, std::int64_t>> intervals;
    std::int64_t m = 1;
    for (int i = 0; i < 20; ++i) {
      const std::int64_t lo = m + std::max(step(random) - 4, std::int64_t{0});
      const std::int64_t hi = lo + step(random);
      intervals.emplace_back(lo, hi);
      m = hi + 1;
    }
    const TileTable table = own_table(intervals);
    for (std::int64_t asked = 1; asked < m + 5; ++asked) {
      const auto holds = std::find_if(intervals.begin(), intervals.end(), [asked](const auto& interval) {
        return interval.first <= asked && asked <= interval.second;
      });
      ASSERT_EQ(key_at(table, asked), holds == intervals.end() ? 0 : holds->first) << "M = " << asked;
    }
    ASSERT_EQ(segments_of(table).size(), intervals.size());
  }
}

TEST(TableFileName, IsThatOfThePublishedFiles) {
  TableKey key;
  key.n = 6144;
  key.k = 4096;
  key.device_name = "NVIDIA_L40S";
  EXPECT_EQ(table_file_name(key, true), "N=6144,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json");
  EXPECT_EQ(table_file_name(key, false), "N=6144,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.octile.json");
}

TEST(TableFileName, ReadsBackWhatItWrites) {
  TableKey key;
  key.n = 1;
  key.k = 1'000'000'007;
  key.device_name = "Intel_R_Xeon_R_Processor-amx-2t";
  for (const bool field_format : {false, true}) {
    const auto name = parse_table_file_name("/some/N=2,K=3/" + table_file_name(key, field_format));
    ASSERT_TRUE(name);
    EXPECT_EQ(name->key.n, key.n);
    EXPECT_EQ(name->key.k, key.k);
    EXPECT_EQ(name->key.device_name, key.device_name);
    EXPECT_EQ(name->key.scheme, kSchemeChannelwise);
    EXPECT_EQ(name->field_format, field_format);
  }
}

TEST(TableFileName, RecognisesLaterSchemes) {
  const auto name =
      parse_table_file_name("N=6144,K=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->key.scheme, "fp8_w8a8,block_shape=[128, 128]");
  EXPECT_EQ(name->key.device_name, "NVIDIA_H200");
}

TEST(TableFileName, RefusesWhatIsNone) {
  for (const char* name :
       {"", "README.md", "tables.json", "N=6144,K=4096.json", "E=8,N=6144,device_name=NVIDIA_H200,dtype=fp8_w8a8.json",
        "N=06144,K=4096,device_name=X,dtype=fp8_w8a8_channelwise.json",
        "N=-1,K=4096,device_name=X,dtype=fp8_w8a8_channelwise.json", "N=1,K=,device_name=X,dtype=fp8_w8a8_channelwise.json",
        "N=1,K=0,device_name=X,dtype=fp8_w8a8_channelwise.json",
        "N=99999999999999999999,K=1,device_name=X,dtype=fp8_w8a8_channelwise.json",
        "N=1,K=1,device_name=,dtype=fp8_w8a8_channelwise.json",
        "N=1,K=1,device_name=NVIDIA L40S,dtype=fp8_w8a8_channelwise.json", "N=1,K=1,device_name=X,dtype=.json",
        "N=1,K=1,device_name=X,dtype=fp8_w8a8_channelwise.yaml", "n=1,K=1,device_name=X,dtype=fp8_w8a8_channelwise.json",
        "N=1,K=1,device_name=X,dtype=fp8_w8a8_channelwise"}) {
    EXPECT_FALSE(parse_table_file_name(name)) << name;
  }
}

}  // namespace
}  // namespace octile
