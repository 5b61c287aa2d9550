// SPDX-License-Identifier: Apache-2.0
// Clock, throttling and other processes of a GPU, asked of a fake NVML.
#include "octile/kernels/cuda/nvml.h"

#include "fake_driver/fake_nvml.h"
#include "octile/kernels/cuda/library_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile::cuda {
namespace {

using testing::HasSubstr;

constexpr unsigned kOwn = 4711;

class NvmlTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto library = open_library_file(OCTILE_FAKE_NVML);
    ASSERT_TRUE(library) << library.error().message;
    auto* const get_state = reinterpret_cast<fake::NvmlStateFunction*>(find_symbol(*library, "octile_fake_nvml_state"));
    ASSERT_NE(get_state, nullptr);
    state_ = get_state();
    *state_ = {};
    auto opened = open_nvml(OCTILE_FAKE_NVML);
    ASSERT_TRUE(opened) << opened.error().message;
    nvml_ = std::move(*opened);
  }

  fake::NvmlState* state_ = nullptr;
  std::unique_ptr<Nvml> nvml_;
};

TEST_F(NvmlTest, ClockAndThrottlingAreThoseOfTheDevice) {
  state_->sm_clock_mhz = 1755;
  state_->throttle_reasons = kThrottlePowerCap | kThrottleThermalHardware;
  GpuConditions watch(*nvml_, {kOwn});
  const DeviceConditions now = watch.now("GPU-1");
  EXPECT_EQ(now.sm_clock_mhz, 1755);
  EXPECT_EQ(now.throttle_reasons, kThrottlePowerCap | kThrottleThermalHardware);
  EXPECT_EQ(now.other_processes, 0);
}

TEST_F(NvmlTest, OtherProcessesAreThoseThatAreNotOurs) {
  GpuConditions watch(*nvml_, {kOwn, kOwn + 1});
  state_->processes = {kOwn, 17, kOwn + 1, 18};
  EXPECT_EQ(watch.now("GPU-1").other_processes, 2);
  state_->processes = {kOwn};
  EXPECT_EQ(watch.now("GPU-1").other_processes, 0);
}

TEST_F(NvmlTest, UnderForeignNumbersThoseCountThatHaveCome) {
  GpuConditions watch(*nvml_, {kOwn});
  state_->processes = {100001, 100002};
  EXPECT_EQ(watch.now("GPU-1").other_processes, 0) << "which of them is this process nobody can say";
  state_->processes = {100001, 100002, 100003};
  EXPECT_EQ(watch.now("GPU-1").other_processes, 1);
  state_->processes = {100001};
  EXPECT_EQ(watch.now("GPU-1").other_processes, 0);
  state_->processes = {100001, 100003};
  EXPECT_EQ(watch.now("GPU-1").other_processes, 1);
}

TEST_F(NvmlTest, MoreProcessesThanThereIsRoomForAreCounted) {
  GpuConditions watch(*nvml_, {kOwn});
  state_->processes.assign(200, 17);
  state_->processes.front() = kOwn;
  EXPECT_EQ(watch.now("GPU-1").other_processes, 199);
}

TEST_F(NvmlTest, WhatItDoesNotSayIsNotKnown) {
  GpuConditions watch(*nvml_, {kOwn});
  state_->clock_result = state_->reasons_result = state_->processes_result = NVML_ERROR_NOT_SUPPORTED;
  for (const char* uuid : {"GPU-1", "GPU-of-another-machine", ""}) {
    const DeviceConditions now = watch.now(uuid);
    EXPECT_FALSE(now.sm_clock_mhz.has_value()) << uuid;
    EXPECT_FALSE(now.throttle_reasons.has_value()) << uuid;
    EXPECT_FALSE(now.other_processes.has_value()) << uuid;
  }
}

TEST_F(NvmlTest, ALibraryThatIsAbsentOrRefusesIsAReason) {
  const auto absent = open_nvml("/nonexistent/libnvidia-ml.so.1");
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("/nonexistent/libnvidia-ml.so.1"));
  state_->init_result = NVML_ERROR_NOT_SUPPORTED;
  const auto refused = open_nvml(OCTILE_FAKE_NVML);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("nvmlInit failed with error 3"));
}

}  // namespace
}  // namespace octile::cuda
