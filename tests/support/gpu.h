// SPDX-License-Identifier: Apache-2.0
// What tests on a GPU share: the first device, and arrays in its memory. A test without a device is skipped, and says so.
#pragma once

#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/driver.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace octile::test {

// Device 0, or nullptr with the reason.
struct Gpu {
  const cuda::DeviceContext* context = nullptr;
  std::string reason;
};
const Gpu& gpu();

// Bytes in the memory of gpu(); a failure throws, which fails the test.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::int64_t bytes);
  template <class T>
  explicit DeviceBytes(const std::vector<T>& values) : DeviceBytes(static_cast<std::int64_t>(values.size() * sizeof(T))) {
    upload(values.data());
  }
  cuda::CUdeviceptr pointer() const;
  void* data() const;
  std::int64_t bytes() const { return bytes_; }
  void upload(const void* source);
  // Behind everything on blocking streams; wait for a non-blocking one (flag 1) yourself, also before fill() and upload().
  void download(void* target) const;
  void fill(unsigned char value);

 private:
  std::unique_ptr<cuda::CudaBuffer> buffer_;
  std::int64_t bytes_;
};

}  // namespace octile::test

#define OCTILE_REQUIRE_GPU() \
  if (::octile::test::gpu().context == nullptr) GTEST_SKIP() << "no GPU: " << ::octile::test::gpu().reason
