// SPDX-License-Identifier: Apache-2.0
// Cold copies, and the check that comes before any timing.
#include "octile/tune/measure.h"

#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile::test {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

TEST(ColdCopies, CoverThreeTimesTheCacheAndAreAtLeastTwo) {
  EXPECT_EQ(cold_copies(16 * kMiB, 32 * kMiB, 1 << 30), 6);
  EXPECT_EQ(cold_copies(17 * kMiB, 32 * kMiB, 1 << 30), 6);
  EXPECT_EQ(cold_copies(100 * kMiB, 32 * kMiB, 1 << 30), 2);
}

TEST(ColdCopies, FitTheMemoryAndAreAtLeastOne) {
  EXPECT_EQ(cold_copies(16 * kMiB, 32 * kMiB, 40 * kMiB), 2);
  EXPECT_EQ(cold_copies(100 * kMiB, 32 * kMiB, 10 * kMiB), 1);
}

TEST(ColdCopies, AssumeACacheWhereItsSizeIsUnknown) { EXPECT_EQ(cold_copies(16 * kMiB, 0, 1 << 30), 6); }

struct Bench {
  explicit Bench(const std::string& scenario, bool quantized = false) : backend(parse_scenario(scenario)) {
    MeasureSettings settings;
    settings.quantized_input = quantized;
    measurer = std::make_unique<Measurer>(Device{&backend, backend.info()}, settings);
    EXPECT_TRUE(measurer->set_shape(48, 64).has_value());
  }
  Admission admit(int v, std::int64_t m = 5, bool check = true) {
    CandidateSpec spec;
    spec.kernel = "fake_tile";
    spec.config.set("v", v);
    Expected<Admission> admission = measurer->admit(v, spec, m, check, [](std::string_view) {});
    EXPECT_TRUE(admission.has_value()) << (admission ? "" : admission.error().message);
    return admission ? *admission : Admission{};
  }
  SimulatedBackend backend;
  std::unique_ptr<Measurer> measurer;
};

TEST(Measurer, AdmitsAKernelWhoseNumbersAreRight) {
  for (const bool quantized : {false, true}) {
    Bench bench("", quantized);
    const Admission admission = bench.admit(1);
    EXPECT_TRUE(admission.admitted) << admission.kind << ": " << admission.reason;
    EXPECT_GT(admission.rel_error, 0);
    EXPECT_LT(admission.rel_error, 1e-2);
    EXPECT_GT(admission.first_us, 0);
    EXPECT_EQ(admission.layout, "fake_packed");
    EXPECT_EQ(admission.copies, 3 * bench.backend.info().llc_bytes / admission.copy_bytes);
  }
}

TEST(Measurer, RefusesWrongNumbersUnwrittenElementsAndWritesOutOfBounds) {
  const auto reason = [](const std::string& fault) {
    Bench bench(fault + ":1");
    const Admission admission = bench.admit(1);
    EXPECT_FALSE(admission.admitted) << fault;
    EXPECT_EQ(admission.kind, "wrong") << fault;
    return admission.reason;
  };
  EXPECT_THAT(reason("wrong"), HasSubstr("relative error"));
  EXPECT_THAT(reason("unwritten"), HasSubstr("NaN"));
  EXPECT_THAT(reason("guard"), HasSubstr("behind the last element"));
  EXPECT_THAT(reason("workspace"), HasSubstr("workspace"));
}

TEST(Measurer, TellsAKernelThatFailsFromOneThatIsWrong) {
  Bench bench("error:1,throw:2");
  EXPECT_EQ(bench.admit(1).kind, "error");
  EXPECT_THAT(bench.admit(1).reason, HasSubstr("told to fail"));
  EXPECT_EQ(bench.admit(2).kind, "error");
}

TEST(Measurer, RefusesAnIllegalConfigWithTheLimit) {
  Bench bench("");
  const Admission admission = bench.admit(9);
  EXPECT_FALSE(admission.admitted);
  EXPECT_THAT(admission.reason, HasSubstr("0 to 4"));
}

TEST(Measurer, TimesWhatItWasToldToAndNothingThatIsUnknown) {
  Bench bench("noise:0,ratio:1:2");
  ASSERT_TRUE(bench.admit(1).admitted);
  const double expected_us = bench.backend.true_us("1", 48, 64, 5);
  EXPECT_NEAR(bench.measurer->time_us(1, 7).value(), expected_us, 1e-6);
  EXPECT_FALSE(bench.measurer->time_us(2, 7).has_value());
  EXPECT_FALSE(bench.measurer->time_us(1, 0).has_value());
}

TEST(Measurer, ASampleOfManyCallsRunsThemAll) {
  Bench bench("noise:0");
  ASSERT_TRUE(bench.admit(1).admitted);
  const std::int64_t before = bench.backend.runs();
  ASSERT_TRUE(bench.measurer->time_us(1, 25).has_value());
  EXPECT_EQ(bench.backend.runs() - before, 25);
}

}  // namespace
}  // namespace octile::test
