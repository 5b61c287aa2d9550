// SPDX-License-Identifier: Apache-2.0
// OCTILE_VERBOSE: one line on stderr for each call of a linear's kernel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octile {

struct CallLine {
  std::string_view kernel;  // As `explain` names it.
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t x_bytes = 0, y_bytes = 0;
  double us = 0.0;
  bool is_done = true;  // False: the call was put into a stream, and `us` is what that took.
};

// "octile: avx512 M=1 N=4096 K=4096 352.1 us, 47.7 GB/s, 0.10 TFLOP/s" or "octile: ... enqueued in 3.1 us". GB/s of the
// codes, the activations and the output; both rates as `octile bench` counts them.
std::string call_line(const CallLine& call);
// To stderr by one write, so that lines of threads do not mix.
void print_call_line(const CallLine& call);

}  // namespace octile
