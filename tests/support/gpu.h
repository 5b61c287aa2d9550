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

std::vector<unsigned char> bytes_of(const DeviceBytes& memory);

// Bytes of gpu()'s memory that nobody has, by the driver's own account; other programs on the device change them, too.
std::int64_t free_device_bytes();

// A stream of gpu(), whose context is current on this thread while the object lives. A blocking one unless flags say
// otherwise: a download waits for it.
struct Stream {
  explicit Stream(unsigned flags = 0);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  static const cuda::Driver& driver() { return *gpu().context->driver; }
  void synchronize() const;
  cuda::CurrentContext current{*gpu().context};
  cuda::CUstream stream = nullptr;
};

}  // namespace octile::test

#define OCTILE_REQUIRE_GPU() \
  if (::octile::test::gpu().context == nullptr) GTEST_SKIP() << "no GPU: " << ::octile::test::gpu().reason
