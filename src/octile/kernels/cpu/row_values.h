// SPDX-License-Identifier: Apache-2.0
// Activations and weights as plain rows of e4m3 values, in bf16 or fp32 (exact in both), for kernels that take such rows.
#pragma once

#include "octile/kernels/cpu/cpu_features.h"
#include "octile/kernels/family.h"

#include <cstddef>
#include <cstdint>

namespace octile::cpu {

// values[i] of `dtype` (bf16 or fp32) = the value of codes[i]; a NaN code gives NaN.
void decode_codes(const std::uint8_t* codes, std::int64_t count, DType dtype, std::byte* values) noexcept;

// The scale of one row: given with the codes, static, or by its largest magnitude; NaN where raw x is not finite.
float row_scale(const Activation& activation, std::int64_t row, Isa isa) noexcept;
// The row's e4m3 values; zeros where `scale` is NaN.
void row_values(const Activation& activation, std::int64_t row, float scale, DType dtype, std::byte* values,
                Isa isa) noexcept;

// Shapes, strides, dtypes and options of a call's activations.
Expected<void> check_activation(const Activation& activation, std::int64_t k);

}  // namespace octile::cpu
