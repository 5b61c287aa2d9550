// SPDX-License-Identifier: Apache-2.0
// Opening the driver, its errors in words, its devices and contexts, with a fake library in its place.
#include "octile/kernels/cuda/driver.h"

#include "fake_device.h"
#include "support/files.h"

#include <gmock/gmock.h>

#include <string>

namespace octile::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using DriverOpening = FakeDriverTest;
using DriverContexts = FakeDriverTest;

TEST_F(DriverOpening, AFileThatIsNotThereIsNamed) {
  const auto opened = open_driver("/nonexistent/libcuda.so.1");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::unavailable);
  EXPECT_THAT(opened.error().message, HasSubstr("/nonexistent/libcuda.so.1"));
}

TEST_F(DriverOpening, AMissingFunctionIsNamed) {
  const auto opened = open_driver(OCTILE_FAKE_CUDA_INCOMPLETE);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::unavailable);
  EXPECT_THAT(opened.error().message, HasSubstr("cuMemAlloc_v2"));
}

TEST_F(DriverOpening, AnOldDriverIsRefusedWithBothVersions) {
  state_->version = 11080;
  const auto opened = open_driver(OCTILE_FAKE_CUDA);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::unavailable);
  EXPECT_THAT(opened.error().message, AllOf(HasSubstr("11.8"), HasSubstr("12.0")));
}

TEST_F(DriverOpening, AStubIsCalledAStub) {
  state_->failing_call = "cuDriverGetVersion";
  state_->failure = CUDA_ERROR_STUB_LIBRARY;
  const auto opened = open_driver(OCTILE_FAKE_CUDA);
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message, HasSubstr("stub"));
}

TEST_F(DriverOpening, CuInitsOwnWordsAreTheReason) {
  for (const CUresult result :
       {CUDA_ERROR_NO_DEVICE, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_UNKNOWN, CUDA_ERROR_STUB_LIBRARY}) {
    state_->init_result = result;
    const auto opened = open_driver(OCTILE_FAKE_CUDA);
    ASSERT_FALSE(opened) << result;
    EXPECT_EQ(opened.error().code, ErrorCode::unavailable);
    EXPECT_THAT(opened.error().message, HasSubstr("cuInit"));
    EXPECT_THAT(opened.error().message, HasSubstr(std::to_string(result)));
  }
  state_->init_result = CUDA_ERROR_NO_DEVICE;
  EXPECT_THAT(open_driver(OCTILE_FAKE_CUDA).error().message, HasSubstr("no CUDA-capable device is detected"));
}

TEST_F(DriverOpening, DevicesAreNamedAsInTableFilesAndDescribed) {
  open();
  const auto devices = list_devices(*driver_);
  ASSERT_TRUE(devices);
  ASSERT_EQ(devices->size(), 2U);
  const DeviceInfo& first = devices->front();
  EXPECT_EQ(first.id, "cuda:0");
  EXPECT_EQ(first.name, "NVIDIA_H200");
  EXPECT_EQ(first.model, "NVIDIA H200");
  EXPECT_EQ(first.arch, "sm_90");
  EXPECT_EQ(first.sm_count, 132);
  EXPECT_EQ(first.llc_bytes, 62914560);
  EXPECT_EQ(first.shared_memory_bytes, 232448);
  EXPECT_EQ(first.memory_bytes, std::int64_t{1} << 30);
  EXPECT_EQ(devices->back().name, "NVIDIA_L40S");
  EXPECT_EQ(devices->back().arch, "sm_89");
  EXPECT_EQ(devices->back().index, 1);
  EXPECT_EQ(first.uuid, "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae00");
  EXPECT_EQ(devices->back().uuid, "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae01");
}

TEST(DriverRelease, IsWhatTheKernelModuleSaysAndNothingElse) {
  const test::TemporaryDirectory directory;
  const auto release_of = [&](const std::string& text) { return driver_release(directory.write("version", text)); };
  EXPECT_EQ(release_of("580.159.04\n"), "580.159.04");
  EXPECT_EQ(release_of("550.90"), "550.90");
  EXPECT_EQ(release_of(""), "");
  EXPECT_EQ(release_of("NVRM version\n"), "");
  EXPECT_EQ(release_of(std::string(1 << 16, '1')), "");
  EXPECT_EQ(release_of(std::string("1\0002", 3)), "");
  EXPECT_EQ(driver_release(directory.file("none")), "");
  EXPECT_EQ(driver_release(directory.path()), "");
}

TEST_F(DriverOpening, NoDeviceIsAnEmptyListAndARefusalIsAnError) {
  open();
  state_->device_count = 0;
  EXPECT_TRUE(list_devices(*driver_)->empty());
  state_->failing_call = "cuDeviceGetCount";
  state_->failure = CUDA_ERROR_NO_DEVICE;
  EXPECT_TRUE(list_devices(*driver_)->empty());
  state_->device_count = 1;
  for (const char* call : {"cuDeviceGetName", "cuDeviceGetAttribute", "cuDeviceTotalMem", "cuDeviceGet"}) {
    state_->failing_call = call;
    state_->failure = CUDA_ERROR_UNKNOWN;
    const auto devices = list_devices(*driver_);
    ASSERT_FALSE(devices) << call;
    EXPECT_THAT(devices.error().message, HasSubstr(call));
  }
}

TEST_F(DriverContexts, AnIndexThatIsNotThereIsRefused) {
  open();
  for (const int index : {-1, 2}) {
    const auto context = open_device(*driver_, index);
    ASSERT_FALSE(context);
    EXPECT_EQ(context.error().code, ErrorCode::unavailable);
  }
}

TEST_F(DriverContexts, ThePreviousContextComesBackWhenAnOuterOneIsCurrent) {
  open();
  {
    const CurrentContext outer(*contexts_[0]);
    {
      const CurrentContext inner(*contexts_[1]);
      EXPECT_EQ(state_->current.back(), contexts_[1]->context);
    }
    EXPECT_EQ(state_->current.back(), contexts_[0]->context);
  }
  EXPECT_TRUE(state_->current.empty());
}

TEST_F(DriverContexts, OneThatIsCurrentAlreadyIsNeitherPushedNorPopped) {
  open();
  const CurrentContext outer(*contexts_[0]);
  {
    const CurrentContext again(*contexts_[0]);
    EXPECT_TRUE(again.made());
    EXPECT_EQ(state_->current, std::vector<CUcontext>{contexts_[0]->context});
    {
      const CurrentContext other(*contexts_[1]);
      const CurrentContext back(*contexts_[0]);
      EXPECT_EQ(state_->current.back(), contexts_[0]->context);
      EXPECT_EQ(state_->current.size(), 3U);
    }
  }
  EXPECT_EQ(state_->current, std::vector<CUcontext>{contexts_[0]->context});
}

TEST_F(DriverContexts, AContextThatCannotBePushedIsNotPopped) {
  open();
  const CurrentContext outer(*contexts_[0]);
  state_->failing_call = "cuCtxPushCurrent";
  {
    const CurrentContext inner(*contexts_[1]);
    const auto made = inner.made();
    ASSERT_FALSE(made);
    EXPECT_THAT(made.error().message, testing::HasSubstr("cuCtxPushCurrent of " + contexts_[1]->info.id));
  }
  EXPECT_EQ(state_->current.size(), 1U);
  state_->failing_call.clear();
}

TEST_F(DriverContexts, TheThreadsCaptureModeIsRelaxedOnlyWhileAsked) {
  open();
  {
    const OutsideCapture outside(*driver_);
    EXPECT_EQ(state_->thread_mode, CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  EXPECT_EQ(state_->thread_mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_F(DriverContexts, ErrorsCarryTheirKind) {
  open();
  EXPECT_EQ(driver_error(*driver_, CUDA_ERROR_OUT_OF_MEMORY, "x").code, ErrorCode::out_of_memory);
  EXPECT_EQ(driver_error(*driver_, CUDA_ERROR_INVALID_VALUE, "x").code, ErrorCode::invalid_argument);
  EXPECT_EQ(driver_error(*driver_, CUDA_ERROR_NO_DEVICE, "x").code, ErrorCode::unavailable);
  EXPECT_EQ(driver_error(*driver_, CUDA_ERROR_ILLEGAL_ADDRESS, "x").code, ErrorCode::failed);
  EXPECT_THAT(driver_error(*driver_, CUDA_ERROR_ILLEGAL_ADDRESS, "launching").message,
              AllOf(HasSubstr("launching"), HasSubstr("700")));
}

// Another search would give another object; a remembered failure is the same failure.
TEST(DriverProbe, IsMadeOnce) {
  const auto first = driver();
  const auto second = driver();
  ASSERT_EQ(first.has_value(), second.has_value());
  if (first) {
    EXPECT_EQ(*first, *second);
  } else {
    EXPECT_EQ(first.error().message, second.error().message);
    EXPECT_EQ(first.error().code, ErrorCode::unavailable);
  }
}

TEST(DriverVersion, PrintsMajorAndMinor) {
  EXPECT_EQ(version_text(13000), "13.0");
  EXPECT_EQ(version_text(12080), "12.8");
  EXPECT_EQ(version_text(11080), "11.8");
}

}  // namespace
}  // namespace octile::cuda
