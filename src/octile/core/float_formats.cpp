// SPDX-License-Identifier: Apache-2.0
// Bit-level conversions. Every one is exact or rounds once, to nearest with ties to even, by integer arithmetic on the bits,
// so that neither the rounding mode nor flush-to-zero of the calling thread changes a result.
#include "octile/core/float_formats.h"

#include <bit>
#include <cstring>

namespace octile {
namespace {

constexpr std::uint32_t kSign = 0x80000000U;
constexpr std::uint32_t kInfinity = 0x7F800000U;

// `bits` shifted right by `shift` (1..31), rounded to nearest, ties to even.
constexpr std::uint32_t shift_right_to_even(std::uint32_t bits, int shift) noexcept {
  const std::uint32_t kept = bits >> shift;
  const std::uint32_t rest = bits & ((1U << shift) - 1U);
  const std::uint32_t half = 1U << (shift - 1);
  return kept + ((rest > half || (rest == half && (kept & 1U) != 0U)) ? 1U : 0U);
}

// Rounds a finite fp32 magnitude (sign cleared) to a format of `mantissa` bits whose smallest normal exponent is
// `min_exponent`. Returns exponent field and mantissa of that format as one number, unbounded above.
constexpr std::uint32_t round_magnitude(std::uint32_t magnitude, int mantissa, int min_exponent) noexcept {
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent >= min_exponent) {
    // A carry out of the mantissa lands in the exponent, which is what rounding up to the next power of two means.
    const std::uint32_t rebiased = magnitude - (static_cast<std::uint32_t>(min_exponent - 1 + 127) << 23);
    return shift_right_to_even(rebiased, 23 - mantissa);
  }
  const int lost = 23 - mantissa + (min_exponent - exponent);
  // fp32 subnormals (biased exponent 0) are far below half the smallest subnormal of fp16 and e4m3.
  if (lost > 24 || (magnitude >> 23) == 0) {
    return 0;
  }
  return shift_right_to_even((magnitude & 0x007FFFFFU) | 0x00800000U, lost);
}

}  // namespace

float e4m3_to_float(std::uint8_t code) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7FU;
  if (magnitude == kE4m3NaN) {
    return std::bit_cast<float>(sign | 0x7FC00000U);
  }
  if (magnitude < 8) {  // Subnormal: magnitude * 2^-9.
    const float value = static_cast<float>(magnitude) * 0x1p-9F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + ((127U - 7U) << 23)));
}

std::uint8_t float_to_e4m3_saturate(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & kSign) >> 24;
  const std::uint32_t magnitude = bits & ~kSign;
  if (magnitude > kInfinity) {
    return static_cast<std::uint8_t>(sign | kE4m3NaN);
  }
  if (magnitude >= std::bit_cast<std::uint32_t>(kE4m3Max)) {
    return static_cast<std::uint8_t>(sign | 0x7EU);
  }
  return static_cast<std::uint8_t>(sign | round_magnitude(magnitude, 3, -6));
}

float bf16_to_float(std::uint16_t bits) noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t float_to_bf16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & ~kSign) > kInfinity) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x0040U);  // Stays a NaN even if its payload sat in the low half.
  }
  return static_cast<std::uint16_t>(shift_right_to_even(bits, 16));
}

float fp16_to_float(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U) {
    return std::bit_cast<float>(sign | kInfinity | ((magnitude & 0x03FFU) << 13));
  }
  if (magnitude < 0x0400U) {  // Subnormal: magnitude * 2^-24.
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + ((127U - 15U) << 23)));
}

std::uint16_t float_to_fp16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & kSign) >> 16;
  const std::uint32_t magnitude = bits & ~kSign;
  if (magnitude > kInfinity) {
    return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x03FFU));
  }
  if (magnitude >= std::bit_cast<std::uint32_t>(65536.0F)) {
    return static_cast<std::uint16_t>(sign | 0x7C00U);
  }
  // 65520 and above round up into the exponent of infinity by themselves.
  return static_cast<std::uint16_t>(sign | round_magnitude(magnitude, 10, -14));
}

float load_as_float(const void* data, DType dtype, std::int64_t index) noexcept {
  const auto* bytes = static_cast<const unsigned char*>(data) + index * size_of(dtype);
  std::uint16_t half = 0;
  float single = 0;
  switch (dtype) {
    case DType::bf16:
      std::memcpy(&half, bytes, sizeof half);
      return bf16_to_float(half);
    case DType::fp16:
      std::memcpy(&half, bytes, sizeof half);
      return fp16_to_float(half);
    case DType::fp32:
      std::memcpy(&single, bytes, sizeof single);
      return single;
    case DType::e4m3:
      return e4m3_to_float(*bytes);
    case DType::e4m3fnuz:
      break;
  }
  return std::bit_cast<float>(0x7FC00000U);
}

void store_from_float(void* data, DType dtype, std::int64_t index, float value) noexcept {
  auto* bytes = static_cast<unsigned char*>(data) + index * size_of(dtype);
  if (dtype == DType::fp32) {
    std::memcpy(bytes, &value, sizeof value);
    return;
  }
  const std::uint16_t half = dtype == DType::fp16 ? float_to_fp16(value) : float_to_bf16(value);
  std::memcpy(bytes, &half, sizeof half);
}

void load_floats(const void* data, DType dtype, std::int64_t first, std::int64_t count, float* values) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = load_as_float(data, dtype, first + i);
  }
}

void store_floats(void* data, DType dtype, std::int64_t first, std::int64_t count, const float* values) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    store_from_float(data, dtype, first + i, values[i]);
  }
}

}  // namespace octile
