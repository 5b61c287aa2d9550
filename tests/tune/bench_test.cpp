// SPDX-License-Identifier: Apache-2.0
// Rows of the bench on the simulated device: every field, every row, honest intervals.
#include "octile/tune/bench.h"

#include "octile/table/table_store.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

BenchOptions bench_options(const std::string& directory) {
  BenchOptions options;
  options.device = "fake";
  options.tables = directory;
  options.shapes = {{"small", 48, 64}, {"wide", 80, 32}};
  options.m_list = {1, 4, 16};
  options.seed = 7;
  return options;
}

// `floor` is 4 times and `bare` 1.1 times as fast as the baseline.
constexpr const char* kSpeeds = "ratio:0:1.5,ratio:floor:4,ratio:bare:1.1";

Expected<BenchResult> bench_simulated(const BenchOptions& options, const std::string& scenario) {
  const SimulatedBackend backend(parse_scenario(scenario));
  return bench_with(options, simulated_hooks(backend));
}

TEST(Bench, ATunedPointShowsItsTileAgainstBaselineVendorAndFloor) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(tune_simulated(tune_options(directory.path(), ""), kSpeeds).has_value());
  const auto result = bench_simulated(bench_options(directory.path()), kSpeeds);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->device_name, "Fake_Device-generic-1t");
  EXPECT_THAT(result->missing, IsEmpty());
  ASSERT_EQ(result->rows.size(), 6U);
  for (const BenchRow& row : result->rows) {
    EXPECT_EQ(row.choice, "tile");
    EXPECT_EQ(row.chosen_kernel, "fake_tile");
    EXPECT_EQ(row.baseline_kernel, "fake_vendor");
    EXPECT_EQ(row.best_vendor_kernel, "fake matmul");
    EXPECT_EQ(row.layout, "fake_packed");
    EXPECT_EQ(row.accumulate, "fast");
    EXPECT_NEAR(row.ratio, 1.5, 0.05);
    EXPECT_NEAR(row.vs_vendor, 1.5 / 1.1, 0.05);
    EXPECT_NEAR(row.floor_share, 1.5 / 4, 0.02);
    EXPECT_LT(row.ratio_lo, row.ratio);
    EXPECT_GT(row.ratio_hi, row.ratio);
    EXPECT_LT(row.vs_vendor_lo, row.vs_vendor_hi);
    EXPECT_GE(row.rounds, 6);
    EXPECT_GT(row.rel_error, 0);
    EXPECT_NEAR(row.tflops, 2.0 * static_cast<double>(row.m * row.n * row.k) / row.chosen_us * 1e-6, 1e-12);
    EXPECT_GT(row.gbps, 0);
  }
  EXPECT_EQ(result->rows[0].shape, "small");
  EXPECT_EQ(result->rows[1].m, 4);
  EXPECT_EQ(result->rows[3].shape, "wide");
  EXPECT_NEAR(result->geomean_ratio, 1.5, 0.05);
}

TEST(Bench, ARowWhoseKernelTakesLongToPrepareGetsAsManyPassesAsOthers) {
  const TemporaryDirectory directory;
  BenchOptions options = bench_options(directory.path());
  options.shapes = {{"small", 48, 64}};
  options.m_list = {1, 2, 4, 8, 16, 32, 64, 128};
  const std::string speeds = std::string(kSpeeds) + ",ratio:3:2@8";
  TuneOptions tuning = tune_options(directory.path(), "");
  tuning.shapes = options.shapes;
  tuning.m_list = options.m_list;
  ASSERT_TRUE(tune_simulated(tuning, speeds).has_value());
  options.time_budget_s = 4;
  const SimulatedBackend backend(parse_scenario(speeds + ",prepare:3:1"));
  const auto result = bench_with(options, simulated_hooks(backend));
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_LE(backend.now_s(), 1.1 * options.time_budget_s);
  ASSERT_THAT(result->rows, SizeIs(8)) << testing::PrintToString(result->missing);
  const int slow = result->rows[3].rounds;
  for (const BenchRow& row : result->rows) {
    EXPECT_GE(2 * slow, row.rounds) << row.m;
    EXPECT_GE(row.rounds, 6) << row.m;
  }
}

TEST(Bench, TheVendorsBestIsTheFastestAlgorithmThatIsRight) {
  const TemporaryDirectory directory;
  const auto result =
      bench_simulated(bench_options(directory.path()),
                      "algorithms:4,ratio:A1:3,wrong:A1,ratio:A2:1.5,ratio:A3:1.2,ratio:A4:2,error_timed:A4,ratio:floor:4");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_THAT(result->rows, SizeIs(6)) << testing::PrintToString(result->missing);
  for (const BenchRow& row : result->rows) {
    EXPECT_EQ(row.choice, "baseline");
    EXPECT_EQ(row.best_vendor_kernel, "fake_vendor {\"v\": 2}");
    EXPECT_EQ(row.best_vendor_config.get("v", 0), 2);
    EXPECT_EQ(row.best_vendor_source_hash, "aaaa");
    EXPECT_EQ(row.best_vendor_version, "1.0");
    EXPECT_GT(row.best_vendor_rel_error, 0);
    EXPECT_NEAR(row.vs_vendor, 1 / 1.5, 0.03);
  }
}

// A pass has as many calls as make the fastest kernel's sample long enough; the floor of a wide product is no kernel to wait
// for.
TEST(Bench, AFloorThatIsAHundredTimesFasterTakesNoRowsPasses) {
  const TemporaryDirectory directory;
  BenchOptions options = bench_options(directory.path());
  options.time_budget_s = 10;
  const SimulatedBackend backend(parse_scenario("ratio:floor:100"));
  const auto result = bench_with(options, simulated_hooks(backend));
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_THAT(result->rows, SizeIs(6)) << testing::PrintToString(result->missing);
  for (const BenchRow& row : result->rows) {
    EXPECT_GE(row.rounds, 6) << row.shape << " m=" << row.m;
    EXPECT_NEAR(row.floor_share, 0.01, 0.001);
  }
}

// The simulated device under the name and kind of a GPU of `arch`; its times stay as they are.
RunHooks hooks_of_gpu(const SimulatedBackend& backend, const std::string& arch) {
  RunHooks hooks = simulated_hooks(backend);
  hooks.find_device = [&backend, arch](std::string_view) -> Expected<Device> {
    Device device{&backend, backend.info()};
    device.info.kind = DeviceKind::cuda;
    device.info.arch = arch;
    return device;
  };
  return hooks;
}

// Writes to every entry of the tables in `directory` what its kernel's launch mode is.
void set_launch_mode(const std::vector<std::string>& files, std::int64_t pdl) {
  for (const std::string& file : files) {
    std::vector<Finding> findings;
    Expected<TileTable> table = read_table(file, findings);
    ASSERT_TRUE(table.has_value()) << table.error().message;
    for (TableEntry& entry : table->entries) {
      if (entry.kernel != kBaselineKernel) {
        entry.config.set("PDL", pdl);
      }
    }
    ASSERT_TRUE(write_own_table(*table, file).has_value());
  }
  clear_table_cache();
}

TEST(Bench, ARowIsChainedWhereTheChoiceStartsEarlyAndTheDeviceAndTheRunLetIt) {
  struct Case {
    const char* arch;
    Pdl mode;
    std::int64_t config;
    bool chained;
  };
  for (const Case& c :
       {Case{"sm_90", Pdl::full, 2, true}, Case{"sm_90", Pdl::full, 1, false}, Case{"sm_90", Pdl::full, 0, false},
        Case{"sm_90", Pdl::consume, 2, false}, Case{"sm_90", Pdl::off, 2, false}, Case{"sm_89", Pdl::full, 2, false}}) {
    SCOPED_TRACE(std::string(c.arch) + " " + to_string(c.mode) + " PDL=" + std::to_string(c.config));
    const TemporaryDirectory directory;
    const SimulatedBackend backend(parse_scenario(kSpeeds));
    TuneOptions tune = tune_options(directory.path(), "");
    tune.pdl = c.mode;
    const auto tuned = tune_with(tune, hooks_of_gpu(backend, c.arch));
    ASSERT_TRUE(tuned.has_value()) << tuned.error().message;
    set_launch_mode(tuned->files, c.config);
    BenchOptions options = bench_options(directory.path());
    options.pdl = c.mode;
    const auto result = bench_with(options, hooks_of_gpu(backend, c.arch));
    ASSERT_TRUE(result.has_value()) << result.error().message;
    ASSERT_THAT(result->rows, SizeIs(6));
    for (const BenchRow& row : result->rows) {
      EXPECT_EQ(row.choice, "tile");
      EXPECT_EQ(row.chained, c.chained);
    }
  }
}

TEST(Bench, ARowOfTheBaselineOrOfACpuIsNotChained) {
  const TemporaryDirectory directory;  // No table: untuned.
  const SimulatedBackend backend(parse_scenario(""));
  const auto of_gpu = bench_with(bench_options(directory.path()), hooks_of_gpu(backend, "sm_90"));
  ASSERT_TRUE(of_gpu.has_value()) << of_gpu.error().message;
  ASSERT_THAT(of_gpu->rows, SizeIs(6));
  for (const BenchRow& row : of_gpu->rows) {
    EXPECT_EQ(row.chosen_kernel, "fake_vendor");
    EXPECT_FALSE(row.chained) << "a vendor's kernel knows no such chain";
  }
  const auto tuned = tune_simulated(tune_options(directory.path(), ""), kSpeeds);
  ASSERT_TRUE(tuned.has_value()) << tuned.error().message;
  set_launch_mode(tuned->files, 2);
  const auto of_cpu = bench_simulated(bench_options(directory.path()), kSpeeds);
  ASSERT_TRUE(of_cpu.has_value()) << of_cpu.error().message;
  ASSERT_THAT(of_cpu->rows, SizeIs(6));
  for (const BenchRow& row : of_cpu->rows) {
    EXPECT_EQ(row.choice, "tile");
    EXPECT_FALSE(row.chained);
  }
}

TEST(Bench, WhereTheBaselineIsTheChoiceTheRatioIsMeasuredBetweenTwoRunsOfIt) {
  const TemporaryDirectory directory;  // No table: untuned.
  const auto result = bench_simulated(bench_options(directory.path()), "noise:0.05");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  for (const BenchRow& row : result->rows) {
    EXPECT_EQ(row.choice, "baseline");
    EXPECT_NE(row.baseline_us, row.chosen_us) << "the choice was not measured at all";
    EXPECT_GT(row.ratio_hi, 0.97);
    EXPECT_NEAR(row.ratio, 1.0, 0.08);
  }
}

TEST(Bench, TheIntervalOfEqualKernelsHoldsOneAsOftenAsItPromises) {
  int missed = 0;
  int rows = 0;
  for (int seed = 1; seed <= 40; ++seed) {
    const TemporaryDirectory directory;
    const auto result = bench_simulated(bench_options(directory.path()), "noise:0.05,seed:" + std::to_string(seed));
    ASSERT_TRUE(result.has_value()) << result.error().message;
    for (const BenchRow& row : result->rows) {
      ++rows;
      missed += row.ratio_lo > 1 || row.ratio_hi < 1 ? 1 : 0;
    }
  }
  EXPECT_LE(missed, rows / 10) << "of " << rows;  // 5 % and four standard deviations of the count.
}

TEST(Bench, EveryRowAppearsAlsoWhereTheBudgetIsTight) {
  const TemporaryDirectory directory;
  BenchOptions options = bench_options(directory.path());
  options.shapes = {{"qkv", 24, 64}, {"o", 16, 64}, {"gate_up", 96, 64}, {"down", 64, 48}};
  options.m_list = {1, 4, 16, 64, 256};
  for (const double budget_s : {4.0, 10.0, 40.0}) {
    options.time_budget_s = budget_s;
    const SimulatedBackend backend(parse_scenario("noise:0.03,cost:40"));
    const auto result = bench_with(options, simulated_hooks(backend));
    ASSERT_TRUE(result.has_value()) << result.error().message;
    EXPECT_EQ(result->rows.size(), 20U) << "at " << budget_s << " s: " << testing::PrintToString(result->missing);
    EXPECT_LE(backend.now_s(), 1.1 * budget_s);
  }
}

TEST(Bench, WhatDoesNotFitTheBudgetIsListed) {
  const TemporaryDirectory directory;
  BenchOptions options = bench_options(directory.path());
  options.time_budget_s = 0.02;
  const auto result = bench_simulated(options, "cost:1000");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->rows.size() + result->missing.size(), 6U);
  EXPECT_THAT(result->missing, testing::Not(IsEmpty()));
}

TEST(Bench, WithoutAVendorTheRowSaysSo) {
  const TemporaryDirectory directory;
  const auto result = bench_simulated(bench_options(directory.path()), "novendor");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_EQ(result->rows.size(), 6U);
  EXPECT_EQ(result->rows[0].best_vendor_us, 0);
  EXPECT_THAT(result->rows[0].note, HasSubstr("no vendor"));
  EXPECT_EQ(result->rows[0].choice, "heuristic");
}

TEST(Bench, TheScopeGemmTakesCodes) {
  const TemporaryDirectory directory;
  BenchOptions options = bench_options(directory.path());
  options.scope = "gemm";
  const auto result = bench_simulated(options, "");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_EQ(result->rows.size(), 6U);
  EXPECT_EQ(result->rows[0].scope, "gemm");
  options.scope = "layer";
  EXPECT_THAT(bench_simulated(options, "").error().message, HasSubstr("layer"));
}

TEST(Bench, AChoiceThatFailsIsMissingWithItsReason) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(tune_simulated(tune_options(directory.path(), ""), kSpeeds).has_value());
  const auto result = bench_simulated(bench_options(directory.path()), std::string(kSpeeds) + ",wrong:0");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_TRUE(result->rows.empty());
  ASSERT_THAT(result->missing, SizeIs(6));
  EXPECT_THAT(result->missing[0], HasSubstr("wrong"));
}

// A table for "small" whose tile serves up to 16 and whose baseline serves above, and one of neither.
class BenchCurvesTest : public testing::Test {
 protected:
  void SetUp() override {
    TuneOptions tune = tune_options(directory_.path(), "");
    tune.shapes = {{"small", 48, 64}};
    tune.m_list = {1, 16, 17, 64};
    ASSERT_TRUE(tune_simulated(tune, kScenario).has_value());
  }
  BenchOptions options() const {
    BenchOptions options = bench_options(directory_.path());
    options.shapes = {{"small", 48, 64}};
    options.m_list.clear();
    options.all_m = true;
    options.max_m = 40;
    return options;
  }

  // The heuristic, v = 0, is a third faster than the baseline up to 16, and takes twice as long above.
  static constexpr const char* kScenario = "ratio:0:1.5,ratio:0:0.5@17,ratio:1:0.4,ratio:2:0.4,ratio:3:0.4,ratio:4:0.4";
  const TemporaryDirectory directory_;
};

TEST_F(BenchCurvesTest, EveryMIsMeasuredWithOurFamiliesAloneBesideTheChoice) {
  const auto result = bench_simulated(options(), kScenario);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_TRUE(result->all_m);
  EXPECT_THAT(result->missing, IsEmpty());
  EXPECT_THAT(result->left_out, IsEmpty());
  ASSERT_THAT(result->rows, SizeIs(40));
  for (std::size_t i = 0; i < result->rows.size(); ++i) {
    const BenchRow& row = result->rows[i];
    EXPECT_EQ(row.m, static_cast<std::int64_t>(i) + 1);
    EXPECT_THAT(row.own_kernel, HasSubstr("fake_tile"));
    EXPECT_EQ(row.rounds, 8);
    if (row.m <= 16) {
      EXPECT_EQ(row.choice, "tile");
      EXPECT_EQ(row.own_us, row.chosen_us) << "the choice is one of ours: one lane serves both";
      EXPECT_EQ(row.own_ratio, row.ratio);
    } else {
      EXPECT_EQ(row.choice, "baseline");
      EXPECT_NEAR(row.own_ratio, 0.5, 0.02);
      EXPECT_NEAR(row.own_vs_vendor, 0.5, 0.02);
      EXPECT_LT(row.own_ratio_lo, row.own_ratio_hi);
    }
  }
}

TEST_F(BenchCurvesTest, ABudgetLeavesACoarserGridAndSaysWhatItLeftOut) {
  BenchOptions tight = options();
  tight.time_budget_s = 6;
  const SimulatedBackend backend(parse_scenario(std::string(kScenario) + ",cost:100"));
  const auto result = bench_with(tight, simulated_hooks(backend));
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_LE(backend.now_s(), 1.1 * tight.time_budget_s);
  ASSERT_THAT(result->left_out, SizeIs(1));
  const LeftOut& left_out = result->left_out[0];
  EXPECT_EQ(left_out.shape, "small");
  EXPECT_EQ(left_out.n, 48);
  EXPECT_THAT(left_out.reason, HasSubstr("time budget"));
  EXPECT_EQ(result->rows.size() + left_out.m.size() + result->missing.size(), 40U);
  ASSERT_GE(result->rows.size(), 7U);
  std::vector<std::int64_t> measured;
  for (const BenchRow& row : result->rows) {
    measured.push_back(row.m);
  }
  for (const std::int64_t m : {1, 2, 4, 8, 16, 32, 40}) {
    EXPECT_THAT(measured, testing::Contains(m)) << "the coarse grid comes first";
  }
  EXPECT_TRUE(std::ranges::is_sorted(left_out.m));
}

TEST_F(BenchCurvesTest, AListRestrictsThem) {
  BenchOptions few = options();
  few.max_m = 0;
  few.m_list = {20, 3};
  const auto result = bench_simulated(few, kScenario);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_THAT(result->rows, SizeIs(2));
  EXPECT_EQ(result->rows[0].m, 3);
  EXPECT_GT(result->rows[1].own_us, result->rows[1].chosen_us);
  few.max_m = 30;
  EXPECT_THAT(bench_simulated(few, kScenario).error().message, HasSubstr("largest M"));
  few = options();
  few.max_m = -1;
  EXPECT_THAT(bench_simulated(few, kScenario).error().message, HasSubstr("got -1"));
}

TEST_F(BenchCurvesTest, WithoutALargestMTheyEndEarlierOnACpuAndSaySo) {
  BenchOptions open = options();
  open.max_m = 0;
  open.time_budget_s = 1;
  const auto result = bench_simulated(open, kScenario);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  ASSERT_FALSE(result->left_out.empty());
  EXPECT_THAT(result->notes, testing::Contains(HasSubstr("curves end at M = 2048 on a CPU")));
  EXPECT_LE(result->left_out[0].m.back(), 2048);
}

TEST_F(BenchCurvesTest, ATileOfOursThatFailsLeavesTheRowAndIsNoted) {
  const auto result = bench_simulated(options(), std::string(kScenario) + ",wrong:0");
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_THAT(result->missing, SizeIs(16)) << "there the tile is the choice";
  ASSERT_THAT(result->rows, SizeIs(24));
  for (const BenchRow& row : result->rows) {
    EXPECT_EQ(row.own_us, 0);
    EXPECT_THAT(row.note, HasSubstr("our own families alone: fake_tile wrong"));
    EXPECT_GT(row.ratio, 0);
  }
}

}  // namespace
}  // namespace octile::test
