// SPDX-License-Identifier: Apache-2.0
// The fake driver as a fixture: opened, reset, with contexts on its two devices.
#pragma once

#include "fake_driver/fake_driver.h"
#include "octile/kernels/cuda/driver.h"
#include "octile/kernels/cuda/library_search.h"

#include <gtest/gtest.h>

#include <memory>

namespace octile::cuda {

// Device 0 is an "NVIDIA H200" (sm_90), device 1 an "NVIDIA L40S" (sm_89).
class FakeDriverTest : public testing::Test {
 protected:
  void SetUp() override {
    auto library = open_library_file(OCTILE_FAKE_CUDA);
    ASSERT_TRUE(library) << library.error().message;
    auto* const get_state = reinterpret_cast<fake::StateFunction*>(find_symbol(*library, "octile_fake_state"));
    ASSERT_NE(get_state, nullptr);
    state_ = get_state();
    *state_ = fake::State{};
  }
  // For tests that need the driver to open.
  void open() {
    auto opened = open_driver(OCTILE_FAKE_CUDA);
    ASSERT_TRUE(opened) << opened.error().message;
    driver_ = std::move(*opened);
    for (int index = 0; index < 2; ++index) {
      auto context = open_device(*driver_, index);
      ASSERT_TRUE(context) << context.error().message;
      contexts_[index] = std::move(*context);
    }
  }

  fake::State* state_ = nullptr;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<DeviceContext> contexts_[2];
};

}  // namespace octile::cuda
