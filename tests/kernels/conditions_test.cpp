// SPDX-License-Identifier: Apache-2.0
// What a device ran under: what is normal, and what makes a time not count.
#include "octile/kernels/conditions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile {
namespace {

using testing::HasSubstr;

DeviceConditions gpu(std::uint64_t reasons, int others = 0) {
  DeviceConditions conditions;
  conditions.sm_clock_mhz = 1980;
  conditions.throttle_reasons = reasons;
  conditions.other_processes = others;
  return conditions;
}

DeviceConditions cpu(std::int64_t preemptions, double throttled_s = 0, double stolen_s = 0) {
  DeviceConditions conditions;
  conditions.preemptions = preemptions;
  conditions.throttled_s = throttled_s;
  conditions.stolen_s = stolen_s;
  return conditions;
}

TEST(Conditions, WhatIsNotKnownSpeaksAgainstNothing) { EXPECT_EQ(disturbance({}, {}, 0.01, 2), ""); }

TEST(Conditions, APowerCapIsNormalAndSlowdownsByHeatOrBrakeAreNot) {
  EXPECT_EQ(disturbance(gpu(0x1), gpu(kThrottlePowerCap | 0x2 | 0x10 | 0x100), 0.01, 1), "");
  for (const std::uint64_t reason : {std::uint64_t{0x8}, std::uint64_t{0x20}, std::uint64_t{0x40}, std::uint64_t{0x80}}) {
    EXPECT_THAT(disturbance(gpu(0), gpu(reason | kThrottlePowerCap), 0.01, 1), HasSubstr("throttled: ")) << reason;
    EXPECT_THAT(disturbance(gpu(reason), gpu(0), 0.01, 1), HasSubstr("throttled: ")) << reason;
  }
}

TEST(Conditions, ReasonsAreNamed) {
  EXPECT_EQ(throttle_text(0x1), "none");
  EXPECT_EQ(throttle_text(kThrottlePowerCap | kThrottlePowerBrake), "power cap, power brake");
}

TEST(Conditions, AnotherProcessOnTheGpuDisturbs) {
  EXPECT_EQ(disturbance(gpu(0), gpu(0, 1), 0.01, 1), "another process on the device");
  EXPECT_EQ(disturbance(gpu(0, 3), gpu(0), 0.01, 1), "3 other processes on the device");
}

TEST(Conditions, OnACpuOnlyWhatGrewMeanwhileCounts) {
  EXPECT_EQ(disturbance(cpu(5000, 7, 9), cpu(5000, 7, 9), 0.01, 2), "");
  EXPECT_THAT(disturbance(cpu(0, 7), cpu(0, 7.001), 0.01, 2), HasSubstr("CPU quota"));
  EXPECT_THAT(disturbance(cpu(0, 0, 1), cpu(0, 0, 1.01), 0.01, 2), HasSubstr("virtual machine"));
  EXPECT_EQ(disturbance(cpu(0, 0, 1), cpu(0, 0, 1.01), 1.0, 2), "") << "a tick of 10 ms in two core seconds";
}

TEST(Conditions, WhereTheLostTimeIsKnownItAloneTellsOfOtherPrograms) {
  const auto waited = [](double waited_s, std::int64_t preemptions) {
    DeviceConditions conditions = cpu(preemptions);
    conditions.waited_s = waited_s;
    return conditions;
  };
  EXPECT_EQ(disturbance(waited(1, 0), waited(1.0004, 1000), 0.01, 2), "") << "often and briefly";
  EXPECT_EQ(disturbance(waited(1, 0), waited(1.05, 1000), 1.0, 2), "") << "a fortieth of two core seconds";
  EXPECT_EQ(disturbance(waited(1, 0), waited(1.1, 2), 1.0, 2), "cores shared with other programs");
  EXPECT_EQ(disturbance(waited(1, 0), waited(0.5, 0), 1.0, 2), "") << "a thread that waited much has ended";
}

TEST(Conditions, AFewPreemptionsAreNormalAndManyAreAnotherProgram) {
  EXPECT_EQ(disturbance(cpu(10), cpu(12), 0.01, 2), "");
  EXPECT_EQ(disturbance(cpu(10), cpu(110), 1.0, 2), "") << "50 a second on each core";
  EXPECT_EQ(disturbance(cpu(10), cpu(16), 0.02, 2), "cores shared with other programs");
  EXPECT_EQ(disturbance(cpu(10), cpu(410), 1.0, 2), "cores shared with other programs");
}

}  // namespace
}  // namespace octile
