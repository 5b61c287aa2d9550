// SPDX-License-Identifier: Apache-2.0
// Exact conversions between fp32 and e4m3 (OCP E4M3FN), bf16 and fp16, in plain code: the oracle for every faster path.
#pragma once

#include <octile/types.hpp>

#include <cstdint>

namespace octile {

inline constexpr float kE4m3Max = 448.0F;
inline constexpr std::uint8_t kE4m3NaN = 0x7F;

// All conversions to a narrower type round to nearest, ties to even. NaN stays NaN.
float e4m3_to_float(std::uint8_t code) noexcept;
std::uint8_t float_to_e4m3_saturate(float value) noexcept;  // Beyond +-448, infinities too: +-448.
float bf16_to_float(std::uint16_t bits) noexcept;
std::uint16_t float_to_bf16(float value) noexcept;
float fp16_to_float(std::uint16_t bits) noexcept;
std::uint16_t float_to_fp16(float value) noexcept;  // Overflow to infinity as IEEE says.

// Element `index` of an array of `dtype` (bf16, fp16, fp32, e4m3) as fp32.
float load_as_float(const void* data, DType dtype, std::int64_t index) noexcept;
// The same for elements [first, first + count).
void load_floats(const void* data, DType dtype, std::int64_t first, std::int64_t count, float* values) noexcept;
// Stores with one rounding into bf16, fp16 or fp32.
void store_from_float(void* data, DType dtype, std::int64_t index, float value) noexcept;
void store_floats(void* data, DType dtype, std::int64_t first, std::int64_t count, const float* values) noexcept;

}  // namespace octile
