// SPDX-License-Identifier: Apache-2.0
// One sweep on several devices that are alike: on simulated clocks, and with a worker process each.
#include "octile/core/format.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

namespace octile::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<std::string> fake_devices(int count) {
  std::vector<std::string> devices{"fake"};
  for (int i = 1; i < count; ++i) {
    devices.push_back(format("fake{}", i));
  }
  return devices;
}

// Devices in this process, each with a clock of its own.
class SimulatedPool {
 public:
  SimulatedPool(int devices, const std::string& scenario) {
    for (const std::string& device : fake_devices(devices)) {
      backends_[device] = std::make_unique<SimulatedBackend>(parse_scenario(scenario));
    }
  }
  RunHooks hooks() const {
    return {[this](std::string_view id) -> Expected<Device> {
              const auto found = backends_.find(std::string(id));
              return found == backends_.end() ? Expected<Device>(Error{ErrorCode::unavailable, "no such device"})
                                              : found->second->find(id);
            },
            [this](const std::string& device) { return backends_.at(device)->now_s(); }, true};
  }
  double longest_s() const {
    double longest = 0;
    for (const auto& [id, backend] : backends_) {
      longest = std::max(longest, backend->now_s());
    }
    return longest;
  }
  bool all_have_run() const {
    return std::ranges::all_of(backends_, [](const auto& item) { return item.second->runs() > 0; });
  }

 private:
  std::map<std::string, std::unique_ptr<SimulatedBackend>> backends_;
};

// Three winners and the baseline, with borders at 12, 50 and 200.
constexpr const char* kScenario =
    "noise:0,ratio:0:1.5,ratio:0:1.6@2,ratio:2:1.2,ratio:2:2.3@12,ratio:2:2.1@16,ratio:2:2.4@17,ratio:2:0.6@50,"
    "ratio:0:0.5@50,ratio:3:1.7@200,ratio:3:1.4@512";

TuneOptions model_options(const std::string& directory, int devices) {
  TuneOptions options = tune_options(directory, kScenario);
  options.shapes = {{"qkv", 24, 64}, {"o", 16, 64}, {"gate_up", 96, 64}, {"down", 64, 48}};
  options.m_list = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  options.devices = fake_devices(devices);
  return options;
}

TEST(Devices, SeveralShareTheWorkAndFindWhatOneFinds) {
  const TemporaryDirectory alone;
  const SimulatedPool one(1, kScenario);
  ASSERT_TRUE(tune_with(model_options(alone.path(), 1), one.hooks()).has_value());
  const auto expected = tables_in(alone.path());
  ASSERT_THAT(expected, SizeIs(4));
  for (const int devices : {2, 8}) {
    SCOPED_TRACE(devices);
    const TemporaryDirectory directory;
    const SimulatedPool pool(devices, kScenario);
    const auto summary = tune_with(model_options(directory.path(), devices), pool.hooks());
    ASSERT_TRUE(summary.has_value()) << summary.error().message;
    EXPECT_FALSE(summary->failure.has_value());
    EXPECT_TRUE(pool.all_have_run());
    EXPECT_GE(one.longest_s() / pool.longest_s(), devices == 2 ? 1.8 : 4.0);
    const auto found = tables_in(directory.path());
    ASSERT_THAT(found, SizeIs(4));
    for (const auto& [name, table] : found) {
      SCOPED_TRACE(name);
      expect_same_entries(expected.at(name), table);
    }
  }
}

TEST(Devices, TheBudgetIsThatOfTheRunAndBuysMorePointsOnMoreDevices) {
  constexpr const char* kSlow = "ratio:0:1.6,ratio:1:1.5,noise:0.03,cost:40";
  std::vector<std::ptrdiff_t> measured;
  for (const int devices : {1, 4}) {
    const TemporaryDirectory directory;
    const SimulatedPool pool(devices, kSlow);
    TuneOptions options = model_options(directory.path(), devices);
    options.time_budget_s = 8;
    const auto summary = tune_with(options, pool.hooks());
    ASSERT_TRUE(summary.has_value()) << summary.error().message;
    EXPECT_LE(pool.longest_s(), 1.1 * options.time_budget_s) << devices;
    measured.push_back(std::ranges::count(summary->points, PointStatus::tile, &TunePoint::status));
    for (const TunePoint& point : summary->points) {
      EXPECT_TRUE(point.status == PointStatus::tile || point.m > 8) << point.shape.name << " m=" << point.m;
    }
  }
  EXPECT_LT(measured[0], 40);
  EXPECT_GT(measured[1], measured[0]);
}

TEST(Devices, ThoseThatDifferAreRefusedByNameAndGrouped) {
  const std::string scenario = "sms:fake2:114,sms:fake4:114";
  const SimulatedBackend backend(parse_scenario(scenario));
  const RunHooks hooks = simulated_hooks(backend);
  const TemporaryDirectory directory;
  TuneOptions options = tune_options(directory.path(), scenario);
  options.devices = {"fake", "fake1", "fake2"};
  const auto summary = tune_with(options, hooks);
  ASSERT_FALSE(summary.has_value());
  EXPECT_THAT(summary.error().message, HasSubstr("sm_count of fake is 1, of fake2 114"));
  EXPECT_EQ(backend.runs(), 0);

  const auto groups = group_devices_with({"fake2", "fake", "fake1", "fake4"}, options, hooks);
  ASSERT_TRUE(groups.has_value());
  EXPECT_THAT(*groups, ElementsAre(ElementsAre("fake2", "fake4"), ElementsAre("fake", "fake1")));
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"fake", "fake"}, {"fake", "fake9"}}) {
    const auto refused = group_devices_with(wrong, options, hooks);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message, HasSubstr(wrong[1]));
  }
}

// --- With worker processes. ---

TuneOptions process_options(const std::string& directory, const std::string& scenario) {
  TuneOptions options = tune_options(directory, scenario);
  options.devices = {"fake", "fake1"};
  options.m_list = {1, 2, 4, 8, 16};
  return options;
}

void expect_all_tiles(const TuneSummary& summary) {
  EXPECT_FALSE(summary.failure.has_value()) << *summary.failure;
  EXPECT_THAT(summary.points, SizeIs(10));
  for (const TunePoint& point : summary.points) {
    EXPECT_EQ(point.status, PointStatus::tile) << point.shape.name << " m=" << point.m << ": " << point.reason;
  }
}

int journals_in(const std::string& directory) {
  return static_cast<int>(std::ranges::count_if(std::filesystem::directory_iterator(directory),
                                                [](const auto& file) { return file.path().extension() == ".journal"; }));
}

TEST(Devices, EachHasAWorkerAndProgressShowsWhatItIsAt) {
  const TemporaryDirectory directory;
  const std::string scenario = "ratio:0:1.5,cost:100,sleep:1";
  TuneOptions options = process_options(directory.path(), scenario);
  bool both_at_work = false;
  options.progress = [&](const TuneProgress& progress) {
    both_at_work = both_at_work ||
                   (progress.doing.starts_with("2 devices: fake ") && progress.doing.find(", fake1 ") != std::string::npos &&
                    std::ranges::count(progress.doing, '=') == 2);
  };
  const auto summary = tune_in_processes(options, scenario);
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  expect_all_tiles(*summary);
  EXPECT_TRUE(both_at_work);
  EXPECT_THAT(tables_in(directory.path()), SizeIs(2));
  EXPECT_EQ(journals_in(directory.path()), 0);
}

TEST(Devices, CandidatesThatKillTheirWorkersAreLeftOutOnAllDevices) {
  const TemporaryDirectory directory;
  const std::string scenario = "ratio:0:1.2,ratio:1:1.9,ratio:3:1.5,abort:1,abort_timed:4";
  const auto summary = tune_in_processes(process_options(directory.path(), scenario), scenario);
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  expect_all_tiles(*summary);
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.config.get("v", -1), 3) << point.shape.name << " m=" << point.m;
  }
  EXPECT_THAT(summary->notes, IsEmpty()) << "no device left";
}

TEST(Devices, OneThatDisappearsLeavesTheRunWhichGoesOnWithoutIt) {
  const TemporaryDirectory directory;
  const std::string gone = directory.file("gone");
  const std::string scenario = "ratio:0:1.5,cost:100,sleep:1,gone:fake1:" + gone;
  TuneOptions options = process_options(directory.path(), scenario);
  options.progress = [&](const TuneProgress& progress) {
    if (progress.done == 3) {
      std::ofstream(gone) << "now";
    }
  };
  const auto summary = tune_in_processes(options, "ratio:0:1.5");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  expect_all_tiles(*summary);
  EXPECT_THAT(summary->failed, IsEmpty()) << "no kernel is to blame for a device that is gone";
  ASSERT_THAT(summary->notes, SizeIs(1));
  EXPECT_THAT(summary->notes[0], HasSubstr("fake1 left the run"));
  for (const auto& [name, table] : tables_in(directory.path())) {
    ASSERT_THAT(table.entries, SizeIs(1));
    EXPECT_EQ(table.entries[0].m_lo, 1);
    EXPECT_EQ(table.entries[0].m_hi, 16);
  }
}

TEST(Devices, OneThatCannotBeOpenedIsLeftOutFromTheStart) {
  const TemporaryDirectory directory;
  const std::string gone = directory.write("gone", "from the start");
  const auto summary = tune_in_processes(process_options(directory.path(), "ratio:0:1.5,gone:fake:" + gone), "ratio:0:1.5");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  expect_all_tiles(*summary);
  ASSERT_THAT(summary->notes, SizeIs(1));
  EXPECT_THAT(summary->notes[0], testing::AllOf(HasSubstr("fake left the run"), HasSubstr("no device fake")));
}

TEST(Devices, WhenAllDisappearTheRunFailsAndItsJournalGoesOn) {
  const TemporaryDirectory directory;
  const std::string gone = directory.file("gone");
  const std::string scenario = "ratio:0:1.5,cost:100,sleep:1,gone:fake:" + gone + ",gone:fake1:" + gone;
  TuneOptions options = process_options(directory.path(), scenario);
  std::int64_t most_done = 0;
  options.progress = [&](const TuneProgress& progress) {
    most_done = std::max(most_done, progress.done);
    if (progress.done == 3) {
      std::ofstream(gone) << "now";
    }
  };
  const auto failed = tune_in_processes(options, "ratio:0:1.5");
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message, testing::AllOf(HasSubstr("every device left"), HasSubstr("--resume")));
  EXPECT_EQ(journals_in(directory.path()), 1);

  std::filesystem::remove(gone);
  options.resume = true;
  options.progress = nullptr;
  const auto resumed = tune_in_processes(options, "ratio:0:1.5");
  ASSERT_TRUE(resumed.has_value()) << resumed.error().message;
  expect_all_tiles(*resumed);
  EXPECT_THAT(resumed->failed, IsEmpty());
  EXPECT_GE(std::ranges::count(resumed->points, true, &TunePoint::resumed), most_done);
  EXPECT_EQ(journals_in(directory.path()), 0);
}

TEST(Devices, AnInterruptStopsAllAndNothingIsMeasuredTwiceAfterIt) {
  const TemporaryDirectory directory;
  const std::string scenario = "ratio:0:1.5,cost:100,sleep:1";
  TuneOptions options = process_options(directory.path(), scenario);
  std::int64_t most_done = 0;
  options.progress = [&](const TuneProgress& progress) {
    most_done = std::max(most_done, progress.done);
    if (progress.done == 4 && !progress.finished) {
      ::raise(SIGINT);
    }
  };
  const auto interrupted = tune_in_processes(options, scenario);
  ASSERT_TRUE(interrupted.has_value()) << interrupted.error().message;
  EXPECT_EQ(interrupted->interrupted_by, SIGINT);
  EXPECT_FALSE(interrupted->journal.empty());
  EXPECT_THAT(tables_in(directory.path()), IsEmpty());
  options.progress = nullptr;
  options.resume = true;
  const auto resumed = tune_in_processes(options, scenario);
  ASSERT_TRUE(resumed.has_value()) << resumed.error().message;
  expect_all_tiles(*resumed);
  EXPECT_EQ(std::ranges::count(resumed->points, true, &TunePoint::resumed), most_done);
}

}  // namespace
}  // namespace octile::test
