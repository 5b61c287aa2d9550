// SPDX-License-Identifier: Apache-2.0
// Aligned host memory on huge pages.
#include "octile/kernels/cpu/host_memory.h"

#include "octile/core/format.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include <sys/mman.h>

namespace octile::cpu {
namespace {

constexpr std::size_t kCacheLineBytes = 64;

constexpr bool is_mapped(std::int64_t bytes) noexcept { return bytes >= kHugePageBytes; }

// The length of the mapping of `bytes`.
std::size_t mapped_bytes(std::int64_t bytes) noexcept {
  return static_cast<std::size_t>((bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes);
}

// Zeros at a multiple of 2 MiB; nullptr where there is no memory.
void* map_huge_pages(std::size_t bytes) noexcept {
  const auto alignment = static_cast<std::size_t>(kHugePageBytes);
  void* whole = mmap(nullptr, bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) {
    return nullptr;
  }
  auto* first = static_cast<std::byte*>(whole);
  const std::size_t before = (alignment - reinterpret_cast<std::uintptr_t>(whole) % alignment) % alignment;
  // What is left over at both ends goes back; where the kernel does not want it, it stays, untouched.
  if (before > 0) {
    static_cast<void>(munmap(first, before));
  }
  if (before < alignment) {
    static_cast<void>(munmap(first + before + bytes, alignment - before));
  }
  // Only advice: without transparent huge pages the memory is as correct and a little slower.
  static_cast<void>(madvise(first + before, bytes, MADV_HUGEPAGE));
  return first + before;
}

}  // namespace

Expected<HostMemory> HostMemory::allocate(std::int64_t bytes) {
  if (bytes <= 0) {
    return HostMemory();
  }
  void* data = nullptr;
  if (is_mapped(bytes)) {
    data = bytes > std::numeric_limits<std::int64_t>::max() - 2 * kHugePageBytes ? nullptr
                                                                                 : map_huge_pages(mapped_bytes(bytes));
  } else {
    const std::size_t rounded = (static_cast<std::size_t>(bytes) + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
    data = std::aligned_alloc(kCacheLineBytes, rounded);
    if (data != nullptr) {
      std::memset(data, 0, rounded);
    }
  }
  if (data == nullptr) {
    return make_error(ErrorCode::out_of_memory, "cannot allocate {} bytes of host memory", bytes);
  }
  return HostMemory(data, bytes);
}

HostMemory::~HostMemory() {
  if (is_mapped(bytes_)) {
    static_cast<void>(munmap(data_, mapped_bytes(bytes_)));
  } else {
    std::free(data_);
  }
}

HostMemory::HostMemory(HostMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace octile::cpu
