// SPDX-License-Identifier: Apache-2.0
// What verify finds in tables that were right once, and what it leaves alone.
#include "octile/tune/verify.h"

#include "octile/table/table_store.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

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

}  // namespace
}  // namespace octile::test
