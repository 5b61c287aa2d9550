// SPDX-License-Identifier: Apache-2.0
// A row's largest magnitude, its scale and its codes, to the bits of quant/quantize.h, for kernels that make the row they
// quantise. The row maximum is taken over the bit patterns of |x|, whose order as integers is the order of the magnitudes
// with infinity and NaN above every finite value, so that a maximum cannot launder a NaN.
//
// octile_quantise has this code in its own file: the text of quantise.cuh is a key of every table entry that was measured
// with it, so it changes with the next measurement and not before.
//
// Defines: IN_TYPE (0 bf16, 1 fp16).
#pragma once

#include "ptx.cuh"

// The options of the contract.
struct QuantiseRule {
  float floor;  // scale = min(max(amax, floor), upper_bound) / 448
  float upper_bound;
  float static_scale;  // > 0: the scale of every row.
  u32 reciprocal;      // 1: x * round(1 / scale) instead of x / scale.
};

constexpr u32 kVectorElements = 8;
constexpr u32 kNonFinite = IN_TYPE == 0 ? 0x7F80u : 0x7C00u;  // |x| bits from here on are an infinity or NaN.

__device__ __forceinline__ float in_to_float(u32 bits) {
  if constexpr (IN_TYPE == 0) return __uint_as_float(bits << 16);
  return fp16_to_float(static_cast<u16>(bits));
}
__device__ __forceinline__ float low_half(u32 pair) { return in_to_float(pair & 0xFFFFu); }
__device__ __forceinline__ float high_half(u32 pair) {
  if constexpr (IN_TYPE == 0) return __uint_as_float(pair & 0xFFFF0000u);
  return in_to_float(pair >> 16);
}

__device__ __forceinline__ u32 largest_bits(const uint4& v) {
  const u32 words[4] = {v.x, v.y, v.z, v.w};
  u32 largest = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) largest = max(largest, max(words[i] & 0x7FFFu, (words[i] >> 16) & 0x7FFFu));
  return largest;
}

// How a row's elements become codes. The quotient x / scale is correctly rounded in all but kReciprocal: with r = round(1 /
// scale) and q = round(x * r), one step q + r * (x - q * scale) gives the rounded quotient as long as nothing under- or
// overflows, which holds for scales in [2^-90, 2^100] and |q| < 1024; elsewhere the division itself is used. The step turns
// -0 into +0, hence the sign of x at the end.
enum Way {
  kStep,         // |q| <= 448 (1 + 2^-22): the scale is the row's own.
  kStepClamped,  // Larger quotients occur, and saturate without the step, which could make a NaN of an infinity.
  kDivide,
  kReciprocal,
};

// What a row's maximum decides.
struct RowScale {
  float scale;    // NaN for a row with an infinity or a NaN.
  float inverse;  // round(1 / scale)
  Way way;
  bool finite;
};

__device__ __forceinline__ RowScale row_scale(const QuantiseRule& rule, u32 largest) {
  RowScale result;
  const float amax = in_to_float(largest);
  const bool own = !(rule.static_scale > 0.0f);
  const float scale = own ? __fdiv_rn(fminf(fmaxf(amax, rule.floor), rule.upper_bound), 448.0f) : rule.static_scale;
  result.finite = largest < kNonFinite;
  result.scale = result.finite ? scale : __uint_as_float(0x7FFFFFFFu);
  result.inverse = __frcp_rn(scale);
  if (rule.reciprocal != 0) {
    result.way = kReciprocal;
  } else if (!(scale >= 0x1p-90f && scale <= 0x1p100f)) {
    result.way = kDivide;
  } else {
    result.way = own && amax <= rule.upper_bound ? kStep : kStepClamped;
  }
  return result;
}

__device__ __forceinline__ float quotient_step(float x, float q, const RowScale& s) {
  const float stepped = __fmaf_rn(__fmaf_rn(-q, s.scale, x), s.inverse, q);
  return __uint_as_float(__float_as_uint(stepped) | (__float_as_uint(x) & 0x80000000u));
}
// In any way but kStep, which most rows take: for code that need not be as fast.
__device__ __forceinline__ float quotient_any(float x, const RowScale& s) {
  if (s.way == kDivide) return __fdiv_rn(x, s.scale);
  const float q = __fmul_rn(x, s.inverse);
  return s.way == kReciprocal || !(fabsf(q) < 1024.0f) ? q : quotient_step(x, q, s);
}

// The codes of 8 elements of a finite row.
template <bool kOnlyStep>
__device__ __forceinline__ uint2 encode(const uint4& v, const RowScale& s) {
  const u32 words[4] = {v.x, v.y, v.z, v.w};
  u32 pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float low = low_half(words[i]);
    const float high = high_half(words[i]);
    if constexpr (kOnlyStep) {
      pairs[i] = floats_to_e4m3x2(quotient_step(low, __fmul_rn(low, s.inverse), s),
                                  quotient_step(high, __fmul_rn(high, s.inverse), s));
    } else {
      pairs[i] = floats_to_e4m3x2(quotient_any(low, s), quotient_any(high, s));
    }
  }
  return make_uint2(pairs[0] | (pairs[1] << 16), pairs[2] | (pairs[3] << 16));
}
