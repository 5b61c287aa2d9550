// SPDX-License-Identifier: Apache-2.0
// Rows of activations to the e4m3 grid, eight elements at a time, with the bits of quant/quantize.h.
#include "octile/kernels/cpu/quantize_avx2.h"

#if defined(__x86_64__)

#include "octile/core/float_formats.h"
#include "octile/kernels/cpu/avx2_common.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace octile::cpu {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Magnitudes compare as integers do, and infinities and NaNs come out above every finite one.
OCTILE_AVX2 std::uint32_t largest_magnitude_16(const std::uint16_t* x, std::int64_t count) {
  const __m256i mask = _mm256_set1_epi16(0x7FFF);
  __m256i largest = _mm256_setzero_si256();
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    largest = _mm256_max_epu16(largest, _mm256_and_si256(bits, mask));
  }
  alignas(32) std::uint16_t lanes[16];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), largest);
  std::uint32_t result = *std::max_element(lanes, lanes + 16);
  for (; i < count; ++i) {
    result = std::max(result, x[i] & std::uint32_t{0x7FFF});
  }
  return result;
}

OCTILE_AVX2 std::uint32_t largest_magnitude_32(const float* x, std::int64_t count) {
  const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i largest = _mm256_setzero_si256();
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, mask));
  }
  alignas(32) std::uint32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), largest);
  std::uint32_t result = *std::max_element(lanes, lanes + 8);
  for (; i < count; ++i) {
    result = std::max(result, std::bit_cast<std::uint32_t>(x[i]) & 0x7FFFFFFFU);
  }
  return result;
}

float row_amax(const void* x, DType dtype, std::int64_t count) noexcept {
  if (dtype == DType::fp32) {
    const std::uint32_t bits = largest_magnitude_32(static_cast<const float*>(x), count);
    return bits >= 0x7F800000U ? kNaN : std::bit_cast<float>(bits);
  }
  const std::uint32_t bits = largest_magnitude_16(static_cast<const std::uint16_t*>(x), count);
  if (dtype == DType::fp16) {
    return bits >= 0x7C00U ? kNaN : fp16_to_float(static_cast<std::uint16_t>(bits));
  }
  return bits >= 0x7F80U ? kNaN : bf16_to_float(static_cast<std::uint16_t>(bits));
}

OCTILE_AVX2_INLINE __m256 load8(const void* x, DType dtype, std::int64_t element) {
  if (dtype == DType::fp32) {
    return _mm256_loadu_ps(static_cast<const float*>(x) + element);
  }
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const std::uint16_t*>(x) + element));
  if (dtype == DType::fp16) {
    return _mm256_cvtph_ps(halves);
  }
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

// To the nearest value of the e4m3 grid, ties to even, saturated. Adding and subtracting 2^(e + 20), where e is the
// exponent of the magnitude but at least -6 (where e4m3's subnormals begin), rounds to multiples of 2^(e - 3): the last
// place of fp32 in [2^(e + 20), 2^(e + 21)).
OCTILE_AVX2_INLINE __m256 to_grid(__m256 value) {
  const __m256 sign_mask = _mm256_set1_ps(-0.0F);
  const __m256 magnitude = _mm256_min_ps(_mm256_andnot_ps(sign_mask, value), _mm256_set1_ps(kE4m3Max));
  const __m256i at_least_normal =
      _mm256_max_epi32(_mm256_castps_si256(magnitude), _mm256_castps_si256(_mm256_set1_ps(0x1p-6F)));
  const __m256i exponent = _mm256_and_si256(at_least_normal, _mm256_set1_epi32(0x7F800000));
  const __m256 magic = _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32(20 << 23)));
  const __m256 rounded = _mm256_sub_ps(_mm256_add_ps(magnitude, magic), magic);
  return _mm256_or_ps(rounded, _mm256_and_ps(sign_mask, value));
}

OCTILE_AVX2_INLINE __m256 scaled(__m256 value, __m256 scale, __m256 reciprocal, Division division) {
  return division == Division::exact ? _mm256_div_ps(value, scale) : _mm256_mul_ps(value, reciprocal);
}

OCTILE_AVX2 void round_to_grid(const void* x, DType dtype, std::int64_t offset, std::int64_t count, float scale,
                               Division division, float* values) noexcept {
  const __m256 scales = _mm256_set1_ps(scale);
  const __m256 reciprocals = _mm256_set1_ps(1.0F / scale);
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(values + i, to_grid(scaled(load8(x, dtype, offset + i), scales, reciprocals, division)));
  }
  if (i < count) {
    alignas(32) float tail[8] = {};
    for (std::int64_t j = i; j < count; ++j) {
      tail[j - i] = load_as_float(x, dtype, offset + j);
    }
    _mm256_store_ps(tail, to_grid(scaled(_mm256_load_ps(tail), scales, reciprocals, division)));
    std::copy_n(tail, count - i, values + i);
  }
}

}  // namespace

const QuantizeOps kQuantizeAvx2 = {row_amax, round_to_grid};

}  // namespace octile::cpu

#endif
