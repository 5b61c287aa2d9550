// SPDX-License-Identifier: Apache-2.0
// Activations of one call, quantised and laid out as tiles read them.
#pragma once

#include "octile/kernels/cpu/gemm_config.h"
#include "octile/kernels/family.h"

#include <cstdint>

namespace octile::cpu {

// Rows [row_begin, row_end) of `activation` (checked by the caller): e4m3 values as bf16 or fp32 (times the engine's factor)
// into their tiles, [k pair][row] pairs, padded with zeros to plan.padded_k; scales_x[row] the row's scale. A row with a NaN
// or an infinity gets zeros and the scale NaN.
void prepare_activations(const GemmPlan& plan, const Activation& activation, std::int64_t row_begin, std::int64_t row_end,
                         std::uint8_t* tiles, float* scales_x) noexcept;

}  // namespace octile::cpu
