// SPDX-License-Identifier: Apache-2.0
// What every packer asks of a WeightSource before it reads it: shapes, strides, dtypes and scales of the contract.
#pragma once

#include <octile/linear.hpp>

#include <cstdint>

namespace octile {

// Row stride of `source` in elements (row_stride = 0 means k).
std::int64_t weight_row_stride(const WeightSource& source) noexcept;
// Scale of channel `n` as fp32, a scale for all expanded. Precondition: check_weight_source() passed.
float weight_scale(const WeightSource& source, std::int64_t n) noexcept;

// invalid_argument for n or k < 1 or n * row_stride > 2^46, codes other than e4m3, row_stride < k, null pointers, scales
// that are neither fp32, bf16 nor fp16, scale_count neither n nor 1, and a scale that is not finite, negative, or 0 for a
// channel with codes other than 0. The message prints what was wanted and what came.
Expected<void> check_weight_source(const WeightSource& source);

}  // namespace octile
