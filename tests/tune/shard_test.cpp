// SPDX-License-Identifier: Apache-2.0
// Shards: who measures what, and that their tables united are those of one run.
#include "octile/tune/shard.h"

#include "octile/table/table_ops.h"
#include "support/random.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

namespace octile::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::vector<SharedWeight>& qwen3_8b() {
  static const std::vector<std::int64_t> gpu_ms = default_m_list(true);
  static const std::vector<SharedWeight> weights{
      {6144, 4096, gpu_ms}, {4096, 4096, gpu_ms}, {24576, 4096, gpu_ms}, {4096, 12288, gpu_ms}};
  return weights;
}

DeviceInfo h200() {
  DeviceInfo device;
  device.kind = DeviceKind::cuda;
  device.sm_count = 132;
  return device;
}

std::vector<std::vector<WeightShare>> all_shares(const std::vector<SharedWeight>& weights, const DeviceInfo& device, int n) {
  std::vector<std::vector<WeightShare>> result;
  for (int i = 1; i <= n; ++i) {
    result.push_back(share_of(weights, device, {i, n}));
  }
  return result;
}

TEST(Shard, EveryPointIsInExactlyOneShardAndEveryBorderIsTheNextMBelow) {
  SCOPED_TRACE(seed_text());
  std::mt19937_64& random = generator();
  const auto pick = [&](std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(random);
  };
  for (int round = 0; round < 50; ++round) {
    DeviceInfo device = h200();
    device.kind = round % 2 == 0 ? DeviceKind::cuda : DeviceKind::cpu;
    std::vector<SharedWeight> weights;
    for (std::int64_t w = pick(1, 6); w > 0; --w) {
      std::set<std::int64_t> ms;
      for (std::int64_t count = pick(1, 20); count > 0; --count) {
        ms.insert(pick(1, 8192));
      }
      weights.push_back({pick(1, 30000), pick(1, 30000), {ms.begin(), ms.end()}});
    }
    const int n = static_cast<int>(pick(1, 40));
    const auto shares = all_shares(weights, device, n);
    for (std::size_t w = 0; w < weights.size(); ++w) {
      const std::vector<std::int64_t>& ms = weights[w].m_list;
      std::vector<std::int64_t> together;
      for (const std::vector<WeightShare>& share : shares) {
        const std::vector<std::int64_t>& own = share[w].own;
        EXPECT_TRUE(std::ranges::is_sorted(own));
        together.insert(together.end(), own.begin(), own.end());
        std::vector<std::int64_t> borders;
        for (std::size_t i = 1; i < ms.size(); ++i) {
          if (std::ranges::binary_search(own, ms[i]) && !std::ranges::binary_search(own, ms[i - 1])) {
            borders.push_back(ms[i - 1]);
          }
        }
        EXPECT_EQ(share[w].borders, borders);
      }
      std::ranges::sort(together);
      EXPECT_EQ(together, ms) << n << " shards";
    }
  }
}

TEST(Shard, AModelOnAsManyShardsAsItsWeightsDifferLittleIsNotCut) {
  const std::vector<std::int64_t> ms = default_m_list(false);
  DeviceInfo cpu;
  cpu.sm_count = 2;
  const std::vector<SharedWeight> equal(4, SharedWeight{4096, 4096, ms});
  for (const int n : {2, 4}) {
    for (const std::vector<WeightShare>& share : all_shares(equal, cpu, n)) {
      int whole = 0;
      for (const WeightShare& weight : share) {
        EXPECT_TRUE(weight.own.empty() || weight.own == ms);
        EXPECT_THAT(weight.borders, IsEmpty());
        whole += weight.own.empty() ? 0 : 1;
      }
      EXPECT_EQ(whole, 4 / n);
    }
  }
}

TEST(Shard, TheLargestMAreSpread) {
  for (const int n : {2, 3, 4, 8, 16}) {
    std::vector<int> largest;
    std::vector<std::size_t> points;
    for (const std::vector<WeightShare>& share : all_shares(qwen3_8b(), h200(), n)) {
      largest.push_back(0);
      points.push_back(0);
      for (const WeightShare& weight : share) {
        largest.back() += std::ranges::binary_search(weight.own, 8192) ? 1 : 0;
        points.back() += weight.own.size() + weight.borders.size();
      }
    }
    EXPECT_LE(*std::ranges::max_element(largest), n == 2 ? 3 : 2) << n << " shards";
    EXPECT_EQ(std::accumulate(largest.begin(), largest.end(), 0), 4);
    EXPECT_GT(*std::ranges::min_element(points), 0U) << n << " shards";
    // 68 points, of which those of 8192 tokens take several times what a small one takes.
    EXPECT_LE(*std::ranges::max_element(points), 68U / static_cast<unsigned>(n) * 2 + 2) << n << " shards";
  }
}

TEST(Shard, NonsenseIsRefusedWithTheValue) {
  for (const Shard& shard : {Shard{0, 4}, Shard{5, 4}, Shard{-1, 4}, Shard{1, 0}, Shard{1, kMaxShards + 1}}) {
    const Expected<void> checked = check_shard(shard);
    ASSERT_FALSE(checked.has_value());
    EXPECT_EQ(checked.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(checked.error().message, HasSubstr(shard.to_string()));
  }
  EXPECT_TRUE(check_shard({1, 1}).has_value());
  EXPECT_TRUE(check_shard({4, 4}).has_value());
}

// Without noise every run finds the same: three winners and the baseline, with borders at 12, 50 and 200. The weakest proof
// of each interval is that of a single M.
constexpr const char* kScenario =
    "noise:0,ratio:0:1.5,ratio:0:1.6@2,ratio:2:1.2,ratio:2:2.3@12,ratio:2:2.1@16,ratio:2:2.4@17,ratio:2:0.6@50,"
    "ratio:0:0.5@50,ratio:3:1.7@200,ratio:3:1.4@512";

TuneOptions sharded_options(const std::string& directory, Shard shard) {
  TuneOptions options = tune_options(directory, kScenario);
  options.shapes = {{"small", 48, 64}, {"wide", 80, 32}, {"flat", 16, 128}};
  options.m_list = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  options.shard = shard;
  return options;
}

TEST(Shard, TablesOfAllShardsMergedAreThoseOfOneRun) {
  const TemporaryDirectory whole;
  ASSERT_TRUE(tune_simulated(sharded_options(whole.path(), {}), kScenario).has_value());
  const auto expected = tables_in(whole.path());
  ASSERT_THAT(expected, SizeIs(3));
  ASSERT_THAT(expected.begin()->second.entries, SizeIs(4)) << "the borders are what this is about";
  for (const int n : {2, 3, 5, 8, 30}) {
    SCOPED_TRACE(std::to_string(n) + " shards");
    std::map<std::string, std::vector<TileTable>> found;
    std::size_t points = 0;
    for (int i = 1; i <= n; ++i) {
      const TemporaryDirectory directory;
      const auto summary = tune_simulated(sharded_options(directory.path(), {i, n}), kScenario);
      ASSERT_TRUE(summary.has_value()) << summary.error().message;
      EXPECT_FALSE(summary->failure.has_value());
      points += summary->points.size();
      for (auto& [name, table] : tables_in(directory.path())) {
        found[name].push_back(std::move(table));
      }
    }
    EXPECT_GE(points, 30U);
    ASSERT_THAT(found, SizeIs(3));
    for (const auto& [name, tables] : found) {
      SCOPED_TRACE(name);
      const Expected<TileTable> merged = merge_tables(tables);
      ASSERT_TRUE(merged.has_value()) << merged.error().message;
      expect_same_entries(expected.at(name), *merged);
    }
  }
}

TEST(Shard, ShardsInOneDirectoryMakeTheTablesOfOneRunInAnyOrder) {
  const TemporaryDirectory whole;
  ASSERT_TRUE(tune_simulated(sharded_options(whole.path(), {}), kScenario).has_value());
  const auto expected = tables_in(whole.path());
  for (const std::vector<int>& order : {std::vector<int>{1, 2, 3, 4, 5}, {5, 4, 3, 2, 1}, {3, 1, 5, 2, 4}}) {
    const TemporaryDirectory directory;
    for (const int i : order) {
      ASSERT_TRUE(tune_simulated(sharded_options(directory.path(), {i, 5}), kScenario).has_value());
    }
    const auto found = tables_in(directory.path());
    ASSERT_THAT(found, SizeIs(3));
    for (const auto& [name, table] : found) {
      expect_same_entries(expected.at(name), table);
    }
  }
}

TEST(Shard, AnIntervalNeverReachesOverAnMOfAnotherShard) {
  // One weight on three shards: what is measured on both sides of another's M is not joined over it.
  for (int i = 1; i <= 3; ++i) {
    const TemporaryDirectory directory;
    TuneOptions options = sharded_options(directory.path(), {i, 3});
    options.shapes = {{"small", 48, 64}};
    const auto summary = tune_simulated(options, "noise:0,ratio:0:1.5");
    ASSERT_TRUE(summary.has_value()) << summary.error().message;
    std::set<std::int64_t> measured;
    for (const TunePoint& point : summary->points) {
      measured.insert(point.m);
    }
    EXPECT_LT(measured.size(), options.m_list.size());
    for (const auto& [name, table] : tables_in(directory.path())) {
      for (const std::int64_t m : options.m_list) {
        EXPECT_EQ(table.find(m) != nullptr, measured.contains(m)) << m;
      }
    }
  }
}

TEST(Shard, MoreShardsThanPointsLeavesSomeWithNothingToDo) {
  const TemporaryDirectory directory;
  int empty = 0;
  for (int i = 1; i <= 4; ++i) {
    TuneOptions options = tune_options(directory.path(), "");
    options.shapes = {{"small", 48, 64}};
    options.shard = {i, 4};
    const auto summary = tune_simulated(options, "noise:0,ratio:0:1.5");
    ASSERT_TRUE(summary.has_value()) << summary.error().message;
    EXPECT_FALSE(summary->failure.has_value());
    if (summary->points.empty()) {
      ++empty;
      ASSERT_THAT(summary->notes, SizeIs(1));
      EXPECT_THAT(summary->notes[0], HasSubstr("holds no point"));
    }
  }
  EXPECT_GE(empty, 1);
  const auto tables = tables_in(directory.path());
  ASSERT_THAT(tables, SizeIs(1));
  ASSERT_THAT(tables.begin()->second.entries, SizeIs(1));
  EXPECT_EQ(tables.begin()->second.entries[0].m_hi, 16);
}

TEST(Shard, AResumedShardTakesUpItsOwnJournalAndNoOther) {
  const TemporaryDirectory directory;
  const auto tune_until = [&](Shard shard, std::int64_t done, bool resume) {
    TuneOptions options = sharded_options(directory.path(), shard);
    options.resume = resume;
    bool is_raised = false;
    options.progress = [&](const TuneProgress& progress) {
      if (progress.done == done && !is_raised) {
        is_raised = true;
        ::raise(SIGTERM);
      }
    };
    const auto summary = tune_simulated(options, kScenario);
    EXPECT_TRUE(summary.has_value()) << (summary ? "" : summary.error().message);
    return summary ? *summary : TuneSummary{};
  };
  const TuneSummary first = tune_until({1, 3}, 2, false);
  const TuneSummary second = tune_until({2, 3}, 4, false);
  EXPECT_EQ(first.interrupted_by, SIGTERM);
  EXPECT_NE(first.journal, second.journal);
  EXPECT_THAT(first.journal, HasSubstr("shard-1-of-3"));
  const auto resumed_points = [](const TuneSummary& summary) {
    return std::ranges::count(summary.points, true, &TunePoint::resumed);
  };
  // A third that was never started finds nothing; it and the whole request leave the others' journals where they are.
  EXPECT_EQ(resumed_points(tune_until({3, 3}, -1, true)), 0);
  EXPECT_EQ(resumed_points(tune_until({1, 1}, 1, true)), 0);
  EXPECT_TRUE(std::filesystem::exists(first.journal));
  EXPECT_TRUE(std::filesystem::exists(second.journal));
  EXPECT_EQ(resumed_points(tune_until({2, 3}, -1, true)), 4);
  EXPECT_EQ(resumed_points(tune_until({1, 3}, -1, true)), 2);
  EXPECT_FALSE(std::filesystem::exists(first.journal));
  EXPECT_FALSE(std::filesystem::exists(second.journal));
  EXPECT_THAT(tables_in(directory.path()), SizeIs(3));
}

}  // namespace
}  // namespace octile::test
