// SPDX-License-Identifier: Apache-2.0
// How much memory this process has, for tests that make and destroy something thousands of times.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace octile::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;  // Keeps freed memory for a while, and finds leaks itself.
#else
inline constexpr bool kSanitized = false;
#endif

inline std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0;
  std::int64_t resident = 0;
  statm >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace octile::test
