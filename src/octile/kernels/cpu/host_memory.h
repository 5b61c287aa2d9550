// SPDX-License-Identifier: Apache-2.0
// Memory for operands on the host: zeroed, aligned, on huge pages where it is large.
#pragma once

#include <octile/error.hpp>

#include <cstddef>
#include <cstdint>

namespace octile::cpu {

inline constexpr std::int64_t kHugePageBytes = std::int64_t{2} << 20;

// Owns `bytes` of zeroed memory: 64-byte aligned, and from 2 MiB up aligned to 2 MiB with huge pages asked for. Streaming
// weights over 4 KiB pages costs 15-20 % at M <= 16. Such large memory is mapped and not touched: its pages come into being
// where, and by the thread by which, they are first written.
class HostMemory {
 public:
  HostMemory() noexcept = default;
  // out_of_memory names the bytes. bytes >= 0; 0 gives a null pointer.
  static Expected<HostMemory> allocate(std::int64_t bytes);
  ~HostMemory();
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  void* data() const noexcept { return data_; }
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  HostMemory(void* data, std::int64_t bytes) noexcept : data_(data), bytes_(bytes) {}
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace octile::cpu
