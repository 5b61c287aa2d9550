// SPDX-License-Identifier: Apache-2.0
// Compilers beside a run, with real worker processes on a simulated GPU whose log says what was compiled and prepared when.
#include "octile/tune/compile_ahead.h"

#include "octile/core/format.h"
#include "support/log_capture.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace octile::test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

// "small" has 48 channels, "wide" 80; their points take turns, M = 1 of "small" first.
class CompileAheadTest : public testing::Test {
 protected:
  std::string scenario(const std::string& more) const { return "ratio:1:1.5,compiles:" + log_ + "," + more; }
  Expected<TuneSummary> tune(const std::string& more, TuneOptions options = {}) {
    const TuneOptions defaults = tune_options(directory_.file("tables"), scenario(more));
    options.device = defaults.device;
    options.tables = defaults.tables;
    options.shapes = defaults.shapes;
    options.m_list = defaults.m_list;
    options.seed = defaults.seed;
    options.candidate_timeout_s = defaults.candidate_timeout_s;
    options.worker_command = defaults.worker_command;
    return tune_in_processes(options, scenario(more));
  }
  // What was prepared before it was compiled, or was not compiled at all.
  std::vector<std::string> prepared_first() const {
    std::vector<std::string> early;
    const std::vector<std::string> lines = lines_of(log_);
    for (auto line = lines.begin(); line != lines.end(); ++line) {
      const std::string name = line->substr(line->find(' '));
      if (line->starts_with("prepared") && std::find(lines.begin(), line, "compiled" + name) == line) {
        early.push_back(*line);
      }
    }
    return early;
  }

  TemporaryDirectory directory_;
  std::string log_ = directory_.file("log");
};

void expect_all_tiles(const Expected<TuneSummary>& summary) {
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_THAT(summary->points, SizeIs(6));
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.status, PointStatus::tile) << point.shape.name << " m=" << point.m;
    EXPECT_EQ(point.config.get("v", -1), 1) << point.shape.name << " m=" << point.m;
  }
}

TEST(CompileList, HoldsEachKernelOnceInOrder) {
  const SimulatedBackend backend{Scenario{}};
  const KernelFamily& family = *backend.families().front();
  CompileList list;
  EXPECT_THAT(list.items(), IsEmpty());
  for (const std::int64_t v : {2, 0, 2}) {
    list.add({"a", 48, 64}, family, TileConfig{{{"v", v}}});
  }
  list.add({"another name", 48, 64}, family, TileConfig{{{"v", 0}}});
  list.add({"a", 80, 64}, family, TileConfig{{{"v", 0}}});
  ASSERT_THAT(list.items(), SizeIs(3));
  EXPECT_EQ(list.items()[0].spec.config.get("v", -1), 2);
  EXPECT_EQ(list.items()[1].spec.config.get("v", -1), 0);
  EXPECT_EQ(list.items()[1].n, 48);
  EXPECT_EQ(list.items()[2].n, 80);
  EXPECT_EQ(list.items()[2].spec.kernel, "fake_tile");
}

TEST_F(CompileAheadTest, OnlyTheFirstPointsKernelsAreWaitedForBeforeSomethingIsMeasured) {
  const std::string measured = directory_.file("measured");
  TuneOptions options;
  // Those of the second weight come once a point of the first was measured, and not before.
  options.progress = [&](const TuneProgress& progress) {
    if (progress.done == 1) {
      std::ofstream(measured) << "a point";
    }
  };
  const LogCapture log;
  expect_all_tiles(tune("compile_waits:80:" + measured, options));
  EXPECT_THAT(prepared_first(), IsEmpty());
  EXPECT_THAT(lines_of(log_), testing::IsSupersetOf({"compiled 48 B", "compiled 48 0", "compiled 80 B", "compiled 80 4"}));
  EXPECT_EQ(log.count(LogLevel::warning, "compiling ahead"), 0);
}

TEST_F(CompileAheadTest, SeveralDevicesWaitForOneCompiler) {
  TuneOptions options;
  options.devices = {"fake", "fake1"};
  expect_all_tiles(tune("noise:0.01", options));
  EXPECT_THAT(prepared_first(), IsEmpty());
  const std::vector<std::string> lines = lines_of(log_);
  EXPECT_EQ(std::ranges::count(lines, "compiled 48 1"), 1);
  EXPECT_EQ(std::ranges::count(lines, "compiled 80 1"), 1);
}

TEST_F(CompileAheadTest, TablesAreThoseOfARunThatCompilesNothingAheadWhateverBecomesOfTheCompiler) {
  expect_all_tiles(tune("noise:0.01"));
  const std::map<std::string, TileTable> with = tables_in(directory_.file("tables"));
  ASSERT_THAT(with, SizeIs(2));
  std::filesystem::remove_all(directory_.file("tables"));
  std::filesystem::remove(log_);
  const LogCapture log;
  const auto summary = tune("compile_abort:0");
  expect_all_tiles(summary);
  EXPECT_THAT(summary->failed, IsEmpty()) << "no candidate is to blame for the compiler's end";
  EXPECT_EQ(log.count(LogLevel::warning, "signal 6"), 1);
  EXPECT_THAT(lines_of(log_), Not(Contains(HasSubstr("compiled 80"))));
  const std::map<std::string, TileTable> without = tables_in(directory_.file("tables"));
  ASSERT_THAT(without, SizeIs(2));
  for (const auto& [name, table] : with) {
    expect_same_entries(table, without.at(name));
  }
}

TEST_F(CompileAheadTest, WhatDoesNotComeInItsShareOfTheBudgetIsCompiledWhereItIsMeasured) {
  TuneOptions options;
  options.time_budget_s = 5;
  const std::string never = directory_.file("never");
  expect_all_tiles(tune(format("compile_waits:48:{},compile_waits:80:{}", never, never), options));
  EXPECT_THAT(lines_of(log_), Not(Contains(HasSubstr("compiled"))));
}

TEST_F(CompileAheadTest, ACandidateThatDoesNotCompileIsRecordedWhereItIsMeasured) {
  const auto summary = tune("throw:2");
  expect_all_tiles(summary);
  ASSERT_FALSE(summary->failed.empty());
  for (const FailedCandidate& failed : summary->failed) {
    EXPECT_EQ(failed.kind, "error");
    EXPECT_THAT(failed.reason, HasSubstr("cannot prepare"));
  }
}

TEST_F(CompileAheadTest, ABenchMeasuresNothingBesideCompilers) {
  expect_all_tiles(tune("noise:0.01"));
  std::filesystem::remove(log_);
  const std::string text = scenario("noise:0.01");
  const TuneOptions like = tune_options(directory_.file("tables"), text);
  BenchOptions options;
  options.device = like.device;
  options.tables = like.tables;
  options.shapes = like.shapes;
  options.m_list = like.m_list;
  options.worker_command = like.worker_command;
  const SimulatedBackend backend(parse_scenario(text));
  const auto result = bench_with(options, process_hooks(backend));
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_THAT(result->rows, SizeIs(6));
  EXPECT_THAT(lines_of(log_), testing::IsSupersetOf({"compiled 48 1", "prepared 48 1", "compiled 80 1", "prepared 80 1"}));
  EXPECT_TRUE(
      std::ranges::is_partitioned(lines_of(log_), [](const std::string& line) { return line.starts_with("compil"); }));
}

// The compiler alone, as a run has it.
class CompilerTest : public CompileAheadTest {
 protected:
  void start(const std::string& more, std::vector<std::string> command = {}) {
    const std::string text = scenario(more);
    backend_ = std::make_unique<SimulatedBackend>(parse_scenario(text));
    RunOptions options;
    options.device = "fake";
    options.candidate_timeout_s = 20;
    options.worker_command = command.empty() ? worker_command(text) : std::move(command);
    const RunHooks hooks = process_hooks(*backend_);
    compiler_.emplace(options, hooks, measure_settings(options, 3),
                      CompileAhead::Links{&turn_, &changed_, hooks.clock_s("fake")}, 1);
  }
  void add(std::int64_t v) {
    const std::lock_guard lock(turn_);
    compiler_->add({"small", 48, 64}, *backend_->families().front(), TileConfig{{{"v", v}}});
  }
  void wait_for(std::size_t count) {
    std::unique_lock lock(turn_);
    changed_.wait(lock, [&] { return compiler_->has(count); });
  }

  std::unique_ptr<SimulatedBackend> backend_;
  std::mutex turn_;
  std::condition_variable changed_;
  std::optional<CompileAhead> compiler_;
};

TEST_F(CompilerTest, TakesMoreOnceItIsThroughWithTheFirst) {
  start("noise:0");
  add(0);
  add(1);
  wait_for(2);
  EXPECT_EQ(lines_of(log_).back(), "compiled 48 1");
  add(2);
  wait_for(3);
  EXPECT_EQ(lines_of(log_).back(), "compiled 48 2");
}

TEST_F(CompilerTest, ThatCannotBeStartedHasAllThatItEverWillAndSaysWhy) {
  const LogCapture log;
  start("noise:0", {"/nonexistent/octile"});
  add(0);
  wait_for(1);
  EXPECT_EQ(log.count(LogLevel::warning, "compiling ahead failed: cannot start the worker \"/nonexistent/octile\""), 1);
  EXPECT_EQ(log.count(LogLevel::warning, "one at a time"), 1);
}

TEST_F(CompilerTest, IsGivenUpInTheMiddleOfAKernel) {
  const LogCapture log;
  start("compile_waits:48:" + directory_.file("never"));
  add(0);
  while (lines_of(log_).empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  compiler_.reset();
  EXPECT_THAT(log.all(), IsEmpty()) << "it neither died nor hung";
  EXPECT_THAT(lines_of(log_), testing::ElementsAre("compiling 48 0"));
}

TEST_F(CompilerTest, IsGivenUpBeforeItHasAnythingToDo) {
  const LogCapture log;
  start("noise:0");
  compiler_.reset();
  start("noise:0");
  add(0);
  compiler_.reset();
  EXPECT_THAT(log.all(), IsEmpty());
}

}  // namespace
}  // namespace octile::test
