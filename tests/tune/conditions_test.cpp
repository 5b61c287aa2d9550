// SPDX-License-Identifier: Apache-2.0
// Disturbed passes: which are taken again, that it never goes on for ever, and what is written down.
#include "octile/tune/conditions.h"

#include "octile/tune/journal.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace octile::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Passes of which `is_disturbed(attempt)` says whether they are; returns attempts that it took until `count` counted.
template <class Disturbed>
int attempts_for(int count, Disturbed is_disturbed) {
  RepeatRule rule;
  int attempts = 0;
  for (int counted = 0; counted < count; ++attempts) {
    counted += rule.takes_again(is_disturbed(attempts)) ? 0 : 1;
  }
  return attempts;
}

TEST(RepeatRule, AnUndisturbedPassCounts) {
  EXPECT_EQ(attempts_for(100, [](int) { return false; }), 100);
}

TEST(RepeatRule, ADisturbedPassIsTakenAgain) {
  EXPECT_EQ(attempts_for(100, [](int attempt) { return attempt == 10 || attempt == 50; }), 102);
}

TEST(RepeatRule, OnAMachineThatIsAlwaysBusyOnlyTheFirstFewAre) {
  EXPECT_EQ(attempts_for(1000, [](int) { return true; }), 1003);
}

TEST(RepeatRule, OfManyDisturbancesAFifthIsTakenAgain) {
  const int attempts = attempts_for(1000, [](int attempt) { return attempt % 2 == 1; });
  EXPECT_LE(attempts, 1000 + 3 + 1000 / 5);
  EXPECT_GE(attempts, 1100);
}

TEST(RepeatRule, AfterRepeatsInVainAnUndisturbedPassBringsThemBack) {
  RepeatRule rule;
  while (rule.takes_again(true)) {
  }
  int in_vain = 0;
  for (int i = 0; i < 50; ++i) {
    in_vain += rule.takes_again(true) ? 1 : 0;
  }
  EXPECT_LE(in_vain, 3);
  EXPECT_FALSE(rule.takes_again(true));
  EXPECT_FALSE(rule.takes_again(false));
  EXPECT_TRUE(rule.takes_again(true));
}

PassConditions gpu_pass(int before_mhz, int after_mhz, std::uint64_t reasons, const std::string& disturbed) {
  PassConditions pass;
  pass.before.sm_clock_mhz = before_mhz;
  pass.after.sm_clock_mhz = after_mhz;
  pass.after.throttle_reasons = reasons;
  pass.disturbed = disturbed;
  return pass;
}

TEST(MeasureConditions, AreTheSumOfTheirPassesAndSurviveJson) {
  MeasureConditions sum;
  sum.add(gpu_pass(1980, 1755, 0x4, ""), true);
  sum.add(gpu_pass(1500, 1900, 0x80, "throttled: power brake"), false);
  sum.add(gpu_pass(1600, 1950, 0x40, "throttled: something else"), true);
  PassConditions on_cpu;
  on_cpu.before.waited_s = 0.25;
  on_cpu.after.waited_s = 0.5;
  on_cpu.before.preemptions = 100;
  on_cpu.after.preemptions = 107;
  on_cpu.before.stolen_s = 1;
  on_cpu.after.stolen_s = 1.5;
  sum.add(on_cpu, true);
  const MeasureConditions read = measure_conditions_from_json(to_json(sum));
  for (const MeasureConditions& c : {sum, read}) {
    EXPECT_EQ(c.passes, 3);
    EXPECT_EQ(c.repeated, 1);
    EXPECT_EQ(c.disturbed, 1);
    EXPECT_EQ(c.why, "throttled: power brake");
    EXPECT_EQ(c.sm_clock_lo_mhz, 1500);
    EXPECT_EQ(c.sm_clock_hi_mhz, 1980);
    EXPECT_EQ(c.throttle_reasons, std::uint64_t{0xc4});
    EXPECT_EQ(c.preemptions, 7);
    EXPECT_DOUBLE_EQ(c.waited_s.value_or(0), 0.25);
    EXPECT_EQ(c.stolen_s, 0.5);
    EXPECT_FALSE(c.throttled_s.has_value());
    EXPECT_FALSE(c.other_processes.has_value());
  }
  EXPECT_TRUE(to_json(sum)["other_processes"].is_null()) << "what is not known is said so";
  EXPECT_EQ(disturbance_text(sum),
            "2 of 4 passes were disturbed (throttled: power brake): 1 taken again, 1 counted all the same");
  EXPECT_EQ(disturbance_text({}), "");
}

TEST(MeasureConditions, BrokenJsonIsNothingKnown) {
  for (const char* text : {"null", "[]", "{}", R"({"passes":"x","sm_clock_lo_mhz":"fast","why":7})"}) {
    const MeasureConditions c = measure_conditions_from_json(nlohmann::json::parse(text));
    EXPECT_EQ(c.passes, 0) << text;
    EXPECT_FALSE(c.sm_clock_lo_mhz.has_value()) << text;
    EXPECT_EQ(c.why, "") << text;
  }
}

MeasureConditions total(const TuneSummary& summary) {
  MeasureConditions sum;
  for (const TunePoint& point : summary.points) {
    sum.add(point.conditions);
  }
  return sum;
}

TEST(DisturbedRuns, AThrottledPassIsTakenAgainCountedAndReported) {
  const TemporaryDirectory directory;
  // Looks 21 to 26 at the device, two a pass: one that is disturbed in spite of two repeats, and the next once.
  const auto summary = tune_simulated(tune_options(directory.path(), ""), "ratio:0:1.5,throttle:128:21:26");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  const MeasureConditions met = total(*summary);
  EXPECT_EQ(met.repeated, 3);
  EXPECT_EQ(met.disturbed, 1);
  EXPECT_EQ(met.why, "throttled: power brake");
  EXPECT_THAT(summary->notes, ElementsAre(HasSubstr("passes were disturbed (throttled: power brake)")));
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.status, PointStatus::tile);
  }
  for (const auto& [name, table] : tables_in(directory.path())) {
    EXPECT_THAT(table.provenance.at("clocks"), HasSubstr("SM 1980 to 1980 MHz"));
  }
}

TEST(DisturbedRuns, ThePowerCapIsRecordedAndRepeatsNothing) {
  const TemporaryDirectory directory;
  const auto summary = tune_simulated(tune_options(directory.path(), ""), "ratio:0:1.5,throttle:4:0:1000000");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_EQ(total(*summary).repeated, 0);
  EXPECT_EQ(total(*summary).throttle_reasons, std::uint64_t{4});
  EXPECT_THAT(summary->notes, IsEmpty());
  for (const auto& [name, table] : tables_in(directory.path())) {
    EXPECT_THAT(table.provenance.at("clocks"), HasSubstr("throttled: power cap"));
    EXPECT_EQ(table.provenance.count("disturbed"), 0U);
  }
}

TEST(DisturbedRuns, ADisturbanceWithoutEndCostsAFewPassesAndIsSaid) {
  const TemporaryDirectory quiet_directory;
  const TemporaryDirectory directory;
  const SimulatedBackend quiet(parse_scenario("ratio:0:1.5"));
  const SimulatedBackend busy(parse_scenario("ratio:0:1.5,throttle:64:0:1000000"));
  const auto expected = tune_with(tune_options(quiet_directory.path(), ""), simulated_hooks(quiet));
  const auto summary = tune_with(tune_options(directory.path(), ""), simulated_hooks(busy));
  ASSERT_TRUE(expected.has_value() && summary.has_value());
  const MeasureConditions met = total(*summary);
  EXPECT_EQ(met.repeated, 3);
  EXPECT_EQ(met.disturbed, met.passes);
  EXPECT_EQ(met.passes, total(*expected).passes);
  EXPECT_LE(static_cast<double>(busy.runs()), 1.2 * static_cast<double>(quiet.runs()));
  for (const auto& [name, table] : tables_in(directory.path())) {
    EXPECT_THAT(table.provenance.at("disturbed"), HasSubstr("thermal slowdown by the hardware"));
  }
}

TEST(DisturbedRuns, TheBudgetHolds) {
  const TemporaryDirectory directory;
  const SimulatedBackend backend(parse_scenario("ratio:0:1.5,cost:40,throttle:64:0:1000000"));
  TuneOptions options = tune_options(directory.path(), "");
  options.m_list = {1, 2, 4, 8, 16, 32, 64};
  options.time_budget_s = 2;
  const auto summary = tune_with(options, simulated_hooks(backend));
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_LE(backend.now_s(), 2.2);
}

TEST(DisturbedRuns, TheJournalSaysWhatAPointRanUnder) {
  const TemporaryDirectory directory;
  HardKeys keys{{"octile", "1"}};
  JournalContent content;
  std::vector<std::string> notes;
  TunePoint point;
  point.shape = {"o", 64, 64};
  point.m = 4;
  point.status = PointStatus::tile;
  point.conditions.add(gpu_pass(1980, 1755, 0x4, "another process on the device"), false);
  {
    Expected<Journal> journal = Journal::open(directory.path(), "fake", keys, "o", false, content, notes);
    ASSERT_TRUE(journal.has_value()) << journal.error().message;
    ASSERT_TRUE(journal->append(point).has_value());
  }
  ASSERT_TRUE(Journal::open(directory.path(), "fake", keys, "o", true, content, notes).has_value());
  ASSERT_EQ(content.points.size(), 1U);
  EXPECT_EQ(content.points[0].conditions.repeated, 1);
  EXPECT_EQ(content.points[0].conditions.why, "another process on the device");
  EXPECT_EQ(content.points[0].conditions.sm_clock_lo_mhz, 1755);
}

}  // namespace
}  // namespace octile::test
