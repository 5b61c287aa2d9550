// SPDX-License-Identifier: Apache-2.0
// Per-token quantisation, in plain code: the contract that every kernel's quantiser meets bit for bit.
#pragma once

#include <octile/types.hpp>

#include <cstdint>

namespace octile {

// Largest magnitude of `k` elements, or NaN where one of them is not finite.
float row_amax(const void* x, DType dtype, std::int64_t k) noexcept;
// Scale of a row with largest magnitude `amax` (finite): min(max(amax, floor), upper_bound) / 448.
float scale_of_amax(float amax, const QuantizeOptions& options) noexcept;

// codes[i] = e4m3_saturate(x[i] / scale), or of x[i] times the rounded reciprocal. Precondition: finite x, scale > 0.
void encode_elements(const void* x, DType dtype, std::int64_t count, std::uint8_t* codes, float scale,
                     Division division) noexcept;
// The codes and the scale of a row that is not finite: all NaN.
float poison_row(std::int64_t k, std::uint8_t* codes) noexcept;

// One row of `k` elements: codes[k] and the scale. A row with a NaN or an infinity: every code NaN, scale NaN.
float quantize_row(const void* x, DType dtype, std::int64_t k, std::uint8_t* codes, const QuantizeOptions& options) noexcept;
// The same with a given scale. Non-finite rows as above; the scale is returned as it is otherwise.
float quantize_row_static(const void* x, DType dtype, std::int64_t k, std::uint8_t* codes, float scale) noexcept;

// x: bf16 or fp16 (fp32 too) with col_stride 1 and row_stride >= cols. Everything else is refused with the strides printed.
Expected<void> check_activation_view(const ConstMatrixView& x, std::int64_t k);
// The same rules for e4m3 codes that come with their scales.
Expected<void> check_codes_view(const ConstMatrixView& codes, std::int64_t k);
Expected<void> check_output_view(const MatrixView& y, std::int64_t m, std::int64_t n, DType out_dtype);
// `view` is [rows, cols] of `dtype` under the same rules; `what` names it in the message.
Expected<void> check_matrix_view(const char* what, const ConstMatrixView& view, DType dtype, std::int64_t rows,
                                 std::int64_t cols);
// No element of `y` may be one of x: kernels write rows of y while others of x are still to be read. Columns of one buffer
// beside each other are fine.
Expected<void> check_apart(const ConstMatrixView& x, const MatrixView& y);
Expected<void> check_quantize_options(const QuantizeOptions& options);

}  // namespace octile
