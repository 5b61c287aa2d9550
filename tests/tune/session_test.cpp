// SPDX-License-Identifier: Apache-2.0
// Real worker processes that crash and hang: who is blamed, and what goes on.
#include "octile/tune/session.h"

#include "octile/core/format.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>

namespace octile::test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class SessionTest : public testing::Test {
 protected:
  void open(const std::string& scenario, double timeout_s = 20) {
    backend_ = std::make_unique<SimulatedBackend>(parse_scenario(scenario));
    RunOptions options;
    options.device = "fake";
    options.worker_command = worker_command(scenario);
    options.candidate_timeout_s = timeout_s;
    Expected<std::unique_ptr<Session>> session =
        Session::open(options, process_hooks(*backend_), measure_settings(options, 3));
    ASSERT_TRUE(session.has_value()) << session.error().message;
    session_ = std::move(*session);
    ASSERT_TRUE(session_->set_shape(48, 64).has_value());
  }

  Admission admit(int v) {
    CandidateSpec spec;
    spec.kernel = "fake_tile";
    spec.config.set("v", v);
    Expected<Admission> admission = session_->admit(v, spec, 4, true);
    EXPECT_TRUE(admission.has_value()) << (admission ? "" : admission.error().message);
    return admission ? *admission : Admission{};
  }

  Pass time(std::vector<int> order) {
    Expected<Pass> pass = session_->time(order, 3);
    EXPECT_TRUE(pass.has_value()) << (pass ? "" : pass.error().message);
    return pass ? *pass : Pass{};
  }

  std::unique_ptr<SimulatedBackend> backend_;
  std::unique_ptr<Session> session_;
};

TEST_F(SessionTest, AWorkerAdmitsAndTimes) {
  open("ratio:1:2");
  ASSERT_TRUE(admit(0).admitted);
  ASSERT_TRUE(admit(1).admitted);
  const Pass pass = time({0, 1});
  ASSERT_THAT(pass.us, SizeIs(2));
  EXPECT_NEAR(pass.us[0] / pass.us[1], 2.0, 0.2);
}

TEST_F(SessionTest, ACrashIsTheCandidatesAndTheOthersGoOn) {
  open("abort:2");
  ASSERT_TRUE(admit(0).admitted);
  const Admission crashed = admit(2);
  EXPECT_FALSE(crashed.admitted);
  EXPECT_EQ(crashed.kind, "crash");
  EXPECT_THAT(crashed.reason, HasSubstr("signal 6"));
  EXPECT_THAT(crashed.reason, HasSubstr("\"run\""));
  EXPECT_THAT(time({0}).us, SizeIs(1)) << "the new worker has what the old one had";
  EXPECT_TRUE(admit(1).admitted);
}

TEST_F(SessionTest, AHangIsEndedAndRecorded) {
  open("hang:2", 1);
  ASSERT_TRUE(admit(0).admitted);
  const Admission hung = admit(2);
  EXPECT_EQ(hung.kind, "hang");
  EXPECT_THAT(hung.reason, HasSubstr("1 s"));
  EXPECT_THAT(time({0}).us, SizeIs(1));
}

TEST_F(SessionTest, ACandidateThatFailsWhileItIsTimedIsNamed) {
  for (const auto& [fault, kind] : std::array<std::pair<const char*, const char*>, 3>{
           {{"abort_timed:1", "crash"}, {"hang_timed:1", "hang"}, {"error_timed:1", "error"}}}) {
    open(fault, 1);
    ASSERT_TRUE(admit(0).admitted);
    ASSERT_TRUE(admit(1).admitted);
    const Pass pass = time({0, 1});
    ASSERT_TRUE(pass.failed.has_value()) << fault;
    EXPECT_EQ(*pass.failed, 1) << fault;
    EXPECT_EQ(session_->failure().kind, kind);
    EXPECT_THAT(time({0}).us, SizeIs(1)) << fault;
  }
}

TEST_F(SessionTest, ACrashWhilePackingIsTheCandidatesToo) {
  open("pack_abort");
  const Admission crashed = admit(0);
  EXPECT_EQ(crashed.kind, "crash");
  EXPECT_THAT(crashed.reason, HasSubstr("\"pack\""));
}

TEST_F(SessionTest, CompilingSaysHowFarItIsAndEndsAtItsLimitWithAWorkerThatGoesOn) {
  const TemporaryDirectory directory;
  const std::string file = directory.file("file");
  open(format("compiles:{},compile_waits:80:{}", directory.file("log"), file));
  std::vector<CompileItem> items;
  for (const std::int64_t n : {48, 48, 80}) {
    CompileItem item{n, 64, {}};
    item.spec.kernel = "fake_tile";
    item.spec.config.set("v", static_cast<std::int64_t>(items.size()));
    items.push_back(item);
  }
  ASSERT_TRUE(admit(0).admitted);
  std::vector<std::size_t> heard;
  const auto hear = [&](std::size_t count) { heard.push_back(count); };
  const Expected<bool> in_part = session_->compile_ahead(items, 0, 3, hear);
  ASSERT_TRUE(in_part.has_value()) << in_part.error().message;
  EXPECT_FALSE(*in_part);
  EXPECT_THAT(heard, testing::ElementsAre(1, 2));
  EXPECT_THAT(time({0}).us, SizeIs(1)) << "the new worker has what the old one had";
  std::ofstream(file) << "now";
  heard.clear();
  const Expected<bool> all = session_->compile_ahead(items, 0, 60, hear);
  ASSERT_TRUE(all.has_value()) << all.error().message;
  EXPECT_TRUE(*all);
  EXPECT_THAT(heard, testing::ElementsAre(1, 2, 3));
}

TEST(Session, AWorkerThatCannotBeStartedIsAnErrorThatNamesIt) {
  const SimulatedBackend backend{Scenario{}};
  RunOptions options;
  options.device = "fake";
  options.worker_command = {"/nonexistent/octile", "worker"};
  const auto session = Session::open(options, process_hooks(backend), measure_settings(options, 3));
  ASSERT_FALSE(session.has_value());
  EXPECT_THAT(session.error().message, HasSubstr("/nonexistent/octile"));
}

TEST(Session, AWorkerThatEndsAtOnceOrTalksNonsenseIsAnError) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"/bin/false"}, std::vector<std::string>{"/bin/sh", "-c", "echo nonsense >&0; sleep 5"}}) {
    const SimulatedBackend backend{Scenario{}};
    RunOptions options;
    options.device = "fake";
    options.worker_command = command;
    const auto session = Session::open(options, process_hooks(backend), measure_settings(options, 3));
    ASSERT_FALSE(session.has_value()) << command[0];
    EXPECT_THAT(session.error().message, HasSubstr("worker process")) << command[0];
  }
}

}  // namespace
}  // namespace octile::test
