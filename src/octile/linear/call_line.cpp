// SPDX-License-Identifier: Apache-2.0
#include "octile/linear/call_line.h"

#include "octile/core/format.h"

#include <cstdio>

namespace octile {

std::string call_line(const CallLine& call) {
  std::string line = format("octile: {} M={} N={} K={} ", call.kernel, call.m, call.n, call.k);
  if (!call.is_done) {
    return line + format("enqueued in {:.1f} us", call.us);
  }
  const double weight = static_cast<double>(call.n) * static_cast<double>(call.k);
  const double bytes = weight + static_cast<double>(call.x_bytes + call.y_bytes);
  const double us = call.us > 0.0 ? call.us : 1e-3;  // A clock that did not move.
  return line + format("{:.1f} us, {:.1f} GB/s, {:.2f} TFLOP/s", call.us, bytes / us * 1e-3,
                       2.0 * weight * static_cast<double>(call.m) / us * 1e-6);
}

void print_call_line(const CallLine& call) {
  const std::string line = call_line(call) + "\n";
  static_cast<void>(std::fwrite(line.data(), 1, line.size(), stderr));
}

}  // namespace octile
