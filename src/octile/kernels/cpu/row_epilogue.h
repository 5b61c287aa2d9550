// SPDX-License-Identifier: Apache-2.0
// The contract's epilogue on rows of finished sums, for kernels that cannot apply it themselves.
#pragma once

#include "octile/kernels/cpu/cpu_features.h"

#include <octile/types.hpp>

#include <cstdint>

namespace octile::cpu {

// y[i] = convert((acc[i] * scales_w[i]) * scale_x + bias[i]) for i in [0, count), in fp32 and in this order, with one
// rounding at the end. `bias` may be nullptr.
void finish_row(const float* acc, const float* scales_w, float scale_x, const float* bias, std::int64_t count, void* y,
                DType dtype, Isa isa) noexcept;

}  // namespace octile::cpu
