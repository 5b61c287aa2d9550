// SPDX-License-Identifier: Apache-2.0
// The epilogue, plain and for AVX2. It is bound by memory (4 bytes of sums in, 2 out an element), so AVX2 serves the wider
// instruction sets too.
#include "octile/kernels/cpu/row_epilogue.h"

#include "octile/core/float_formats.h"
#include "octile/kernels/cpu/avx2_common.h"

#include <algorithm>

namespace octile::cpu {
namespace {

void finish_plain(const float* acc, const float* scales_w, float scale_x, const float* bias, std::int64_t count, void* y,
                  DType dtype) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    const float scaled = (acc[i] * scales_w[i]) * scale_x;
    store_from_float(y, dtype, i, bias == nullptr ? scaled : scaled + bias[i]);
  }
}

#if defined(__x86_64__)

// Elements [0, count rounded down to 8); returns how many those are.
OCTILE_AVX2 std::int64_t finish_avx2(const float* acc, const float* scales_w, float scale_x, const float* bias,
                                     std::int64_t count, void* y, DType dtype) noexcept {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m256 value = _mm256_mul_ps(_mm256_loadu_ps(acc + i), _mm256_loadu_ps(scales_w + i));
    value = _mm256_mul_ps(value, _mm256_set1_ps(scale_x));
    if (bias != nullptr) {
      value = _mm256_add_ps(value, _mm256_loadu_ps(bias + i));
    }
    store8(y, dtype, i, value);
  }
  return i;
}

#endif

}  // namespace

void finish_row(const float* acc, const float* scales_w, float scale_x, const float* bias, std::int64_t count, void* y,
                DType dtype, Isa isa) noexcept {
  std::int64_t done = 0;
#if defined(__x86_64__)
  if (isa >= Isa::avx2) {
    done = finish_avx2(acc, scales_w, scale_x, bias, count, y, dtype);
  }
#else
  static_cast<void>(isa);
#endif
  finish_plain(acc + done, scales_w + done, scale_x, bias == nullptr ? nullptr : bias + done, count - done,
               static_cast<unsigned char*>(y) + done * size_of(dtype), dtype);
}

}  // namespace octile::cpu
