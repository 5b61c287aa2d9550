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

}  // namespace octile::test
