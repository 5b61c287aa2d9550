// SPDX-License-Identifier: Apache-2.0
// What verify finds in tables that were right once, and what it leaves alone.
#include "octile/tune/verify.h"

#include "linear/tables.h"
#include "octile/table/table_store.h"
#include "octile/tune/verify_plans.h"
#include "support/fake_backend.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

namespace octile::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class VerifyTest : public testing::Test {
 protected:
  void tune(const std::string& scenario) {
    const auto summary = tune_simulated(tune_options(directory_.path(), ""), scenario);
    ASSERT_TRUE(summary.has_value()) << summary.error().message;
    files_ = summary->files;
  }

  Expected<VerifyResult> verify(const std::string& scenario) {
    clear_table_cache();
    VerifyOptions options;
    options.device = "fake";
    options.tables = directory_.path();
    options.seed = 5;
    const SimulatedBackend backend(parse_scenario(scenario));
    return verify_with(options, simulated_hooks(backend));
  }

  TemporaryDirectory directory_;
  std::vector<std::string> files_;
};

TEST_F(VerifyTest, ATableThatHoldsIsFineAndItsEndsWereMeasured) {
  tune("ratio:0:1.5");
  const auto result = verify("ratio:0:1.5,seed:9");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_TRUE(result->ok()) << result->findings[0].message;
  ASSERT_THAT(result->entries, SizeIs(4)) << "both ends of one interval of each of two weights";
  for (const VerifiedEntry& entry : result->entries) {
    EXPECT_EQ(entry.key, "[1, 16]");
    EXPECT_NEAR(entry.ratio, 1.5, 0.1);
    EXPECT_GT(entry.rel_error, 0);
  }
}

TEST_F(VerifyTest, AnEntryThatLosesBeyondDoubtIsFound) {
  tune("ratio:0:1.5");
  const auto result = verify("ratio:0:0.8");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_FALSE(result->ok());
  EXPECT_EQ(result->findings[0].kind, "loses");
  EXPECT_EQ(result->findings[0].file, files_[0]);
  EXPECT_THAT(result->findings[0].message, HasSubstr("beyond doubt"));
}

TEST_F(VerifyTest, ADecodeTileThatServesPrefillIsFoundInAFieldTable) {
  const std::string tile = R"({"BLOCK_SIZE_M":16,"BLOCK_SIZE_N":32,"BLOCK_SIZE_K":64,"num_warps":4,"num_stages":3})";
  std::ofstream(directory_.path() + "/N=48,K=64,device_name=Fake_Device-generic-1t,dtype=fp8_w8a8_channelwise.json")
      << "{\"1\": " << tile << ", \"64\": " << tile << "}";
  const auto holds = verify("field,ratio:0:1.5");
  ASSERT_TRUE(holds.has_value()) << holds.error().message;
  EXPECT_TRUE(holds->ok()) << holds->findings[0].message;
  const auto result = verify("field,ratio:0:1.5,ratio:0:0.6@1024");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_THAT(result->findings, SizeIs(1));
  EXPECT_EQ(result->findings[0].kind, "loses");
  EXPECT_EQ(result->findings[0].key, "64");
  EXPECT_THAT(result->findings[0].message, HasSubstr("M = 2048"));
}

TEST_F(VerifyTest, AnEntryThatHasBecomeEqualIsNoFinding) {
  tune("ratio:0:1.5");
  for (int seed = 1; seed <= 30; ++seed) {
    const auto result = verify("ratio:0:1,noise:0.05,seed:" + std::to_string(seed));
    ASSERT_TRUE(result.has_value()) << result.error().message;
    EXPECT_TRUE(result->ok()) << "seed " << seed << ": " << result->findings[0].message;
  }
}

TEST_F(VerifyTest, AnEntryWhoseKernelIsWrongNowIsFound) {
  tune("ratio:0:1.5");
  const auto result = verify("ratio:0:1.5,wrong:0");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_THAT(result->findings, SizeIs(4));
  EXPECT_EQ(result->findings[0].kind, "wrong");
}

TEST_F(VerifyTest, ABaselineEntryIsCheckedForItsNumbersOnly) {
  tune("noise:0.02");
  const auto result = verify("noise:0.02");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_TRUE(result->ok());
  ASSERT_FALSE(result->entries.empty());
  EXPECT_EQ(result->entries[0].ratio, 0);
  EXPECT_GT(result->entries[0].rel_error, 0);
}

TEST_F(VerifyTest, AnEntryOfAnotherSourceHashOrAnIllegalConfigIsFound) {
  tune("ratio:0:1.5");
  std::vector<Finding> findings;
  TileTable table = read_table(files_[0], findings).value();
  table.entries[0].kernel_source_hash = "0123";
  ASSERT_TRUE(write_own_table(table, files_[0]).has_value());
  table = read_table(files_[1], findings).value();
  table.entries[0].config.set("v", 9);
  ASSERT_TRUE(write_own_table(table, files_[1]).has_value());
  const auto result = verify("ratio:0:1.5");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_THAT(result->findings, SizeIs(2));
  EXPECT_EQ(result->findings[0].kind, "illegal");
  EXPECT_THAT(result->findings[0].message, HasSubstr("0123"));
  EXPECT_THAT(result->findings[1].message, HasSubstr("9"));
}

TEST_F(VerifyTest, ABrokenFileIsAFinding) {
  tune("ratio:0:1.5");
  {
    std::ofstream(files_[0]) << "{ broken";
  }
  const auto result = verify("ratio:0:1.5");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_FALSE(result->ok());
  EXPECT_EQ(result->findings[0].file, files_[0]);
  EXPECT_THAT(result->entries, SizeIs(2)) << "the other file is still verified";
}

// Linears of fast sums run its configs too, with other kernels than the ones that were measured.
TEST_F(VerifyTest, ATableOfPreciseSumsCheckedWithFastOnesIsAdvice) {
  FakeBackend gpu(DeviceKind::cuda);
  gpu.add("ours");
  Problem problem;
  problem.n = 48;
  problem.k = 64;
  TileTable table = own_table(gpu.info, problem, {entry(1, 16, "ours", 8, 1.5)});
  table.key.accumulate = "precise";
  ASSERT_TRUE(write_own_table(table, directory_.path() + "/" + table_file_name(table.key, false)).has_value());
  RunHooks hooks;
  hooks.find_device = [&](std::string_view) -> Expected<Device> { return gpu.device(); };
  for (const Accumulate asked : {Accumulate::device_default, Accumulate::fast, Accumulate::precise}) {
    clear_table_cache();
    VerifyOptions options;
    options.tables = directory_.path();
    options.accumulate = asked;
    const auto plans = find_verify_plans(options, hooks);
    ASSERT_TRUE(plans.has_value()) << plans.error().message;
    EXPECT_THAT(plans->findings, IsEmpty());
    EXPECT_EQ(std::ranges::count(plans->advice, "fast_sums", &Finding::kind), asked == Accumulate::precise ? 0 : 1);
  }
}

TEST_F(VerifyTest, ASoftKeyThatDiffersIsAdvice) {
  tune("ratio:0:1.5");
  std::vector<Finding> findings;
  TileTable table = read_table(files_[0], findings).value();
  table.provenance["fake_vendor"] = "0.9";
  ASSERT_TRUE(write_own_table(table, files_[0]).has_value());
  const auto result = verify("ratio:0:1.5");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_TRUE(result->ok());
  ASSERT_FALSE(result->advice.empty());
  EXPECT_EQ(result->advice[0].kind, "stale");
  EXPECT_THAT(result->advice[0].message, HasSubstr("0.9"));
}

TEST_F(VerifyTest, WithoutATableThereIsNothingToVerifyAndThatIsAnError) {
  const auto result = verify("");
  ASSERT_FALSE(result.has_value());
  EXPECT_THAT(result.error().message, HasSubstr("no table"));
  EXPECT_THAT(result.error().message, HasSubstr(directory_.path()));
}

// Every M, on a weight so small that the simulated device is quick.
class VerifyEveryMTest : public VerifyTest {
 protected:
  void tune_ends(const std::string& scenario, std::vector<std::int64_t> ms = {1, 48}, const TuneOptions& keys = {}) {
    TuneOptions options = tune_options(directory_.path(), "");
    options.numerics = keys.numerics;
    options.pdl = keys.pdl;
    options.accumulate = keys.accumulate;
    options.shapes = {{"small", 48, 64}};
    options.m_list = std::move(ms);
    const auto summary = tune_simulated(options, scenario);
    ASSERT_TRUE(summary.has_value()) << summary.error().message;
    files_ = summary->files;
  }
  Expected<VerifyResult> verify_every_m(const std::string& scenario, bool fix = false) {
    clear_table_cache();
    VerifyOptions options;
    options.device = "fake";
    options.tables = directory_.path();
    options.seed = 5;
    options.all_m = true;
    options.every_m_up_to = 48;
    options.random_ms = 8;
    options.largest_random_m = 100;
    options.fix = fix;
    const SimulatedBackend backend(parse_scenario(scenario));
    return verify_with(options, simulated_hooks(backend));
  }
};

TEST_F(VerifyEveryMTest, ATableThatHoldsIsFineAtEveryM) {
  tune_ends("ratio:0:1.5");
  const auto result = verify_every_m("ratio:0:1.5,seed:3");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_TRUE(result->ok()) << result->findings[0].message;
  std::set<std::int64_t> ms;
  int gaps = 0;
  for (const VerifiedEntry& entry : result->entries) {
    ms.insert(entry.m);
    gaps += entry.key == "gap" ? 1 : 0;
    EXPECT_GT(entry.us, 0);
    EXPECT_GT(entry.rel_error, 0);
  }
  EXPECT_THAT(ms, SizeIs(56));
  EXPECT_EQ(*ms.begin(), 1);
  EXPECT_EQ(gaps, 8) << "above the interval's end nothing was measured";
}

TEST_F(VerifyEveryMTest, WhatLosesBetweenTheEndsIsFoundWithItsCliffAndRepaired) {
  tune_ends("ratio:0:1.5");
  const std::string scenario = "ratio:0:1.5,ratio:0:0.5@31,ratio:0:1.5@44,seed:4";
  const auto lost = verify_every_m(scenario);
  ASSERT_TRUE(lost.has_value()) << lost.error().message;
  ASSERT_THAT(lost->findings, SizeIs(13));
  for (const Finding& finding : lost->findings) {
    EXPECT_EQ(finding.kind, "loses");
    EXPECT_EQ(finding.file, files_[0]);
    EXPECT_EQ(finding.key, "[1, 48]");
    EXPECT_THAT(finding.message, HasSubstr("the baseline"));
  }
  ASSERT_THAT(lost->cliffs, SizeIs(1));
  ASSERT_FALSE(lost->cliffs[0].cliffs.empty());
  const auto is_the_step = [](const Cliff& cliff) {
    return cliff.kind == Cliff::Kind::step && cliff.from.m == 30 && cliff.to.m == 31;
  };
  EXPECT_TRUE(std::ranges::any_of(lost->cliffs[0].cliffs, is_the_step));

  const auto fixed = verify_every_m(scenario, true);
  ASSERT_TRUE(fixed.has_value()) << fixed.error().message;
  EXPECT_TRUE(fixed->ok()) << fixed->findings[0].message;
  EXPECT_THAT(fixed->files, SizeIs(1));
  const auto is_fixed = [](const Finding& finding) { return finding.kind == "fixed"; };
  EXPECT_EQ(std::ranges::count_if(fixed->advice, is_fixed), 21)
      << "the 13 that lost, and the 8 in the gap, which our families may no longer fill";
  std::vector<Finding> findings;
  const TileTable table = read_table(files_[0], findings).value();
  for (const std::int64_t m : {31, 40, 43}) {
    EXPECT_EQ(table.find(m)->kernel, "baseline") << m;
  }
  for (const std::int64_t m : {1, 30, 44, 48}) {
    EXPECT_EQ(table.find(m)->kernel, "fake_tile") << m;
  }
  const auto again = verify_every_m(scenario);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_TRUE(again->ok()) << again->findings[0].message;
}

// A run has one value of each hard key, and the table has its own.
TEST_F(VerifyEveryMTest, ATableIsRepairedWhateverItsHardKeysAre) {
  const std::string scenario = "ratio:0:1.5,ratio:0:0.5@31,ratio:0:1.5@44,seed:4";
  TuneOptions numerics;
  numerics.numerics = Numerics::baseline;
  TuneOptions mode;
  mode.pdl = Pdl::consume;
  TuneOptions sums;
  sums.accumulate = Accumulate::precise;
  for (const TuneOptions& keys : {numerics, mode, sums}) {
    SCOPED_TRACE(testing::Message() << to_string(keys.numerics) << ' ' << to_string(keys.pdl) << ' '
                                    << to_string(keys.accumulate));
    tune_ends("ratio:0:1.5", {1, 48}, keys);
    std::vector<Finding> findings;
    const TableKey before = read_table(files_[0], findings).value().key;
    const auto fixed = verify_every_m(scenario, true);
    ASSERT_TRUE(fixed.has_value()) << fixed.error().message;
    EXPECT_TRUE(fixed->ok()) << fixed->findings[0].message;
    const TileTable table = read_table(files_[0], findings).value();
    EXPECT_EQ(table.find(40)->kernel, "baseline");
    EXPECT_EQ(table.key.numerics, before.numerics);
    EXPECT_EQ(table.key.pdl, before.pdl);
    EXPECT_EQ(table.key.accumulate, before.accumulate);
    std::filesystem::remove(files_[0]);
  }
}

TEST_F(VerifyEveryMTest, ABaselineThatANeighboursTileBeatsIsFound) {
  // Config 2 wins up to 40 and config 0, the heuristic, nowhere: between the two measured ends nobody knows of 2.
  tune_ends("ratio:2:1.5,ratio:2:0.7@5,ratio:0:0.7", {1, 4, 5, 48});
  const auto result = verify_every_m("ratio:2:1.5,ratio:2:0.7@41,ratio:0:0.7,seed:6");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_THAT(result->findings, SizeIs(36));
  EXPECT_THAT(result->findings[0].message, HasSubstr("fake_tile {\"v\": 2}"));
}

TEST_F(VerifyEveryMTest, AFieldTableStaysAndATableOfOursGoesBeforeIt) {
  const std::string tile = R"({"BLOCK_SIZE_M":16,"BLOCK_SIZE_N":32,"BLOCK_SIZE_K":64,"num_warps":4,"num_stages":3})";
  const std::string field = directory_.write("N=48,K=64,device_name=Fake_Device-generic-1t,dtype=fp8_w8a8_channelwise.json",
                                             "{\"1\": " + tile + ", \"16\": " + tile + "}");
  const std::string before = read_text(field);
  const std::string scenario = "field,ratio:0:1.5,ratio:0:0.6@45";
  const auto fixed = verify_every_m(scenario, true);
  ASSERT_TRUE(fixed.has_value()) << fixed.error().message;
  EXPECT_TRUE(fixed->ok()) << fixed->findings[0].message;
  EXPECT_EQ(read_text(field), before);
  ASSERT_THAT(fixed->files, SizeIs(1));
  EXPECT_THAT(fixed->files[0], HasSubstr(".octile.json"));
  const auto again = verify_every_m(scenario);
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_TRUE(again->ok()) << again->findings[0].message;
}

TEST_F(VerifyEveryMTest, WhereNothingCouldBeTimedThereAreNoCliffsAndTheResultKnowsWhatWasAsked) {
  tune_ends("ratio:0:1.5");
  clear_table_cache();
  VerifyOptions options;
  options.device = "fake";
  options.tables = directory_.path();
  options.all_m = true;
  options.every_m_up_to = 4;
  options.random_ms = 0;
  options.time_budget_s = 1e-9;
  const SimulatedBackend backend(parse_scenario("ratio:0:1.5"));
  const auto result = verify_with(options, simulated_hooks(backend));
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_TRUE(result->all_m);
  EXPECT_THAT(result->cliffs, IsEmpty());
  EXPECT_THAT(result->entries, IsEmpty());
}

}  // namespace
}  // namespace octile::test
