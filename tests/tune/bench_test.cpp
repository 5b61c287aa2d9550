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

}  // namespace
}  // namespace octile::test
