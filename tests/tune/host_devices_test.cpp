// SPDX-License-Identifier: Apache-2.0
// Devices of several hosts in one run: which are one and the same, which are alike; and whole runs whose ranks are threads
// of this process that send each other letters.
#include "octile/tune/host_devices.h"

#include "octile/core/format.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <mutex>
#include <thread>

namespace octile::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

HostDevice seen_by(int rank, const std::string& host, const std::string& id, const std::string& uuid = "") {
  return {rank, host, id, uuid.empty() ? host + "/" + id : uuid, "", {{"arch", "sm_90"}}};
}

std::vector<std::string> names_of(const std::vector<HostDevice>& devices) {
  std::vector<std::string> names;
  for (const HostDevice& device : devices) {
    names.push_back(device.name);
  }
  return names;
}

TEST(HostDevices, ADeviceThatSeveralRanksSeeIsDrivenByTheFirst) {
  const auto devices = each_once({seen_by(0, "a", "cuda:0", "GPU-1"), seen_by(0, "a", "cuda:1", "GPU-2"),
                                  seen_by(2, "b", "cuda:0", "GPU-3"), seen_by(1, "a", "cuda:0", "GPU-1"),
                                  seen_by(1, "a", "cuda:1", "GPU-2"), seen_by(3, "b", "cuda:0", "GPU-3")});
  EXPECT_THAT(names_of(devices), ElementsAre("cuda:0", "cuda:1", "b/cuda:0"));
  EXPECT_EQ(devices[2].rank, 2);
}

TEST(HostDevices, RanksThatAreShownOneGpuEachAllDriveTheirs) {
  const auto devices = each_once(
      {seen_by(0, "a", "cuda:0", "GPU-1"), seen_by(1, "a", "cuda:0", "GPU-2"), seen_by(2, "a", "cuda:0", "GPU-3")});
  EXPECT_THAT(names_of(devices), ElementsAre("cuda:0", "a/cuda:0", "a/cuda:0#2"));
}

TEST(HostDevices, ACpuIsOnePerHost) {
  const auto devices = each_once({seen_by(0, "a", "cpu"), seen_by(1, "a", "cpu"), seen_by(2, "b", "cpu")});
  EXPECT_THAT(names_of(devices), ElementsAre("cpu", "b/cpu"));
}

TEST(HostDevices, ThoseThatAreAlikeMakeAGroupThatBeginsWithOneOfRankZero) {
  std::vector<HostDevice> devices{seen_by(0, "a", "cuda:0"), seen_by(0, "a", "cuda:1"), seen_by(1, "b", "cuda:0"),
                                  seen_by(1, "b", "cuda:1")};
  devices[1].keys["arch"] = devices[3].keys["arch"] = "sm_89";
  const auto groups = group_by_keys(each_once(devices));
  ASSERT_TRUE(groups.has_value()) << groups.error().message;
  EXPECT_THAT(*groups, ElementsAre(ElementsAre("cuda:0", "b/cuda:0"), ElementsAre("cuda:1", "b/cuda:1")));
}

TEST(HostDevices, OneThatRankZeroHasNoneLikeIsAnErrorWithTheKeyThatDiffers) {
  std::vector<HostDevice> devices{seen_by(0, "a", "cuda:0"), seen_by(1, "b", "cuda:0")};
  devices[1].keys["arch"] = "sm_100";
  const auto groups = group_by_keys(each_once(devices));
  ASSERT_FALSE(groups.has_value());
  EXPECT_THAT(groups.error().message,
              AllOf(HasSubstr("none like b/cuda:0"), HasSubstr("arch of cuda:0 is sm_90, of b/cuda:0 sm_100")));
}

// Letters between threads.
class Mail {
 public:
  Postbox postbox(int rank, int size) {
    Postbox postbox;
    postbox.rank = rank;
    postbox.size = size;
    postbox.poll_interval_s = 2e-4;
    postbox.send = [this, rank](int to, const std::string& text) -> Expected<void> {
      const std::lock_guard lock(mutex_);
      if (fails_) {
        return Error{ErrorCode::failed, "the line is down"};
      }
      boxes_[to].push_back({rank, text});
      return {};
    };
    postbox.receive = [this, rank]() -> Expected<std::vector<Letter>> {
      const std::lock_guard lock(mutex_);
      if (fails_) {
        return Error{ErrorCode::failed, "the line is down"};
      }
      return std::exchange(boxes_[rank], {});
    };
    return postbox;
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    fails_ = true;
  }

 private:
  std::mutex mutex_;
  bool fails_ = false;
  std::map<int, std::vector<Letter>> boxes_;
};

// Ranks 1 and up, each with the device "fake<rank>" of the scenario.
class Lenders {
 public:
  Lenders(Mail& mail, int size, const TuneOptions& options, const std::string& scenario) {
    for (int rank = 1; rank < size; ++rank) {
      threads_.emplace_back([=, postbox = mail.postbox(rank, size)] {
        const SimulatedBackend backend(parse_scenario(scenario));
        // Fails where the line is down, which some tests want.
        static_cast<void>(serve_devices(postbox, {format("fake{}", rank)}, options, process_hooks(backend)));
      });
    }
  }
  ~Lenders() {
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  Lenders(const Lenders&) = delete;
  Lenders& operator=(const Lenders&) = delete;

 private:
  std::vector<std::thread> threads_;
};

class HostedRuns : public testing::Test {
 protected:
  TuneOptions options(const std::string& scenario) const {
    TuneOptions result = tune_options(directory_.path(), scenario);
    result.m_list = {1, 2, 4, 8, 16};
    return result;
  }

  // A run on three ranks.
  Expected<TuneSummary> tune_on_three(TuneOptions options, const std::string& scenario) {
    constexpr int kRanks = 3;
    const Lenders lenders(mail_, kRanks, options, scenario);
    const SimulatedBackend backend(parse_scenario(scenario));
    const Postbox postbox = mail_.postbox(0, kRanks);
    const auto run = HostedRun::open(postbox, {"fake"}, options, process_hooks(backend));
    if (!run) {
      dismiss(postbox);
      return run.error();
    }
    EXPECT_THAT((*run)->groups(), ElementsAre(SizeIs(3)));
    options.devices = (*run)->groups().front();
    Expected<TuneSummary> summary = tune_with(options, (*run)->hooks());
    EXPECT_EQ((*run)->finish(), !is_down_);
    return summary;
  }

  const TemporaryDirectory directory_;
  Mail mail_;
  bool is_down_ = false;
};

TEST_F(HostedRuns, EveryRanksDeviceTakesUpPointsAndTheTablesAreThoseOfOneProcess) {
  // In each interval one M is the weakest, so that its proof is the entry's in whatever order points are measured.
  const std::string quick = "noise:0,ratio:0:1.5,ratio:0:1.6@2,ratio:2:2.3@6,ratio:2:2.1@8,ratio:2:2.4@9,cost:100";
  const std::string scenario = quick + ",sleep:1";
  TuneOptions on_three = options(scenario);
  std::set<std::string> at_work;
  on_three.progress = [&](const TuneProgress& progress) {
    for (const char* device : {"fake small", "fake1 small", "fake2 small"}) {
      if (progress.doing.find(device) != std::string::npos) {
        at_work.insert(device);
      }
    }
  };
  const auto summary = tune_on_three(on_three, scenario);
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_THAT(summary->notes, IsEmpty());
  EXPECT_THAT(at_work, SizeIs(3));
  const TemporaryDirectory alone;
  TuneOptions single = options(scenario);
  single.tables = alone.path();
  ASSERT_TRUE(tune_simulated(single, quick).has_value());
  const auto expected = tables_in(alone.path());
  const auto found = tables_in(directory_.path());
  ASSERT_THAT(found, SizeIs(2));
  for (const auto& [name, table] : found) {
    expect_same_entries(expected.at(name), table);
  }
}

TEST_F(HostedRuns, CandidatesThatCrashOrHangElsewhereAreBlamedAsHere) {
  const std::string scenario = "ratio:0:1.2,ratio:1:1.9,ratio:2:1.9,ratio:3:1.5,abort:1,hang:2,abort_timed:4";
  TuneOptions all = options(scenario);
  all.candidate_timeout_s = 2;
  const auto summary = tune_on_three(all, scenario);
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_FALSE(summary->failure.has_value()) << *summary->failure;
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.config.get("v", -1), 3) << point.shape.name << " m=" << point.m;
  }
  for (const FailedCandidate& failed : summary->failed) {
    EXPECT_THAT(failed.reason, failed.kind == "hang" ? HasSubstr("no answer in") : HasSubstr("killed by signal 6"));
  }
}

TEST_F(HostedRuns, ADeviceThatDisappearsLeavesTheRun) {
  const std::string gone = directory_.file("gone");
  const std::string scenario = "ratio:0:1.5,cost:100,sleep:1,gone:fake2:" + gone;
  TuneOptions all = options(scenario);
  all.progress = [&](const TuneProgress& progress) {
    if (progress.done == 3) {
      std::ofstream(gone) << "now";
    }
  };
  const auto summary = tune_on_three(all, scenario);
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_THAT(summary->failed, IsEmpty()) << "no kernel is to blame for a device that is gone";
  EXPECT_THAT(summary->notes, ElementsAre(HasSubstr("/fake2 left the run")));
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.status, PointStatus::tile);
  }
}

TEST_F(HostedRuns, ARankThatLacksItsDeviceIsNamed) {
  const std::string scenario = "gone:fake1:" + directory_.write("gone", "");
  const auto summary = tune_on_three(options(scenario), scenario);
  ASSERT_FALSE(summary.has_value());
  EXPECT_THAT(summary.error().message, AllOf(HasSubstr("rank 1 on "), HasSubstr("no device fake1")));
}

TEST_F(HostedRuns, WhereMessagesFailTheDevicesOfThisHostGoOn) {
  const std::string scenario = "ratio:0:1.5,cost:100,sleep:1";
  TuneOptions all = options(scenario);
  all.progress = [&](const TuneProgress& progress) {
    if (progress.done == 3) {
      mail_.fail();
    }
  };
  is_down_ = true;
  const auto summary = tune_on_three(all, scenario);
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_THAT(summary->failed, IsEmpty());
  EXPECT_THAT(summary->notes, SizeIs(2));
  EXPECT_THAT(summary->notes.front(), HasSubstr("messages between the hosts fail: the line is down"));
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.status, PointStatus::tile);
  }
}

}  // namespace
}  // namespace octile::test
