// SPDX-License-Identifier: Apache-2.0
// Whether an output that was poisoned before the run is right: guards intact, everything written, samples near the
// reference, the whole near another kernel's output.
#pragma once

#include <octile/types.hpp>

#include "octile/quant/reference.h"

#include <cstdint>
#include <string>
#include <vector>

namespace octile {

inline constexpr std::int64_t kGuardBytes = 4096;
inline constexpr std::uint8_t kPoison = 0xFF;  // NaN in bf16, fp16 and fp32.

// An output [m, n] (row stride n) in the middle of a buffer, with kGuardBytes of guard on both sides.
struct GuardedOutput {
  const std::vector<std::uint8_t>& bytes;
  DType dtype = DType::bf16;
  std::int64_t m = 0;
  std::int64_t n = 0;
};

// Each returns what is wrong, or an empty string.
std::string check_guards(const GuardedOutput& output);
// No element may be NaN: inputs are finite, so a NaN is poison that was never overwritten, or a wrong result.
std::string check_all_written(const GuardedOutput& output);
// Elements (rows[i], columns[j]) against element i * columns.size() + j; `relative_error` receives the Frobenius error.
std::string check_samples(const GuardedOutput& output, const std::vector<std::int64_t>& rows,
                          const std::vector<std::int64_t>& columns, const Reference& reference, double tolerance,
                          double& relative_error);
// Row by row against an output that passed: two results within `tolerance` of the truth differ by no more than twice that.
std::string check_agreement(const GuardedOutput& output, const GuardedOutput& other, double tolerance);

}  // namespace octile
