// SPDX-License-Identifier: Apache-2.0
// How long one sample of a kernel lasts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace octile {

// A sample lasts at least this long, so that an interrupt or a timer's resolution is no large part of it.
inline constexpr double kSampleUs = 4000;

// Calls in a sample, the same for all that are compared, when the fastest takes `fastest_us` a call.
inline std::int64_t calls_a_sample(double fastest_us) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(kSampleUs / std::max(fastest_us, 0.01))));
}
// Seconds of one sample of a kernel of `us` a call, where it is the fastest.
inline double sample_s(double us) { return std::max(us, kSampleUs) * 1e-6; }

}  // namespace octile
