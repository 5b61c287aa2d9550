// SPDX-License-Identifier: Apache-2.0
// Pieces of AVX-512 code shared by the two AVX-512 engines; each function carries its instruction set itself.
#pragma once

#if defined(__x86_64__)

#include "octile/kernels/cpu/engine.h"

#include <algorithm>
#include <cstdint>

#include "octile/kernels/cpu/x86_intrinsics.h"

#define OCTILE_AVX512 __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")))
#define OCTILE_AVX512_INLINE \
  __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq"), always_inline)) inline
#define OCTILE_AVX512_DOT __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512bf16")))
#define OCTILE_AVX512_DOT_INLINE \
  __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512bf16"), always_inline)) inline

namespace octile::cpu {

inline constexpr std::int64_t kZmmFloats = 16;

// fp32 to bf16: nearest, ties to even, NaN stays NaN. VCVTNEPS2BF16 is no substitute: it flushes subnormals.
OCTILE_AVX512_INLINE __m256i round_to_bf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  const __m512i result = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x00400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(result, 16));
}

// The epilogue of one row and panel: y = convert((acc * scale_w) * scale_x + bias), in this order, in fp32.
OCTILE_AVX512_INLINE void write_panel(__m512 acc, std::int64_t row, std::int64_t panel, const OutputTile& out) {
  const std::int64_t n = panel * kPanelColumns;
  const std::int64_t count = std::min(kPanelColumns, out.columns - n);
  if (count <= 0) {
    return;
  }
  const auto mask = static_cast<__mmask16>((1U << static_cast<unsigned>(count)) - 1U);
  __m512 value = _mm512_mul_ps(acc, _mm512_loadu_ps(out.scales_w + n));
  value = _mm512_mul_ps(value, _mm512_set1_ps(out.scales_x[row]));
  if (out.bias != nullptr) {
    value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, out.bias + n));
  }
  const std::int64_t element = row * out.y_row_stride + n;
  if (out.dtype == DType::fp32) {
    _mm512_mask_storeu_ps(static_cast<float*>(out.y) + element, mask, value);
    return;
  }
  const __m256i halves = out.dtype == DType::fp16 ? _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
                                                  : round_to_bf16(value);
  _mm256_mask_storeu_epi16(static_cast<std::uint16_t*>(out.y) + element, mask, halves);
}

}  // namespace octile::cpu

#endif
