// SPDX-License-Identifier: Apache-2.0
// The whole linear in double precision, and how far a result is from it: the oracle of every kernel test and of `verify`.
#pragma once

#include <octile/types.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace octile {

// Quantised operands. codes_x [m, k], codes_w [n, k] row-major contiguous; scales_x [m], scales_w [n]; bias [n] or nullptr.
struct ReferenceInputs {
  std::int64_t m = 0, n = 0, k = 0;
  const std::uint8_t* codes_x = nullptr;
  const float* scales_x = nullptr;
  const std::uint8_t* codes_w = nullptr;
  const float* scales_w = nullptr;
  const float* bias = nullptr;
};

// The truth [m, n], and what rounding errors scale with where it cancels.
struct Reference {
  std::vector<double> values;   // y in double, before rounding to an output type.
  std::vector<double> addends;  // Root of the sum of the squares of what was added: the scaled products and the bias.
};
Reference reference_linear(const ReferenceInputs& in);
// The same for chosen rows and columns: values[i * columns.size() + j].
Reference reference_samples(const ReferenceInputs& in, const std::vector<std::int64_t>& rows,
                            const std::vector<std::int64_t>& columns);

// Distance of y (dtype bf16/fp16/fp32, row stride in elements) from `reference` [m, n]. The norm takes the addends of an
// element where they are larger than its value: a bias that cancels the products leaves their rounding errors behind, which
// a row of one element shows. Of an fp16 element 2^-25 is no error, since below 2^-14 its step is 2^-24 whatever its value.
struct ErrorReport {
  double relative_frobenius = 0;  // ||y - ref|| / ||ref||; 0 where both are zero.
  double largest_row = 0;         // Largest of the same over single rows.
  std::int64_t worst_row = 0, worst_col = 0;
  double worst_value = 0, worst_reference = 0;
  bool nan_mismatch = false;  // A NaN on one side only (worst_row, worst_col name it).
  std::string to_string() const;
};
ErrorReport compare_with_reference(const void* y, DType dtype, std::int64_t row_stride, const Reference& reference,
                                   std::int64_t m, std::int64_t n);

// Largest relative Frobenius error that rounding can explain: one rounding to `out`, fp32 accumulation over k (sequential in
// blocks), and for `accumulate` fast on a GPU the tensor core's narrower accumulator.
double error_tolerance(DType out, std::int64_t k, Accumulate accumulate);

}  // namespace octile
