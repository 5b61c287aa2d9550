// SPDX-License-Identifier: Apache-2.0
// What a GPU's linear must come to, element by element and in norm, and whether a result does.
#pragma once

#include "octile/quant/reference.h"

#include <octile/types.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace octile::test {

class ProductOracle {
 public:
  // Computes in double; the arrays may be gone when this returns.
  explicit ProductOracle(const ReferenceInputs& inputs);

  // "" where every element of y [m, n] is as near to the reference as rounding and accumulation explain, and so are each
  // token and each channel by what it is of the reference, and all together in norm; else what is wrong.
  std::string verdict(const void* y, DType dtype, std::int64_t y_stride, Accumulate accumulate) const;

 private:
  // One deviation of what the matrix unit drops, of the root of the sum of the products' squares.
  double dropped_of_addends(Accumulate accumulate) const;
  std::string odd_line(const void* y, DType dtype, std::int64_t y_stride, Accumulate accumulate, bool of_tokens) const;
  std::string worst_element(const void* y, DType dtype, std::int64_t y_stride, Accumulate accumulate) const;

  std::int64_t m_, n_, k_;
  Reference reference_;             // [m, n], and
  std::vector<double> magnitudes_;  // the values of the same of |x| and |w|, without bias.
  std::vector<float> bias_;         // Empty: none.
};

}  // namespace octile::test
