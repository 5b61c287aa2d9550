// SPDX-License-Identifier: Apache-2.0
// RMSNorm and SwiGLU in plain code: the contract of the producers, one row at a time. Every operation is fp32 and rounds to
// nearest even; "the type" is the activations', bf16 or fp16.
//
//   s[i]  = type(x[i] + residual[i])                           without a residual s = x
//   S     = sum of fp32(s[i] * s[i])                           in the order below
//   r     = 1 / sqrt(S * fp32(1 / K) + epsilon)                each step rounded; NaN where S is not finite
//   y[i]  = type(type(s[i] * r) * gamma[i])
//
//   y[i]  = type(type(silu(gate[i])) * up[i])                  silu(g) = g / (1 + exp(-g))
//
// The order of S depends on nothing but K, so that a row's bits depend neither on the other rows nor on who computes them:
// elements k = p, p + 4096, p + 8192, ... are added one after the other into position p, beginning with 0; then the 4096
// positions are halved twelve times: two that differ in one bit of p are added, bit after bit in the order 0, 1, 2, 10, 11,
// 3, 4, 5, 6, 7, 8, 9. (Bits 0 to 2 lie in one 16-byte vector; with this order a block of 128, 256 or 512 threads on a GPU
// reads whole cache lines and needs one exchange between its warps.) Missing elements count as 0.
#pragma once

#include <octile/types.hpp>

#include <cstdint>

namespace octile {

// sum[i] = type(x[i] + residual[i]); `sum` may be either of them.
void add_rounded(const void* x, const void* residual, DType dtype, std::int64_t count, void* sum) noexcept;

// S of a row.
float sum_of_squares(const void* s, DType dtype, std::int64_t k) noexcept;
// r of a row.
float rms_norm_factor(float sum_of_squares, std::int64_t k, float epsilon) noexcept;
// y[i] for `count` elements that begin at the pointers; `y` may be s.
void rms_norm_elements(const void* s, const void* gamma, DType dtype, std::int64_t count, float factor, void* y) noexcept;

// silu() is computed in double and rounded to fp32 and then to the type: a table of all 65,536 inputs (256 KiB), which this
// makes once for each type, in about 3 ms.
void prepare_swiglu(DType dtype);
// y[i] for `count` elements. Precondition: prepare_swiglu().
void swiglu_elements(const void* gate, const void* up, DType dtype, std::int64_t count, void* y) noexcept;

}  // namespace octile
