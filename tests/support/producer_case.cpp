// SPDX-License-Identifier: Apache-2.0
#include "support/producer_case.h"

#include "octile/core/float_formats.h"
#include "octile/core/format.h"
#include "octile/quant/producers.h"
#include "octile/quant/quantize.h"
#include "support/random.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace octile::test {
namespace {

HalfMatrix draw(const ProducerShape& shape, std::int64_t rows, std::int64_t cols) {
  HalfMatrix matrix;
  matrix.dtype = shape.dtype;
  matrix.rows = rows;
  matrix.cols = cols;
  matrix.offset = shape.offset;
  matrix.row_stride = cols + shape.padding;
  matrix.bytes = as_bytes(normals_with_outliers(matrix.offset + rows * matrix.row_stride), shape.dtype);
  return matrix;
}

void vary_rows(HalfMatrix& matrix) {
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    const std::int64_t kind = row % 9;
    const float factor = kind == 1 ? 0.0F : kind == 2 ? 1e-5F : kind == 3 ? 1e-37F : kind == 4 ? 100.0F : 1.0F;
    for (std::int64_t column = 0; factor != 1.0F && column < matrix.cols; ++column) {
      matrix.set(row, column, matrix.at(row, column) * factor);
    }
    if (kind == 6) {
      matrix.set(row, matrix.cols / 2, std::numeric_limits<float>::quiet_NaN());
    } else if (kind == 7) {
      matrix.set(row, matrix.cols - 1, -std::numeric_limits<float>::infinity());
    }
  }
}

// Half the distance of neighbours of 1, and half the smallest subnormal.
double unit_roundoff(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : 0x1p-11; }
double smallest_rounding(DType dtype) { return dtype == DType::bf16 ? 0x1p-134 : 0x1p-25; }
double largest(DType dtype) { return dtype == DType::bf16 ? 3.3895e38 : 65504.0; }

// A value, and how far rounding may have taken the computed one from it.
struct Bounded {
  double value = 0;
  double error = 0;
  bool may_be_nan = false;  // An infinity times what may have been rounded to zero.
};
Bounded rounded(const Bounded& exact, DType dtype) {
  const double u = unit_roundoff(dtype);
  return {exact.value, exact.error + u * (std::fabs(exact.value) + exact.error) + smallest_rounding(dtype),
          exact.may_be_nan};
}
Bounded times(const Bounded& a, double b) {
  return {a.value * b, a.error * std::fabs(b), std::isinf(b) && std::fabs(a.value) <= a.error};
}

Bounded norm_element(const ProducerOperands& operands, double s, double factor, std::int64_t column) {
  // Sum, mean, sum with epsilon, root, reciprocal and product: half of the sum's error (a chain and a tree of twelve levels)
  // and five roundings.
  const double steps = static_cast<double>(operands.shape.k) / 4096.0 + 13.0;
  const double relative = (steps / 2 + 5) * 0x1p-24;
  const double exact = s * factor;
  const Bounded n = rounded({exact, std::fabs(exact) * relative + 0x1p-149}, operands.shape.dtype);
  return rounded(times(n, static_cast<double>(operands.gamma.at(0, column))), operands.shape.dtype);
}

Bounded swiglu_element(const ProducerOperands& operands, std::int64_t row, std::int64_t column, double silu_error) {
  const auto gate = static_cast<double>(operands.x.at(row, column));
  const auto up = static_cast<double>(operands.x.at(row, operands.shape.k + column));
  const double silu = gate / (1.0 + std::exp(-gate));
  // Where the exponential overflows fp32, the hardware's silu is 0.
  const Bounded a = rounded({silu, std::fabs(silu) * silu_error + 0x1p-119}, operands.shape.dtype);
  return rounded(times(a, up), operands.shape.dtype);
}

bool is_close(double got, const Bounded& want, DType dtype) {
  if (std::isnan(got) || std::isnan(want.value)) {
    return std::isnan(got) && (std::isnan(want.value) || want.may_be_nan);
  }
  if (std::isinf(got)) {
    return (got > 0) == (want.value > 0) && std::fabs(want.value) + want.error >= largest(dtype);
  }
  return std::fabs(got - want.value) <= want.error;
}

}  // namespace

std::string ProducerShape::to_string() const {
  return format("{} {} M={} K={}{} padding={} offset={} static_scale={} floor={} upper_bound={} division={}",
                octile::to_string(kind), octile::to_string(dtype), m, k, adds ? " with a residual" : "", padding, offset,
                static_scale, quantize.floor, quantize.upper_bound, static_cast<int>(quantize.division));
}

float HalfMatrix::at(std::int64_t row, std::int64_t column) const {
  return load_as_float(bytes.data(), dtype, offset + row * row_stride + column);
}
void HalfMatrix::set(std::int64_t row, std::int64_t column, float value) {
  store_from_float(bytes.data(), dtype, offset + row * row_stride + column, value);
}

ProducerOperands::ProducerOperands(const ProducerShape& its_shape) : shape(its_shape) {
  x = draw(shape, shape.m, shape.kind == ProducerKind::swiglu ? 2 * shape.k : shape.k);
  vary_rows(x);
  residual = draw(shape, shape.m, shape.k);
  gamma.dtype = shape.dtype;
  gamma.rows = 1;
  gamma.cols = gamma.row_stride = shape.k;
  std::vector<float> factors = normals(shape.k, 0.3F);
  std::ranges::transform(factors, factors.begin(), [](float value) { return 1.0F + value; });
  gamma.bytes = as_bytes(factors, shape.dtype);
}

ProducerSpec ProducerOperands::spec() const {
  ProducerSpec spec;
  spec.kind = shape.kind;
  spec.k = shape.k;
  spec.dtype = shape.dtype;
  spec.gamma = gamma.bytes.data();
  spec.epsilon = epsilon;
  spec.quantize = shape.quantize;
  spec.static_scale = shape.static_scale;
  return spec;
}

std::vector<unsigned char> ProducerOperands::plain_sums() const {
  std::vector<unsigned char> sums(static_cast<std::size_t>(shape.m * shape.k * 2));
  for (std::int64_t row = 0; row < shape.m; ++row) {
    unsigned char* target = sums.data() + row * shape.k * 2;
    if (shape.adds) {
      add_rounded(x.row(row), residual.row(row), shape.dtype, shape.k, target);
    } else {
      std::copy_n(x.row(row), shape.k * 2, target);
    }
  }
  return sums;
}

std::vector<unsigned char> ProducerOperands::plain_y() const {
  std::vector<unsigned char> y(static_cast<std::size_t>(shape.m * shape.k * 2));
  const std::vector<unsigned char> sums = shape.kind == ProducerKind::rms_norm ? plain_sums() : std::vector<unsigned char>();
  prepare_swiglu(shape.dtype);
  for (std::int64_t row = 0; row < shape.m; ++row) {
    unsigned char* target = y.data() + row * shape.k * 2;
    if (shape.kind == ProducerKind::swiglu) {
      swiglu_elements(x.row(row), x.row(row) + shape.k * 2, shape.dtype, shape.k, target);
      continue;
    }
    const unsigned char* s = sums.data() + row * shape.k * 2;
    const float factor = rms_norm_factor(sum_of_squares(s, shape.dtype, shape.k), shape.k, epsilon);
    rms_norm_elements(s, gamma.bytes.data(), shape.dtype, shape.k, factor, target);
  }
  return y;
}

std::string distance_from_double(const ProducerOperands& operands, const std::vector<unsigned char>& sums,
                                 const std::vector<unsigned char>& y, double silu_error) {
  const ProducerShape& shape = operands.shape;
  for (std::int64_t row = 0; row < shape.m; ++row) {
    double squares = 0;
    for (std::int64_t column = 0; shape.kind == ProducerKind::rms_norm && column < shape.k; ++column) {
      const auto s = static_cast<double>(load_as_float(sums.data(), shape.dtype, row * shape.k + column));
      squares += s * s;
    }
    // A row that is not finite is NaN from end to end.
    const double factor =
        std::isfinite(squares)
            ? 1.0 / std::sqrt(squares / static_cast<double>(shape.k) + static_cast<double>(operands.epsilon))
            : std::numeric_limits<double>::quiet_NaN();
    for (std::int64_t column = 0; column < shape.k; ++column) {
      const std::int64_t i = row * shape.k + column;
      const auto got = static_cast<double>(load_as_float(y.data(), shape.dtype, i));
      const Bounded want =
          shape.kind == ProducerKind::swiglu
              ? swiglu_element(operands, row, column, silu_error)
              : norm_element(operands, static_cast<double>(load_as_float(sums.data(), shape.dtype, i)), factor, column);
      if (!is_close(got, want, shape.dtype)) {
        return format("{}: y[{}, {}] is {:.9g}, want {:.9g} within {:.3g}", shape.to_string(), row, column, got, want.value,
                      want.error);
      }
    }
  }
  return {};
}

std::string first_difference(DType dtype, std::int64_t cols, const std::vector<unsigned char>& got,
                             const std::vector<unsigned char>& wanted) {
  if (got.size() != wanted.size()) {
    return format("{} bytes, want {}", got.size(), wanted.size());
  }
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(got.size()) / 2; ++i) {
    const float a = load_as_float(got.data(), dtype, i);
    const float b = load_as_float(wanted.data(), dtype, i);
    const bool same = std::equal(got.begin() + 2 * i, got.begin() + 2 * i + 2, wanted.begin() + 2 * i);
    if (!same && !(std::isnan(a) && std::isnan(b))) {
      return format("element ({}, {}) is {:.9g}, want {:.9g}", i / cols, i % cols, a, b);
    }
  }
  return {};
}

PlainCodes quantised(const ProducerShape& shape, const std::vector<unsigned char>& y) {
  PlainCodes result;
  result.codes.resize(static_cast<std::size_t>(shape.m * shape.k));
  for (std::int64_t row = 0; row < shape.m; ++row) {
    const unsigned char* source = y.data() + row * shape.k * 2;
    std::uint8_t* codes = result.codes.data() + row * shape.k;
    result.scales.push_back(shape.static_scale > 0.0F
                                ? quantize_row_static(source, shape.dtype, shape.k, codes, shape.static_scale)
                                : quantize_row(source, shape.dtype, shape.k, codes, shape.quantize));
  }
  return result;
}

std::string first_difference(std::int64_t cols, const PlainCodes& got, const PlainCodes& wanted) {
  if (got.codes.size() != wanted.codes.size() || got.scales.size() != wanted.scales.size()) {
    return format("{} codes and {} scales, want {} and {}", got.codes.size(), got.scales.size(), wanted.codes.size(),
                  wanted.scales.size());
  }
  for (std::size_t row = 0; row < got.scales.size(); ++row) {
    if (got.scales[row] != wanted.scales[row] && !(std::isnan(got.scales[row]) && std::isnan(wanted.scales[row]))) {
      return format("row {}: scale {:.9g}, want {:.9g}", row, got.scales[row], wanted.scales[row]);
    }
  }
  for (std::size_t i = 0; i < got.codes.size(); ++i) {
    if (got.codes[i] != wanted.codes[i]) {
      const auto at = static_cast<std::int64_t>(i);
      return format("row {}, element {}: code {}, want {}; scale {:.9g}", at / cols, at % cols, got.codes[i],
                    wanted.codes[i], got.scales[i / static_cast<std::size_t>(cols)]);
    }
  }
  return {};
}

}  // namespace octile::test
