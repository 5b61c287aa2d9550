// SPDX-License-Identifier: Apache-2.0
// Aligned host memory on huge pages.
#include "octile/kernels/cpu/host_memory.h"

#include "octile/core/format.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include <sys/mman.h>

namespace octile::cpu {
namespace {

constexpr std::size_t kHugePageBytes = 2U << 20U;
constexpr std::size_t kCacheLineBytes = 64;

}  // namespace

Expected<HostMemory> HostMemory::allocate(std::int64_t bytes) {
  if (bytes <= 0) {
    return HostMemory();
  }
  const auto wanted = static_cast<std::size_t>(bytes);
  const std::size_t alignment = wanted >= kHugePageBytes ? kHugePageBytes : kCacheLineBytes;
  const std::size_t rounded = (wanted + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded);
  if (data == nullptr) {
    return make_error(ErrorCode::out_of_memory, "cannot allocate {} bytes of host memory", bytes);
  }
  if (alignment == kHugePageBytes) {
    // Only advice: without transparent huge pages the memory is as correct and a little slower.
    (void)madvise(data, rounded, MADV_HUGEPAGE);
  }
  std::memset(data, 0, rounded);
  return HostMemory(data, bytes);
}

HostMemory::~HostMemory() { std::free(data_); }

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace octile::cpu
