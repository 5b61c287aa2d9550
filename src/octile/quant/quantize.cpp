// SPDX-License-Identifier: Apache-2.0
// The quantiser of the contract, one element at a time: slow, obvious, and what every faster one is compared with.
#include "octile/quant/quantize.h"

#include "octile/core/float_formats.h"
#include "octile/core/float_mode.h"
#include "octile/core/format.h"

#include <octile/octile.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace octile {
namespace {

Expected<void> check_strides(const char* what, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t row_stride,
                             std::int64_t col_stride, const void* data) {
  if (rows < 0 || cols < 1) {
    return make_error(ErrorCode::invalid_argument, "{}: want rows >= 0 and cols >= 1, got {} x {}", what, rows, cols);
  }
  if (col_stride != 1 || (row_stride < cols && rows > 1)) {
    return make_error(ErrorCode::invalid_argument,
                      "{} [{}, {}] {}: want column stride 1 and row stride >= {}, got strides ({}, {})", what, rows, cols,
                      to_string(dtype), cols, row_stride, col_stride);
  }
  if (data == nullptr && rows > 0) {
    return make_error(ErrorCode::invalid_argument, "{} [{}, {}] {}: want data, got a null pointer", what, rows, cols,
                      to_string(dtype));
  }
  return {};
}

Expected<void> check_shape(const char* what, const ConstMatrixView& x, std::int64_t k) {
  if (x.cols != k) {
    return make_error(ErrorCode::invalid_argument, "{}: want [M, {}], got [{}, {}]", what, k, x.rows, x.cols);
  }
  return check_strides(what, x.dtype, x.rows, x.cols, x.row_stride, x.col_stride, x.data);
}

}  // namespace

float row_amax(const void* x, DType dtype, std::int64_t k) noexcept {
  float amax = 0.0F;
  for (std::int64_t i = 0; i < k; ++i) {
    const float magnitude = std::fabs(load_as_float(x, dtype, i));
    if (!std::isfinite(magnitude)) {
      return std::numeric_limits<float>::quiet_NaN();
    }
    amax = std::max(amax, magnitude);
  }
  return amax;
}

float scale_of_amax(float amax, const QuantizeOptions& options) noexcept {
  return std::min(std::max(amax, options.floor), options.upper_bound) / kE4m3Max;
}

void encode_elements(const void* x, DType dtype, std::int64_t count, std::uint8_t* codes, float scale,
                     Division division) noexcept {
  const float reciprocal = 1.0F / scale;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = load_as_float(x, dtype, i);
    codes[i] = float_to_e4m3_saturate(division == Division::exact ? value / scale : value * reciprocal);
  }
}

float poison_row(std::int64_t k, std::uint8_t* codes) noexcept {
  std::fill_n(codes, k, kE4m3NaN);
  return std::numeric_limits<float>::quiet_NaN();
}

float quantize_row(const void* x, DType dtype, std::int64_t k, std::uint8_t* codes,
                   const QuantizeOptions& options) noexcept {
  const float amax = row_amax(x, dtype, k);
  if (std::isnan(amax)) {
    return poison_row(k, codes);
  }
  const float scale = scale_of_amax(amax, options);
  encode_elements(x, dtype, k, codes, scale, options.division);
  return scale;
}

float quantize_row_static(const void* x, DType dtype, std::int64_t k, std::uint8_t* codes, float scale) noexcept {
  if (std::isnan(row_amax(x, dtype, k))) {
    return poison_row(k, codes);
  }
  encode_elements(x, dtype, k, codes, scale, Division::exact);
  return scale;
}

Expected<void> check_activation_view(const ConstMatrixView& x, std::int64_t k) {
  if (x.dtype != DType::bf16 && x.dtype != DType::fp16 && x.dtype != DType::fp32) {
    return make_error(ErrorCode::invalid_argument, "activations: want bf16, fp16 or fp32, got {}", to_string(x.dtype));
  }
  return check_shape("activations", x, k);
}

Expected<void> check_codes_view(const ConstMatrixView& codes, std::int64_t k) {
  if (codes.dtype != DType::e4m3) {
    return make_error(ErrorCode::invalid_argument, "activations with scales: want e4m3 codes, got {}",
                      to_string(codes.dtype));
  }
  return check_shape("activation codes", codes, k);
}

Expected<void> check_matrix_view(const char* what, const ConstMatrixView& view, DType dtype, std::int64_t rows,
                                 std::int64_t cols) {
  if (view.dtype != dtype) {
    return make_error(ErrorCode::invalid_argument, "{}: want {}, got {}", what, to_string(dtype), to_string(view.dtype));
  }
  if (view.rows != rows || view.cols != cols) {
    return make_error(ErrorCode::invalid_argument, "{}: want [{}, {}], got [{}, {}]", what, rows, cols, view.rows,
                      view.cols);
  }
  return check_strides(what, view.dtype, view.rows, view.cols, view.row_stride, view.col_stride, view.data);
}

Expected<void> check_output_view(const MatrixView& y, std::int64_t m, std::int64_t n, DType out_dtype) {
  return check_matrix_view("output", {y.data, y.dtype, y.rows, y.cols, y.row_stride, y.col_stride}, out_dtype, m, n);
}

Expected<void> check_apart(const ConstMatrixView& x, const MatrixView& y) {
  struct Bytes {
    std::uint64_t begin, width, step, end;
  };
  const auto bytes_of = [](const void* data, std::int64_t rows, std::int64_t cols, std::int64_t row_stride, DType dtype) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    const auto width = static_cast<std::uint64_t>(cols * size_of(dtype));
    const auto step = static_cast<std::uint64_t>(row_stride * size_of(dtype));
    return Bytes{begin, width, step, begin + static_cast<std::uint64_t>(rows - 1) * step + width};
  };
  if (x.rows == 0 || y.rows == 0) {
    return {};
  }
  const Bytes in = bytes_of(x.data, x.rows, x.cols, x.row_stride, x.dtype);
  const Bytes out = bytes_of(y.data, y.rows, y.cols, y.row_stride, y.dtype);
  if (in.end <= out.begin || out.end <= in.begin) {
    return {};
  }
  if (in.step == out.step && x.rows > 1) {
    // Where y begins within a row of x's buffer.
    const std::uint64_t column =
        out.begin >= in.begin ? (out.begin - in.begin) % in.step : in.step - 1 - (in.begin - out.begin - 1) % in.step;
    if (column >= in.width && column + out.width <= in.step) {
      return {};
    }
  }
  return make_error(ErrorCode::invalid_argument,
                    "output [{}, {}] at {} overlaps the activations [{}, {}] at {}: want memory of its own", y.rows, y.cols,
                    static_cast<const void*>(y.data), x.rows, x.cols, x.data);
}

Expected<void> check_quantize_options(const QuantizeOptions& options) {
  // A floor under 448 * 2^-126 would let a scale become subnormal or zero, and division by it meaningless.
  const float smallest = QuantizeOptions{}.floor;
  if (!std::isfinite(options.floor) || options.floor < smallest) {
    return make_error(ErrorCode::invalid_argument, "quantisation floor: want a finite value >= {} (448 * 2^-126), got {}",
                      smallest, options.floor);
  }
  if (std::isnan(options.upper_bound) || options.upper_bound < options.floor) {
    return make_error(ErrorCode::invalid_argument, "quantisation upper bound: want a value >= the floor {}, got {}",
                      options.floor, options.upper_bound);
  }
  return {};
}

Expected<void> quantize_per_token(const ConstMatrixView& x, std::uint8_t* codes, float* scales,
                                  const QuantizeOptions& options) {
  const ScopedFloatMode mode;
  if (auto ok = check_activation_view(x, x.cols); !ok) {
    return ok;
  }
  if (auto ok = check_quantize_options(options); !ok) {
    return ok;
  }
  if (x.rows > 0 && (codes == nullptr || scales == nullptr)) {
    return make_error(ErrorCode::invalid_argument, "quantize_per_token: want codes and scales, got a null pointer");
  }
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const auto* source = static_cast<const unsigned char*>(x.data) + row * x.row_stride * size_of(x.dtype);
    scales[row] = quantize_row(source, x.dtype, x.cols, codes + row * x.cols, options);
  }
  return {};
}

}  // namespace octile
