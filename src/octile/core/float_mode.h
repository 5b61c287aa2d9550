// SPDX-License-Identifier: Apache-2.0
// The floating-point mode of a thread. A program may have set its threads to flush subnormals to zero
// (torch.set_flush_denormal, any library that was linked with -ffast-math) or to round otherwise; bits must depend neither
// on that nor on which thread of ours took a row.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace octile {

// To the nearest, subnormals kept, no traps: for the life of the object; then what the thread had.
class ScopedFloatMode {
 public:
#if defined(__x86_64__)
  ScopedFloatMode() noexcept : before_(_mm_getcsr()) {
    if ((before_ & ~kFlags) != kDefault) {
      _mm_setcsr(kDefault);
    }
  }
  ~ScopedFloatMode() {
    if ((before_ & ~kFlags) != kDefault) {
      _mm_setcsr(before_);
    }
  }
#else
  ScopedFloatMode() noexcept { known_ = std::fegetenv(&before_) == 0 && std::fesetenv(FE_DFL_ENV) == 0; }
  ~ScopedFloatMode() {
    if (known_) {
      static_cast<void>(std::fesetenv(&before_));
    }
  }
#endif
  ScopedFloatMode(const ScopedFloatMode&) = delete;
  ScopedFloatMode& operator=(const ScopedFloatMode&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kFlags = 0x3F;      // Of MXCSR: which exceptions there were.
  static constexpr unsigned kDefault = 0x1F80;  // As the system starts a process.
  unsigned before_;
#else
  std::fenv_t before_{};
  bool known_ = false;
#endif
};

}  // namespace octile
