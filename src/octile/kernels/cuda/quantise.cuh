// SPDX-License-Identifier: Apache-2.0
// Per-token quantisation: bf16 or fp16 rows -> e4m3 codes and one fp32 scale a row, to the bits of quant/quantize.h.
//
// One block a row: each thread keeps VECTORS x 8 elements in registers, so that a row is read once; longer rows are read
// again from L2. Limited by memory: 2 bytes in and 1 out an element at large M, at M = 1 by the latency of
// load -> block-wide maximum -> store. The row maximum is taken over the bit patterns of |x|, whose order as integers is the
// order of the magnitudes with infinity and NaN above every finite value, so that a maximum cannot launder a NaN.
//
// Defines: THREADS (block size), VECTORS (16-byte vectors a thread keeps), IN_TYPE (0 bf16, 1 fp16).
#include "ptx.cuh"

struct QuantiseParams {
  const void* x;  // [m, k], row stride x_stride elements.
  u8* codes;      // [m, codes_width], row stride codes_stride bytes.
  float* scales;  // [m]
  i64 k;
  i64 x_stride;
  i64 codes_stride;
  i64 codes_width;  // >= k: bytes [k, codes_width) of a row are written as zero.
  float floor;      // scale = min(max(amax, floor), upper_bound) / 448
  float upper_bound;
  float static_scale;  // > 0: the scale of every row.
  u32 reciprocal;      // 1: x * round(1 / scale) instead of x / scale.
  u32 x_aligned;       // 1: x and every row start at multiples of 16 bytes.
  u32 codes_aligned;   // 1: codes and every row start at multiples of 8 bytes.
};

static_assert(sizeof(QuantiseParams) == 80, "the host fills the same struct");

constexpr int kVectorElements = 8;
constexpr u32 kNonFinite = IN_TYPE == 0 ? 0x7F80u : 0x7C00u;  // |x| bits from here on are an infinity or NaN.

__device__ __forceinline__ float in_to_float(u32 bits) {
  if constexpr (IN_TYPE == 0) return __uint_as_float(bits << 16);
  return fp16_to_float(static_cast<u16>(bits));
}

// Elements [first, first + 8) of a row, zero beyond k.
__device__ __forceinline__ uint4 load_vector(const u16* row, i64 first, i64 k, bool aligned) {
  if (aligned && first + kVectorElements <= k) return load_relaxed_u32x4(row + first);
  u32 words[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < kVectorElements; ++i) {
    if (first + i < k) words[i / 2] |= load_relaxed_u16(row + first + i) << (16 * (i % 2));
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
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
// -0 into +0, hence the sign of x at the end. One branch a row chooses, since a branch an element costs more than the step.
enum Way {
  kStep,         // |q| <= 448 (1 + 2^-22): the scale is the row's own.
  kStepClamped,  // Larger quotients occur, and saturate without the step, which could make a NaN of an infinity.
  kDivide,
  kReciprocal,
};

template <Way kWay>
__device__ __forceinline__ float quotient(float x, float scale, float inverse) {
  if constexpr (kWay == kDivide) return __fdiv_rn(x, scale);
  const float q = __fmul_rn(x, inverse);
  if constexpr (kWay == kReciprocal) return q;
  const float stepped = __fmaf_rn(__fmaf_rn(-q, scale, x), inverse, q);
  const float signed_step = __uint_as_float(__float_as_uint(stepped) | (__float_as_uint(x) & 0x80000000u));
  if constexpr (kWay == kStep) return signed_step;
  return fabsf(q) < 1024.0f ? signed_step : q;
}

template <Way kWay>
__device__ __forceinline__ uint2 encode(const uint4& v, float scale, float inverse) {
  const u32 words[4] = {v.x, v.y, v.z, v.w};
  u32 pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    pairs[i] = floats_to_e4m3x2(quotient<kWay>(in_to_float(words[i] & 0xFFFFu), scale, inverse),
                                quotient<kWay>(in_to_float(words[i] >> 16), scale, inverse));
  }
  return make_uint2(pairs[0] | (pairs[1] << 16), pairs[2] | (pairs[3] << 16));
}

__device__ __forceinline__ void store_codes(u8* row, i64 first, i64 width, uint2 codes, bool aligned) {
  if (aligned && first + kVectorElements <= width) {
    *reinterpret_cast<uint2*>(row + first) = codes;
    return;
  }
#pragma unroll
  for (int i = 0; i < kVectorElements; ++i) {
    if (first + i < width) row[first + i] = static_cast<u8>((i < 4 ? codes.x : codes.y) >> (8 * (i % 4)));
  }
}

// Codes of elements [first, first + 8): zero from k on, also in a row of NaN.
__device__ __forceinline__ uint2 mask_tail(uint2 codes, i64 first, i64 k) {
  const i64 left = k - first;
  if (left >= kVectorElements) return codes;
  const u64 all = left <= 0 ? 0 : (~0ull >> (8 * (kVectorElements - left)));
  return make_uint2(codes.x & static_cast<u32>(all), codes.y & static_cast<u32>(all >> 32));
}

constexpr i64 kBetweenVectors = static_cast<i64>(THREADS) * kVectorElements;  // Elements between two vectors of a thread.
constexpr i64 kKept = kBetweenVectors * VECTORS;                              // Elements of a row that stay in registers.

// The row's codes from its kept vectors and, beyond them, from memory again.
template <Way kWay>
__device__ __forceinline__ void write_row(const QuantiseParams& p, const u16* row, u8* codes, const uint4 (&kept)[VECTORS],
                                          float scale) {
  const float inverse = __frcp_rn(scale);
  const i64 mine = static_cast<i64>(threadIdx.x) * kVectorElements;
  const bool aligned = p.codes_aligned != 0;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const i64 first = mine + v * kBetweenVectors;
    if (first >= p.codes_width) break;
    store_codes(codes, first, p.codes_width, mask_tail(encode<kWay>(kept[v], scale, inverse), first, p.k), aligned);
  }
  for (i64 first = mine + kKept; first < p.codes_width; first += kBetweenVectors) {
    const uint4 v = first < p.k ? load_vector(row, first, p.k, p.x_aligned != 0) : make_uint4(0, 0, 0, 0);
    store_codes(codes, first, p.codes_width, mask_tail(encode<kWay>(v, scale, inverse), first, p.k), aligned);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) octile_quantise(const QuantiseParams p) {
  constexpr int kWarps = THREADS / 32;
  __shared__ u32 warp_largest[kWarps];
  launch_dependents();
  dependency_wait();

  const i64 row_index = blockIdx.x;
  const u16* row = static_cast<const u16*>(p.x) + row_index * p.x_stride;
  u8* codes = p.codes + row_index * p.codes_stride;
  const bool x_aligned = p.x_aligned != 0;
  const i64 mine = static_cast<i64>(threadIdx.x) * kVectorElements;

  uint4 kept[VECTORS];
  u32 largest = 0;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const i64 first = mine + v * kBetweenVectors;
    kept[v] = first < p.k ? load_vector(row, first, p.k, x_aligned) : make_uint4(0, 0, 0, 0);
  }
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) largest = max(largest, largest_bits(kept[v]));
  for (i64 first = mine + kKept; first < p.k; first += kBetweenVectors) {
    largest = max(largest, largest_bits(load_vector(row, first, p.k, x_aligned)));
  }
  largest = __reduce_max_sync(0xFFFFFFFFu, largest);
  if constexpr (kWarps > 1) {
    if (threadIdx.x % 32 == 0) warp_largest[threadIdx.x / 32] = largest;
    __syncthreads();
    largest = threadIdx.x % 32 < kWarps ? warp_largest[threadIdx.x % 32] : 0;
    largest = __reduce_max_sync(0xFFFFFFFFu, largest);
  }

  const float amax = in_to_float(largest);
  const bool own_scale = !(p.static_scale > 0.0f);
  const float scale = own_scale ? __fdiv_rn(fminf(fmaxf(amax, p.floor), p.upper_bound), 448.0f) : p.static_scale;
  const bool finite = largest < kNonFinite;
  if (threadIdx.x == 0) p.scales[row_index] = finite ? scale : __uint_as_float(0x7FFFFFFFu);
  if (!finite) {
    for (i64 first = mine; first < p.codes_width; first += kBetweenVectors) {
      store_codes(codes, first, p.codes_width, mask_tail(make_uint2(0x7F7F7F7Fu, 0x7F7F7F7Fu), first, p.k),
                  p.codes_aligned != 0);
    }
  } else if (p.reciprocal != 0) {
    write_row<kReciprocal>(p, row, codes, kept, scale);
  } else if (!(scale >= 0x1p-90f && scale <= 0x1p100f)) {
    write_row<kDivide>(p, row, codes, kept, scale);
  } else if (own_scale && amax <= p.upper_bound) {
    write_row<kStep>(p, row, codes, kept, scale);
  } else {
    write_row<kStepClamped>(p, row, codes, kept, scale);
  }
}

// Codes whose rows do not start at multiples of 16 bytes, copied to rows that do: one block a row, a byte a thread at a
// time. For callers with their own codes and an odd row stride; the quantiser above never needs it.
struct CopyCodesParams {
  const u8* source;  // [m, k], row stride source_stride bytes.
  u8* target;        // [m, width], row stride = width; bytes [k, width) become zero.
  i64 k;
  i64 source_stride;
  i64 width;
};

extern "C" __global__ void __launch_bounds__(THREADS) octile_copy_codes(const CopyCodesParams p) {
  launch_dependents();
  dependency_wait();
  const u8* source = p.source + static_cast<i64>(blockIdx.x) * p.source_stride;
  u8* target = p.target + static_cast<i64>(blockIdx.x) * p.width;
  for (i64 i = threadIdx.x; i < p.width; i += THREADS) {
    target[i] = i < p.k ? static_cast<u8>(load_relaxed_u8(source + i)) : u8{0};
  }
}
