// SPDX-License-Identifier: Apache-2.0
// How long one sample of a kernel lasts.
#pragma once

#include "octile/kernels/device.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace octile {

// A sample is long enough that an interrupt or a timer's resolution is no large part of it: 4 ms on a CPU; 1.5 ms on a GPU,
// which no other program interrupts and whose events resolve half a microsecond.
class Sampling {
 public:
  explicit Sampling(DeviceKind kind) noexcept : us_(kind == DeviceKind::cuda ? 1500 : 4000) {}

  // Calls in a sample, the same for all that are compared, when the fastest takes `fastest_us` a call.
  std::int64_t calls(double fastest_us) const {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(us_ / std::max(fastest_us, 0.01))));
  }
  // Seconds of one sample of a kernel of `us` a call, where it is the fastest.
  double seconds(double us) const { return std::max(us, us_) * 1e-6; }

 private:
  double us_;
};

}  // namespace octile
