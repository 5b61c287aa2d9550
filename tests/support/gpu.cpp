// SPDX-License-Identifier: Apache-2.0
#include "support/gpu.h"

#include <stdexcept>

namespace octile::test {
namespace {

void must(const Expected<void>& result) {
  if (!result) {
    throw std::runtime_error(result.error().message);
  }
}

}  // namespace

const Gpu& gpu() {
  static const Gpu instance = [] {
    Gpu found;
    if (auto context = cuda::device_context(0); context) {
      found.context = *context;
    } else {
      found.reason = context.error().message;
    }
    return found;
  }();
  return instance;
}

DeviceBytes::DeviceBytes(std::int64_t bytes) : bytes_(bytes) {
  auto buffer = cuda::allocate_device(*gpu().context, bytes);
  if (!buffer) {
    throw std::runtime_error(buffer.error().message);
  }
  buffer_ = std::move(*buffer);
}

cuda::CUdeviceptr DeviceBytes::pointer() const { return buffer_->pointer(); }
void* DeviceBytes::data() const { return buffer_->data(); }

void DeviceBytes::upload(const void* source) { must(cuda::upload_bytes(*gpu().context, pointer(), source, bytes_)); }
void DeviceBytes::download(void* target) const { must(cuda::download_bytes(*gpu().context, target, pointer(), bytes_)); }
void DeviceBytes::fill(unsigned char value) { must(cuda::fill_bytes(*gpu().context, pointer(), value, bytes_)); }

std::vector<unsigned char> bytes_of(const DeviceBytes& memory) {
  std::vector<unsigned char> bytes(static_cast<std::size_t>(memory.bytes()));
  memory.download(bytes.data());
  return bytes;
}

std::int64_t free_device_bytes() {
  const cuda::CurrentContext current(*gpu().context);
  std::size_t free_now = 0;
  std::size_t total = 0;
  EXPECT_EQ(gpu().context->driver->mem_get_info(&free_now, &total), cuda::CUDA_SUCCESS);
  return static_cast<std::int64_t>(free_now);
}

Stream::Stream(unsigned flags) { EXPECT_EQ(driver().stream_create(&stream, flags), cuda::CUDA_SUCCESS); }
Stream::~Stream() { EXPECT_EQ(driver().stream_destroy(stream), cuda::CUDA_SUCCESS); }
void Stream::synchronize() const { EXPECT_EQ(driver().stream_synchronize(stream), cuda::CUDA_SUCCESS); }

}  // namespace octile::test
