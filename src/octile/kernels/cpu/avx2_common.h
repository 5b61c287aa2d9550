// SPDX-License-Identifier: Apache-2.0
// Pieces of AVX2 code shared by the engines. Every function carries its instruction set itself, so that the file that
// includes this is compiled with the project's plain flags and the binary still runs where AVX2 does not exist.
#pragma once

#if defined(__x86_64__)

#include <octile/types.hpp>

#include "octile/core/float_formats.h"

#include <cstdint>

#include "octile/kernels/cpu/x86_intrinsics.h"

#define OCTILE_AVX2 __attribute__((target("avx2,fma,f16c")))
#define OCTILE_AVX2_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) inline

namespace octile::cpu {

// fp32 to bf16 in the low halves of 32-bit lanes: nearest, ties to even, NaN stays NaN. VCVTNEPS2BF16 is no substitute: it
// flushes subnormals.
OCTILE_AVX2_INLINE __m256i round_to_bf16_bits(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
  const __m256 is_nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
  return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(is_nan)), 16);
}

OCTILE_AVX2_INLINE void store8(void* data, DType dtype, std::int64_t element, __m256 value) {
  if (dtype == DType::fp32) {
    _mm256_storeu_ps(static_cast<float*>(data) + element, value);
    return;
  }
  auto* out = reinterpret_cast<__m128i*>(static_cast<std::uint16_t*>(data) + element);
  if (dtype == DType::fp16) {
    _mm_storeu_si128(out, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return;
  }
  const __m256i bits = round_to_bf16_bits(value);
  _mm_storeu_si128(out, _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1)));
}

// The first `count` of 8 values.
OCTILE_AVX2_INLINE void store_some(void* data, DType dtype, std::int64_t element, __m256 value, std::int64_t count) {
  if (count >= 8) {
    store8(data, dtype, element, value);
    return;
  }
  alignas(32) float values[8];
  _mm256_store_ps(values, value);
  for (std::int64_t i = 0; i < count; ++i) {
    store_from_float(data, dtype, element + i, values[i]);
  }
}

}  // namespace octile::cpu

#endif
