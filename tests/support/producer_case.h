// SPDX-License-Identifier: Apache-2.0
// One call of a producer on host data: operands with every kind of row, what the plain code of quant/producers.h makes of
// them, and the distance from double precision.
#pragma once

#include "octile/kernels/producer.h"

#include <cstdint>
#include <string>
#include <vector>

namespace octile::test {

struct ProducerShape {
  ProducerKind kind = ProducerKind::rms_norm;
  DType dtype = DType::bf16;
  std::int64_t m = 1;
  std::int64_t k = 1;
  bool adds = false;         // rms_norm: with a residual.
  std::int64_t padding = 0;  // Elements between rows of every matrix.
  std::int64_t offset = 0;   // Elements before every first row: odd ones are unaligned.
  QuantizeOptions quantize = {};
  float static_scale = 0.0F;
  std::string to_string() const;
};

// A matrix [rows, cols] of 16-bit elements with `offset` elements in front and `padding` between rows.
struct HalfMatrix {
  DType dtype = DType::bf16;
  std::int64_t rows = 0, cols = 0, row_stride = 0, offset = 0;
  std::vector<unsigned char> bytes;

  std::int64_t row_begin(std::int64_t row) const { return (offset + row * row_stride) * 2; }  // In bytes.
  const unsigned char* row(std::int64_t index) const { return bytes.data() + row_begin(index); }
  unsigned char* row(std::int64_t index) { return bytes.data() + row_begin(index); }
  float at(std::int64_t row, std::int64_t column) const;
  void set(std::int64_t row, std::int64_t column, float value);
};

// Random operands; of nine rows in turn one is zeros, some are tiny or huge, one holds a NaN and one an infinity.
struct ProducerOperands {
  explicit ProducerOperands(const ProducerShape& its_shape);

  ProducerSpec spec() const;  // Points into `gamma`.

  ProducerShape shape;
  float epsilon = 1e-6F;
  HalfMatrix x;         // [m, k] or [m, 2 k].
  HalfMatrix residual;  // [m, k]
  HalfMatrix gamma;     // [1, k]

  // By quant/producers.h, [m, k] of shape.dtype without padding.
  std::vector<unsigned char> plain_sums() const;
  std::vector<unsigned char> plain_y() const;
};

// "" where `y` [m, k] (without padding) is as close to double precision as the roundings explain, `sums` [m, k] being what
// is normalised (rms_norm); `silu_error`: the relative error of silu() before its rounding. Else the worst element.
std::string distance_from_double(const ProducerOperands& operands, const std::vector<unsigned char>& sums,
                                 const std::vector<unsigned char>& y, double silu_error);

// "" where two arrays of `dtype` hold the same bits; NaNs are equal whatever their bits. Else the first difference.
std::string first_difference(DType dtype, std::int64_t cols, const std::vector<unsigned char>& got,
                             const std::vector<unsigned char>& wanted);

// Codes [m, k] and scales [m] that the plain quantiser makes of `y` [m, k].
struct PlainCodes {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
};
PlainCodes quantised(const ProducerShape& shape, const std::vector<unsigned char>& y);
// "" where they agree bit for bit (a NaN scale with a NaN scale).
std::string first_difference(std::int64_t cols, const PlainCodes& got, const PlainCodes& wanted);

}  // namespace octile::test
