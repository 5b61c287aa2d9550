// SPDX-License-Identifier: Apache-2.0
// A limit of multiprocessors: what is accepted of a caller, and what it does to a problem.
#include "octile/kernels/backend.h"

#include "octile/kernels/known_devices.h"
#include "support/fake_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(LimitSms, HoldsAProblemAndKeepsItFromStartingInTheLinearBefore) {
  const DeviceInfo device = *known_device("NVIDIA_H200");
  Problem problem;
  ASSERT_TRUE(limit_sms(device, 100, problem));
  EXPECT_EQ(problem.max_sms, 100);
  EXPECT_EQ(problem.pdl, Pdl::consume);
  EXPECT_EQ(usable_sms(device, problem), 100);
  problem.pdl = Pdl::off;
  ASSERT_TRUE(limit_sms(device, 1, problem));
  EXPECT_EQ(problem.pdl, Pdl::off);
}

TEST(LimitSms, NoneAndAllOfThemAreNoLimit) {
  const DeviceInfo device = *known_device("NVIDIA_H200");
  for (const int count : {0, device.sm_count}) {
    Problem problem;
    ASSERT_TRUE(limit_sms(device, count, problem)) << count;
    EXPECT_EQ(problem.max_sms, 0);
    EXPECT_EQ(problem.pdl, Pdl::full);
    EXPECT_EQ(usable_sms(device, problem), device.sm_count);
  }
}

TEST(LimitSms, WhatTheDeviceDoesNotHaveIsRefusedWithWhatItHas) {
  DeviceInfo device = *known_device("NVIDIA_H200");
  Problem problem;
  for (const int count : {-1, device.sm_count + 1}) {
    const auto refused = limit_sms(device, count, problem);
    ASSERT_FALSE(refused) << count;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(refused.error().message,
                AllOf(HasSubstr("1 to the 132 multiprocessors of NVIDIA_H200"), HasSubstr("got " + std::to_string(count))));
  }
  device.kind = DeviceKind::cpu;
  EXPECT_TRUE(limit_sms(device, 0, problem));
  EXPECT_THAT(limit_sms(device, 1, problem).error().message, HasSubstr("want 0 on a CPU"));
  EXPECT_EQ(problem.max_sms, 0);
}

TEST(LimitSms, AFamilyThatSaysNothingCannotBeHeld) {
  test::FakeBackend backend;
  const test::FakeFamily& family = backend.add("plain");
  Problem problem;
  problem.max_sms = 8;
  EXPECT_THAT(family.KernelFamily::check_sm_limit(problem, {}, 1).error().message,
              HasSubstr("plain cannot be held to 8 multiprocessors"));
}

}  // namespace
}  // namespace octile
