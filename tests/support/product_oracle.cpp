// SPDX-License-Identifier: Apache-2.0
#include "support/product_oracle.h"

#include "octile/core/float_formats.h"
#include "octile/core/format.h"

#include <algorithm>
#include <cmath>

namespace octile::test {
namespace {

std::vector<std::uint8_t> without_sign(const std::uint8_t* codes, std::int64_t count) {
  std::vector<std::uint8_t> result(codes, codes + count);
  std::ranges::for_each(result, [](std::uint8_t& code) { code &= 0x7F; });
  return result;
}

}  // namespace

ProductOracle::ProductOracle(const ReferenceInputs& inputs)
    : m_(inputs.m), n_(inputs.n), k_(inputs.k), reference_(reference_linear(inputs)) {
  const auto magnitudes_x = without_sign(inputs.codes_x, m_ * k_);
  const auto magnitudes_w = without_sign(inputs.codes_w, n_ * k_);
  ReferenceInputs magnitudes = inputs;
  magnitudes.codes_x = magnitudes_x.data();
  magnitudes.codes_w = magnitudes_w.data();
  magnitudes.bias = nullptr;
  magnitudes_ = reference_linear(magnitudes).values;
  if (inputs.bias != nullptr) {
    bias_.assign(inputs.bias, inputs.bias + n_);
  }
}

// One rounding to the output type, one of the bias' sum, and the accumulation's errors. The matrix unit keeps about 13 bits
// below the largest addend of 32 products and the sum so far, and drops the rest: 2^-12 of the sum of the products'
// magnitudes, which holds where products cancel; where they do not, the sum so far is the largest addend of every step, and
// each of 33 addends loses up to 2^-13 of it with a sign of its own. A root of as many steps, at six times the deviation of
// 33 such losses (3.3 x 2^-13), is 2^-8.7 of the sum: 2^-9 beside the first term.
std::string ProductOracle::worst_element(const void* y, DType dtype, std::int64_t y_stride, Accumulate accumulate) const {
  const double rounding = dtype == DType::bf16 ? 0x1p-8 : (dtype == DType::fp16 ? 0x1p-11 : 0x1p-22);
  constexpr std::int64_t kStep = 32;  // Elements of K of one instruction.
  constexpr std::int64_t kPromotion = 128;
  const std::int64_t summed = accumulate == Accumulate::precise ? std::min(k_, kPromotion) : k_;
  const auto steps = static_cast<double>((summed + kStep - 1) / kStep);
  for (std::int64_t m = 0; m < m_; ++m) {
    for (std::int64_t n = 0; n < n_; ++n) {
      const auto at = static_cast<std::size_t>(m * n_ + n);
      const double want = reference_.values[at];
      const double got = load_as_float(y, dtype, m * y_stride + n);
      const double added = bias_.empty() ? 0.0 : std::fabs(bias_[static_cast<std::size_t>(n)]);
      const double dropped = 0x1p-12 * magnitudes_[at] + 0x1p-9 * std::sqrt(steps) * (std::fabs(want) + added);
      const double bound = rounding * std::fabs(want) + dropped + 0x1p-22 * added + 0x1p-24;
      if (std::isnan(want) ? !std::isnan(got) : !(std::fabs(got - want) <= bound)) {
        return octile::format("({}, {}): got {}, want {} within {}", m, n, got, want, bound);
      }
    }
  }
  return {};
}

std::string ProductOracle::verdict(const void* y, DType dtype, std::int64_t y_stride, Accumulate accumulate) const {
  constexpr std::int64_t kFewElements = 256;
  std::string wrong = worst_element(y, dtype, y_stride, accumulate);
  // The norm says more where there are enough elements for rounding errors to average.
  if (!wrong.empty() || m_ * n_ < kFewElements) {
    return wrong;
  }
  const ErrorReport report = compare_with_reference(y, dtype, y_stride, reference_, m_, n_);
  // Precise mode sums 128 elements on the matrix unit before it promotes.
  const double promoted = accumulate == Accumulate::precise ? 4e-5 * std::sqrt(128.0) : 0.0;
  const double tolerance = error_tolerance(dtype, k_, accumulate) + promoted;
  if (report.nan_mismatch || !(report.relative_frobenius <= tolerance)) {
    return octile::format("{}; tolerance {}", report.to_string(), tolerance);
  }
  return {};
}

}  // namespace octile::test
