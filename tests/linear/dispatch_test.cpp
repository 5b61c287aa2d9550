// SPDX-License-Identifier: Apache-2.0
// Tables, the kill switch and failures as Fp8Linear sees them: table files in a directory of the test's own, a fake device.
#include "octile/linear/dispatch.h"

#include "layer.h"
#include "octile/core/env.h"
#include "octile/linear/untuned_log.h"
#include "support/fake_backend.h"
#include "support/log_capture.h"
#include "tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace octile {
namespace {

using test::baseline_entry;
using test::entry;
using test::FakeBackend;
using test::FakeFamily;
using test::Inputs;
using test::run_guarded;
using test::Weights;
using testing::HasSubstr;
using testing::SizeIs;

constexpr const char* kSwitch = "OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE";

// fp32 outputs, in whose bits the vendor's order of products shows.
class Dispatching : public testing::Test {
 protected:
  Dispatching() : ours(backend.add("ours")), vendor(backend.add_vendor("vendor")), weights(40, 300), x(6, 300) {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    directory = std::filesystem::temp_directory_path() / ("octile-dispatch-" + std::to_string(::getpid()) + test->name());
    std::filesystem::create_directories(directory);
    // Names of its own, so that what is logged once per device is logged in every test.
    backend.info.name = std::string("Fake_CPU_") + test->name() + "-avx2-2t";
    problem.n = 40;
    problem.k = 300;
    problem.out_dtype = options.out_dtype = DType::fp32;
    options.tables = directory.string();
  }
  ~Dispatching() override {
    std::filesystem::remove_all(directory);
    clear_table_cache();
  }
  void write_table(std::vector<TableEntry> entries) {
    TileTable table = test::own_table(backend.info, problem, std::move(entries));
    for (TableEntry& each : table.entries) {
      if (each.kernel == "ours") {
        each.kernel_source_hash = ours.source_hash();
        each.us = 1.0;
        each.baseline_us = each.ratio ? each.ratio->mid : 1.0;
      }
    }
    const auto ok = write_own_table(table, (directory / table_file_name(table.key, false)).string());
    ASSERT_TRUE(ok.has_value()) << ok.error().message;
    clear_table_cache();
  }
  Expected<Fp8Linear> layer(std::int64_t max_m = 16) const {
    auto weight = pack_weight(backend.device(), weights.source(), options);
    if (!weight) {
      return weight.error();
    }
    auto made = Fp8Linear::create(*weight);
    if (made) {
      if (auto ok = made->prepare(max_m); !ok) {
        return ok.error();
      }
    }
    return made;
  }
  std::vector<unsigned char> bits(const Fp8Linear& linear) const { return run_guarded(linear, x.view(), DType::fp32, 40); }
  // What the vendor's kernel gives when it is called without the library.
  std::vector<unsigned char> vendors_own_bits() const {
    auto packed = backend.pack(backend.info, vendor.layout(), weights.source()).value();
    auto kernel = vendor.prepare(backend.info, problem, {}, 16).value();
    test::GuardedOutput y(DType::fp32, x.m, 40, 40);
    test::Workspace workspace(kernel->workspace_bytes(x.m));
    LaunchArgs args;
    args.activation.x = x.view();
    args.y = y.view();
    args.workspace = workspace.data();
    args.workspace_bytes = workspace.bytes();
    EXPECT_TRUE(kernel->run(*packed, args));
    return test::bytes_of(y.view());
  }

  testing::ScopedTrace trace{__FILE__, __LINE__, test::seed_text()};
  FakeBackend backend;
  FakeFamily& ours;
  FakeFamily& vendor;
  Weights weights;
  Inputs x;
  Problem problem;
  WeightOptions options;
  std::filesystem::path directory;
};

TEST_F(Dispatching, ATableFileDecidesAndExplainNamesIt) {
  write_table({entry(1, 8, "ours", 4, 1.5), baseline_entry(9, 32)});
  const auto linear = layer();
  ASSERT_TRUE(linear) << linear.error().message;
  const Explanation low = linear->explain(6);
  EXPECT_EQ(low.choice, "tile");
  EXPECT_EQ(low.kernel, "ours");
  EXPECT_EQ(low.table_key, "[1, 8]");
  EXPECT_THAT(low.table_file, HasSubstr(directory.string()));
  EXPECT_EQ(linear->explain(9).choice, "baseline");
  EXPECT_EQ(linear->explain(9).kernel, "vendor");
  EXPECT_EQ(low.bytes, 2 * (40 * 300 + 40 * 4)) << "both copies are counted";
  ours.clear();
  vendor.clear();
  bits(*linear);
  EXPECT_THAT(ours.launches(), SizeIs(1));
  EXPECT_THAT(vendor.launches(), SizeIs(0));
}

TEST_F(Dispatching, TheKillSwitchGivesTheBaselinesBitsAndItsCopyAlone) {
  write_table({entry(1, 64, "ours", 4, 1.5)});
  const auto expected = vendors_own_bits();
  const auto tuned = layer();
  ASSERT_TRUE(tuned) << tuned.error().message;
  ASSERT_NE(bits(*tuned), expected) << "the tile's order of products must show, or this test says nothing";
  for (const char* word : {"off", "FALSE", "0", "No"}) {
    const env::ScopedOverride off(kSwitch, word);
    const auto linear = layer();
    ASSERT_TRUE(linear) << linear.error().message;
    EXPECT_EQ(bits(*linear), expected);
    EXPECT_EQ(linear->explain(6).choice, "baseline");
    EXPECT_THAT(linear->explain(6).reason, HasSubstr("kill switch"));
    EXPECT_EQ(linear->explain(6).bytes, 40 * 300 + 40 * 4);
  }
}

TEST_F(Dispatching, TheFieldsSwitchIsHonouredWhereOursIsUnset) {
  write_table({entry(1, 64, "ours", 4, 1.5)});
  const env::ScopedOverride theirs("SGLANG_ENABLE_FP8_GEMM_CONFIG_TUNE", "off");
  {
    const env::ScopedOverride unset(kSwitch, std::nullopt);
    EXPECT_EQ(layer()->explain(6).choice, "baseline");
  }
  const env::ScopedOverride ours_on(kSwitch, "on");
  EXPECT_EQ(layer()->explain(6).choice, "tile");
}

TEST_F(Dispatching, AWeightPackedWithTheSwitchOffServesTheBaselineOnlyEver) {
  write_table({entry(1, 64, "ours", 4, 1.5)});
  std::optional<Fp8Weight> weight;
  {
    const env::ScopedOverride off(kSwitch, "off");
    weight = pack_weight(backend.device(), weights.source(), options).value();
  }
  auto linear = Fp8Linear::create(*weight);
  ASSERT_TRUE(linear);
  ASSERT_TRUE(linear->prepare(16));
  EXPECT_EQ(linear->explain(6).choice, "baseline");
  EXPECT_EQ(bits(*linear), vendors_own_bits());
}

TEST_F(Dispatching, SwitchingOffAfterPackingWithoutTheBaselinesCopyIsAnError) {
  write_table({entry(1, 64, "ours", 4, 1.5)});
  const auto weight = pack_weight(backend.device(), weights.source(), options);
  ASSERT_TRUE(weight);
  const env::ScopedOverride off(kSwitch, "off");
  const auto linear = Fp8Linear::create(*weight);
  ASSERT_FALSE(linear);
  EXPECT_EQ(linear.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(linear.error().message, HasSubstr("create the weight again"));
}

TEST_F(Dispatching, ATileThatCannotBePreparedIsReplacedByTheBaselineAndSaidOnce) {
  const test::LogCapture log;
  write_table({entry(1, 8, "ours", 4, 1.5), entry(9, 12, "ours", 8, 1.5), baseline_entry(13, 64)});
  ours.prepare_error = Error{ErrorCode::failed, "the compiler gave up"};
  const auto linear = layer();
  ASSERT_TRUE(linear) << linear.error().message;
  EXPECT_EQ(bits(*linear), vendors_own_bits());
  const Explanation explanation = linear->explain(6);
  EXPECT_EQ(explanation.choice, "baseline");
  EXPECT_EQ(explanation.table_key, "[1, 8]");
  EXPECT_THAT(explanation.reason, HasSubstr("the compiler gave up"));
  EXPECT_EQ(log.warnings_with("the compiler gave up"), 1);
}

TEST_F(Dispatching, AKernelThatFailsItsTrialIsReplacedToo) {
  write_table({entry(1, 8, "ours", 4, 1.5), baseline_entry(9, 64)});
  ours.run_error = Error{ErrorCode::failed, "illegal instruction"};
  const auto linear = layer();
  ASSERT_TRUE(linear) << linear.error().message;
  EXPECT_EQ(linear->explain(6).choice, "baseline");
  EXPECT_THAT(linear->explain(6).reason, HasSubstr("illegal instruction"));
}

TEST_F(Dispatching, WithoutTheBaselinesCopyTheHeuristicReplacesATileThatFails) {
  write_table({entry(1, 64, "ours", 4, 1.5)});
  ours.its_heuristic = [](std::int64_t) { return TileConfig{{{"tile", 7}}}; };
  FakeFamily& other = backend.add("other");
  other.us_per_row = 9.0;
  const auto weight = pack_weight(backend.device(), weights.source(), options);
  ASSERT_TRUE(weight);
  ASSERT_EQ(packed_in_layout(*weight->impl(), "vendor_layout"), nullptr);
  ours.prepare_error = Error{ErrorCode::failed, "no"};
  auto linear = Fp8Linear::create(*weight);
  ASSERT_TRUE(linear);
  EXPECT_FALSE(linear->prepare(16)) << "the heuristic picks ours again, which fails as well";
  ours.us_per_row = 10.0;
  auto second = Fp8Linear::create(*weight);
  ASSERT_TRUE(second->prepare(16));
  EXPECT_EQ(second->explain(6).choice, "heuristic");
  EXPECT_EQ(second->explain(6).kernel, "other");
}

TEST_F(Dispatching, ABaselineThatFailsWithTheSwitchOffIsAnErrorAndNothingReplacesIt) {
  vendor.prepare_error = Error{ErrorCode::unavailable, "the vendor has left"};
  const env::ScopedOverride off(kSwitch, "off");
  const auto linear = layer();
  ASSERT_FALSE(linear);
  EXPECT_EQ(linear.error().message, "the vendor has left");
}

TEST_F(Dispatching, OneKernelServesEveryIntervalOfItsConfig) {
  write_table({entry(1, 2, "ours", 4, 1.5), entry(3, 4, "ours", 8, 1.5), entry(5, 16, "ours", 4, 1.5)});
  const auto linear = layer(10);
  ASSERT_TRUE(linear) << linear.error().message;
  ASSERT_THAT(ours.prepared(), SizeIs(2));
  EXPECT_EQ(ours.prepared()[0].max_m, 10);
  EXPECT_EQ(ours.prepared()[1].max_m, 4);
  bits(*linear);
}

// On a device that compiles at run time, in parallel.
TEST_F(Dispatching, WhatAPlanNeedsIsCompiledTogetherBeforeTheFirstIsPrepared) {
  write_table(
      {entry(1, 4, "ours", 4, 1.5), entry(5, 8, "ours", 8, 1.5), entry(9, 12, "ours", 4, 1.5), baseline_entry(13, 16)});
  ASSERT_TRUE(layer(16).has_value());
  ASSERT_THAT(backend.warmed_up, SizeIs(1));
  EXPECT_THAT(backend.warmed_up[0], SizeIs(2)) << "each config once, and no vendor's";
  EXPECT_EQ(backend.cache_was_trusted, std::vector<bool>{true}) << "what is cached is read where it is loaded, once";
  backend.warmed_up.clear();
  ASSERT_TRUE(layer(4).has_value());
  EXPECT_THAT(backend.warmed_up, SizeIs(0)) << "one kernel needs no company";
}

TEST_F(Dispatching, CallsThatNoEntryServesAreCountedAndOthersAreNot) {
  const std::string log = (directory / "untuned").string();
  const env::ScopedOverride on("OCTILE_UNTUNED_LOG", log);
  write_table({entry(1, 2, "ours", 4, 1.5), baseline_entry(3, 4), entry(9, 9, "ours", 4, 1.5)});
  const auto linear = layer(8);
  ASSERT_TRUE(linear) << linear.error().message;
  for (const std::int64_t m : {1, 2, 4, 5, 6, 6, 15}) {
    const Inputs rows(m, 300);
    run_guarded(*linear, rows.view(), DType::fp32, 40);
  }
  {
    const env::ScopedOverride off(kSwitch, "off");
    bits(*layer(8));
  }
  ASSERT_TRUE(flush_untuned_log());
  const auto read = read_untuned_log(log);
  ASSERT_TRUE(read) << read.error().message;
  std::vector<std::pair<std::int64_t, std::uint64_t>> calls;
  for (const UntunedPoint& point : read->points) {
    EXPECT_EQ(point.shape, (UntunedShape{backend.info.name, 40, 300, "fp32", false}));
    calls.emplace_back(point.m, point.count);
  }
  // 15 runs as 8 and 7: what is counted is what ran.
  EXPECT_THAT(calls,
              testing::ElementsAre(testing::Pair(5, 1), testing::Pair(6, 2), testing::Pair(7, 1), testing::Pair(8, 1)));
}

TEST_F(Dispatching, AShapeWithoutATableIsSaidOnceWithTheCommandThatMakesOne) {
  const test::LogCapture log;
  ASSERT_TRUE(layer());
  ASSERT_TRUE(layer());
  EXPECT_EQ(log.count(LogLevel::info, "untuned: " + backend.info.name + " has no table for N = 40, K = 300"), 1);
  EXPECT_EQ(log.count(LogLevel::info, "octile tune --device " + backend.info.id + " --n 40 --k 300 --out-dtype fp32 makes"),
            1);
}

TEST_F(Dispatching, BrokenTableFilesLeaveTheBaselineServing) {
  const std::string name = table_file_name(test::own_table(backend.info, problem, {}).key, false);
  const std::vector<std::string> broken = {"",
                                           "{",
                                           "[]",
                                           "null",
                                           std::string("\xFF\xFE{\0}\0", 6),
                                           "{\"octile_table\": 99}",
                                           "{\"octile_table\": 1, \"entries\": [{\"m\": [5, 1]}]}",
                                           std::string(4096, '[')};
  for (const std::string& text : broken) {
    std::ofstream(directory / name, std::ios::binary) << text;
    clear_table_cache();
    const auto linear = layer();
    ASSERT_TRUE(linear) << linear.error().message;
    EXPECT_EQ(linear->explain(6).choice, "baseline");
    EXPECT_THAT(linear->explain(6).reason, HasSubstr("was left out"));
    EXPECT_EQ(bits(*linear), vendors_own_bits());
  }
}

}  // namespace
}  // namespace octile
