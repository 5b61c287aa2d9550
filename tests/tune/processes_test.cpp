// SPDX-License-Identifier: Apache-2.0
// The tuner as processes: killed at any moment and resumed, interrupted, two at once, candidates that crash and hang; and
// no process left behind.
#include "octile/core/format.h"
#include "octile/table/table_store.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace octile::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Starts this test program as a tuner.
pid_t start_tuner(const std::string& scenario, const std::string& directory, bool resume,
                  const std::vector<std::string>& m_list = {}) {
  std::vector<std::string> arguments{"/proc/self/exe", "tune", scenario, directory};
  arguments.insert(arguments.end(), m_list.begin(), m_list.end());
  if (resume) {
    arguments.emplace_back("--resume");
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  pid_t pid = -1;
  EXPECT_EQ(::posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ), 0);
  return pid;
}

int wait_for(pid_t pid) {
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// Worker processes of this test: their arguments hold the scenario, which holds a mark that is unique to the test.
int workers_with(const std::string& mark) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const std::string words = std::string("worker") + '\0';
    count += text.find(words) != std::string::npos && text.find(mark) != std::string::npos ? 1 : 0;
  }
  return count;
}

bool no_worker_is_left(const std::string& mark) {
  for (int i = 0; i < 200; ++i) {
    if (workers_with(mark) == 0) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

std::vector<std::string> table_files(const std::string& directory) {
  std::vector<std::string> files;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    if (file.path().extension() == ".json") {
      files.push_back(file.path());
    }
  }
  return files;
}

void expect_whole_tables(const std::string& directory, std::size_t count) {
  const std::vector<std::string> files = table_files(directory);
  EXPECT_THAT(files, SizeIs(count));
  for (const std::string& file : files) {
    std::vector<Finding> findings;
    Expected<TileTable> table = read_table(file, findings);
    ASSERT_TRUE(table.has_value()) << table.error().message;
    EXPECT_THAT(findings, IsEmpty());
    ASSERT_FALSE(table->entries.empty());
    EXPECT_EQ(table->entries.front().m_lo, 1);
    EXPECT_EQ(table->entries.back().m_hi, 16);
  }
}

TEST(Processes, ATunerKilledAtAnyMomentLosesAtMostOnePointAndResumesToWholeTables) {
  std::mt19937_64 random(std::random_device{}());
  for (int trial = 0; trial < 14; ++trial) {
    // Also with two devices, of which the tuner has a worker each.
    const std::vector<std::string> devices =
        trial % 2 == 0 ? std::vector<std::string>{} : std::vector<std::string>{"--devices"};
    const TemporaryDirectory directory;
    const std::string mark = "seed:" + std::to_string(random() % 1'000'000'000);
    const std::string scenario = "ratio:0:1.5,cost:100,sleep:1," + mark;
    const pid_t tuner = start_tuner(scenario, directory.path(), false, devices);
    const auto delay = std::chrono::milliseconds(random() % 600);
    SCOPED_TRACE("killed after " + std::to_string(delay.count()) + " ms, " + mark);
    std::this_thread::sleep_for(delay);
    ::kill(tuner, SIGKILL);
    wait_for(tuner);
    EXPECT_TRUE(no_worker_is_left(mark));
    EXPECT_EQ(wait_for(start_tuner(scenario, directory.path(), true, devices)), 0);
    expect_whole_tables(directory.path(), 2);
    EXPECT_TRUE(no_worker_is_left(mark));
    for (const auto& file : std::filesystem::directory_iterator(directory.path())) {
      EXPECT_NE(file.path().extension(), ".journal") << "the journal goes once the tables are written";
    }
  }
}

TEST(Processes, AResumedRunMeasuresNothingTwice) {
  const TemporaryDirectory directory;
  const std::string scenario = "ratio:0:1.5";
  TuneOptions options = tune_options(directory.path(), scenario);
  int seen = 0;
  options.progress = [&](const TuneProgress& progress) {
    if (progress.done == 4 && seen++ == 0) {
      ::raise(SIGTERM);
    }
  };
  const auto interrupted = tune_in_processes(options, scenario);
  ASSERT_TRUE(interrupted.has_value()) << interrupted.error().message;
  EXPECT_EQ(interrupted->interrupted_by, SIGTERM);
  EXPECT_FALSE(interrupted->journal.empty());
  EXPECT_THAT(table_files(directory.path()), IsEmpty());
  options.progress = nullptr;
  options.resume = true;
  const auto resumed = tune_in_processes(options, scenario);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().message;
  int from_journal = 0;
  for (const TunePoint& point : resumed->points) {
    from_journal += point.resumed ? 1 : 0;
    EXPECT_EQ(point.status, PointStatus::tile);
  }
  EXPECT_EQ(from_journal, 4);
  expect_whole_tables(directory.path(), 2);
}

TEST(Processes, AnInterruptLeavesTheJournalAndTheStatusOfTheSignal) {
  for (const int signal_number : {SIGINT, SIGTERM}) {
    const TemporaryDirectory directory;
    const std::string mark = "seed:" + std::to_string(900'000'000 + signal_number);
    const pid_t tuner =
        start_tuner("ratio:0:1.5,cost:100,sleep:20," + mark, directory.path(), false,
                    signal_number == SIGINT ? std::vector<std::string>{} : std::vector<std::string>{"--devices"});
    std::this_thread::sleep_for(std::chrono::milliseconds(800));
    ::kill(tuner, signal_number);
    EXPECT_EQ(wait_for(tuner), 128 + signal_number);
    EXPECT_TRUE(no_worker_is_left(mark));
  }
}

TEST(Processes, ASignalWhileKernelsAreCompiledEndsTheRunAndItsCompilers) {
  for (const int signal_number : {SIGINT, SIGTERM, SIGKILL}) {
    for (const std::int64_t waits : {48, 80}) {  // Nothing is measured yet, or some of it.
      const TemporaryDirectory directory;
      const std::string log = directory.file("log");
      const std::string mark = "seed:" + std::to_string(800'000'000 + signal_number);
      const pid_t tuner =
          start_tuner(format("ratio:0:1.5,compiles:{},compile_waits:{}:{},{}", log, waits, directory.file("never"), mark),
                      directory.path(), false);
      const std::string last = format("compiling {} ", waits);
      while (!std::filesystem::exists(log) || read_text(log).find(last) == std::string::npos) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      ::kill(tuner, signal_number);
      EXPECT_EQ(wait_for(tuner), signal_number == SIGKILL ? -SIGKILL : 128 + signal_number);
      EXPECT_TRUE(no_worker_is_left(mark));
      EXPECT_THAT(table_files(directory.path()), IsEmpty());
    }
  }
}

TEST(Processes, TwoTunersOnOneDirectoryKeepBothResults) {
  const TemporaryDirectory directory;
  const auto tune_points = [&](std::vector<std::int64_t> m_list) {
    TuneOptions options = tune_options(directory.path(), "ratio:0:1.5");
    options.shapes = {{"small", 48, 64}};
    options.m_list = std::move(m_list);
    // Threads of one process share the signal handlers; the second only looks on.
    const auto summary = tune_in_processes(options, "ratio:0:1.5");
    EXPECT_TRUE(summary.has_value()) << (summary ? "" : summary.error().message);
  };
  std::thread first([&] { tune_points({1, 2}); });
  std::thread second([&] { tune_points({64, 128}); });
  first.join();
  second.join();
  const std::vector<std::string> files = table_files(directory.path());
  ASSERT_THAT(files, SizeIs(1));
  std::vector<Finding> findings;
  const TileTable table = read_table(files[0], findings).value();
  for (const std::int64_t m : {1, 2, 64, 128}) {
    EXPECT_NE(table.find(m), nullptr) << "m = " << m;
  }
  EXPECT_EQ(table.find(16), nullptr);
}

TEST(Processes, TwoTunerProcessesOnOneDirectoryKeepBothResults) {
  for (int trial = 0; trial < 3; ++trial) {
    const TemporaryDirectory directory;
    const pid_t first = start_tuner("ratio:0:1.5,cost:100,sleep:1", directory.path(), false, {"1", "2"});
    const pid_t second = start_tuner("ratio:0:1.5,cost:100,sleep:1", directory.path(), false, {"64", "128"});
    EXPECT_EQ(wait_for(first), 0);
    EXPECT_EQ(wait_for(second), 0);
    const std::vector<std::string> files = table_files(directory.path());
    ASSERT_THAT(files, SizeIs(2)) << "one for each weight";
    for (const std::string& file : files) {
      std::vector<Finding> findings;
      const TileTable table = read_table(file, findings).value();
      for (const std::int64_t m : {1, 2, 64, 128}) {
        EXPECT_NE(table.find(m), nullptr) << file << " m = " << m;
      }
      EXPECT_EQ(table.find(16), nullptr);
    }
  }
}

TEST(Processes, ShardsAtOnceInOneDirectoryMakeWholeTables) {
  const TemporaryDirectory directory;
  std::vector<pid_t> shards;
  for (const char* shard : {"--shard-1-of-3", "--shard-2-of-3", "--shard-3-of-3"}) {
    shards.push_back(
        start_tuner("ratio:0:1.5,cost:100,sleep:1", directory.path(), false, {"1", "2", "4", "8", "16", shard}));
  }
  for (const pid_t shard : shards) {
    EXPECT_EQ(wait_for(shard), 0);
  }
  expect_whole_tables(directory.path(), 2);
  for (const std::string& file : table_files(directory.path())) {
    std::vector<Finding> findings;
    EXPECT_THAT(read_table(file, findings)->entries, SizeIs(1)) << "one winner: what lies between shards is joined";
  }
  for (const auto& file : std::filesystem::directory_iterator(directory.path())) {
    EXPECT_NE(file.path().extension(), ".journal");
    EXPECT_NE(file.path().extension(), ".old") << "no shard sets another's journal aside";
  }
}

TEST(Processes, CandidatesThatCrashOrHangAreRecordedAndTheRunGoesOn) {
  const TemporaryDirectory directory;
  const std::string scenario = "ratio:0:1.2,ratio:1:1.9,ratio:2:1.9,ratio:3:1.5,abort:1,hang:2,abort_timed:4";
  TuneOptions options = tune_options(directory.path(), scenario);
  options.candidate_timeout_s = 2;
  const auto summary = tune_in_processes(options, scenario);
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_FALSE(summary->failure.has_value()) << *summary->failure;
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.status, PointStatus::tile);
    EXPECT_EQ(point.config.get("v", -1), 3) << point.shape.name << " m=" << point.m;
  }
  int hangs = 0;
  int crashes = 0;
  for (const FailedCandidate& failed : summary->failed) {
    hangs += failed.kind == "hang" ? 1 : 0;
    crashes += failed.kind == "crash" ? 1 : 0;
  }
  EXPECT_EQ(hangs, 1) << "what hung once is not tried again anywhere";
  EXPECT_EQ(crashes, 4) << "once for each of two candidates and two weights";
}

TEST(Processes, AFamilyThatCrashesAtEveryCandidateIsAFailure) {
  const TemporaryDirectory directory;
  const std::string scenario = "abort:0,abort:1,abort:2,abort:3,abort:4";
  const auto summary = tune_in_processes(tune_options(directory.path(), scenario), scenario);
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  ASSERT_TRUE(summary->failure.has_value());
  EXPECT_THAT(*summary->failure, HasSubstr("fake_tile failed at every candidate"));
  EXPECT_THAT(*summary->failure, HasSubstr("signal 6"));
}

TEST(Processes, AWorkerWhoseParentIsGoneEndsAtOnce) {
  // Told of a parent that is not its own, as if that had died before the worker could ask to die with it.
  std::vector<std::string> arguments{"/proc/self/exe", "worker", "noise:0", "--parent", "1"};
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  pid_t pid = -1;
  ASSERT_EQ(::posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ), 0);
  EXPECT_EQ(wait_for(pid), 1);
}

}  // namespace
}  // namespace octile::test
