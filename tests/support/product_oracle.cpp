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

constexpr double kDeviations = 5;  // That one element may be off.

double rounding_of(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : (dtype == DType::fp16 ? 0x1p-11 : 0x1p-22); }

// A token's or a channel's results: what they are of what they should be, and one deviation of that.
struct Line {
  std::int64_t index = 0;
  double slope = 0;
  double deviation = 0;
};

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

double ProductOracle::dropped_of_addends(Accumulate accumulate) const {
  constexpr std::int64_t kStep = 32;  // Elements of K of one instruction.
  constexpr std::int64_t kPromotion = 128;
  const std::int64_t summed = accumulate == Accumulate::precise ? std::min(k_, kPromotion) : k_;
  const std::int64_t whole_steps = (summed + kStep - 1) / kStep;
  const auto steps = static_cast<double>(whole_steps);
  return 3.3 * 0x1p-13 * std::sqrt(1 + steps / 2);
}

// One rounding to the output type, one of the bias' sum, and what the matrix unit drops. It keeps 13 bits below the largest
// addend of 32 products and the sum so far. Where a sum grows, each step drops up to 2^-13 of it: 2^-12 of the products'
// magnitudes. Where products cancel, 33 addends of a step lose up to 2^-13 of the largest each, 3.3 x 2^-13 as a deviation;
// the squares of the largest products of all steps are less than `addends` squared, and sums of products that cancel are on
// average half as much at each step: a deviation is 3.3 x 2^-13 x addends x sqrt(1 + steps / 2). Four of them were too few
// once in 250 runs of the model with outliers, whose sums are large from the first step on. Seen beyond 2^-12 of the
// magnitudes, by 15 to 30 %, at 3 elements of the runs on an H200.
std::string ProductOracle::worst_element(const void* y, DType dtype, std::int64_t y_stride, Accumulate accumulate) const {
  const double rounding = rounding_of(dtype);
  const double of_addends = dropped_of_addends(accumulate);
  for (std::int64_t m = 0; m < m_; ++m) {
    for (std::int64_t n = 0; n < n_; ++n) {
      const auto at = static_cast<std::size_t>(m * n_ + n);
      const double want = reference_.values[at];
      const double got = load_as_float(y, dtype, m * y_stride + n);
      const double added = bias_.empty() ? 0.0 : std::fabs(bias_[static_cast<std::size_t>(n)]);
      const double dropped = 0x1p-12 * magnitudes_[at] + kDeviations * of_addends * reference_.addends[at];
      const double bound = rounding * std::fabs(want) + dropped + 0x1p-22 * added + 0x1p-24;
      if (std::isnan(want) ? !std::isnan(got) : !(std::fabs(got - want) <= bound)) {
        return octile::format("({}, {}): got {}, want {} within {}", m, n, got, want, bound);
      }
    }
  }
  return {};
}

// A scale that is off by 1 % is less than what each element may be off at K = 4096 and more. But the elements of a token, or
// of a channel, are so by chance and not all in the same direction: what they are of what they should be, by least squares,
// is that of the others, their median's.
std::string ProductOracle::odd_line(const void* y, DType dtype, std::int64_t y_stride, Accumulate accumulate,
                                    bool of_tokens) const {
  constexpr std::int64_t kFewest = 16;
  constexpr double kMostDeviations = 5;
  constexpr double kSystematic = 0x1p-11;  // Truncation is towards zero.
  const std::int64_t lines = of_tokens ? m_ : n_;
  const std::int64_t length = of_tokens ? n_ : m_;
  if (length < kFewest || lines < kFewest) {
    return {};
  }
  const double of_rounding = rounding_of(dtype) / 2;
  const double of_addends = dropped_of_addends(accumulate);
  std::vector<Line> found;
  for (std::int64_t line = 0; line < lines; ++line) {
    double product = 0;
    double square = 0;
    double variance = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t m = of_tokens ? line : i;
      const std::int64_t n = of_tokens ? i : line;
      const auto at = static_cast<std::size_t>(m * n_ + n);
      const double want = reference_.values[at];
      const double off = std::hypot(of_rounding * want, of_addends * reference_.addends[at], 0x1p-24);
      product += want * load_as_float(y, dtype, m * y_stride + n);
      square += want * want;
      variance += want * want * off * off;
    }
    // Not of a line of zeros, or with NaN or an infinity.
    if (std::isfinite(product) && std::isfinite(square) && square > 0) {
      found.push_back({line, product / square, std::sqrt(variance) / square});
    }
  }
  if (static_cast<std::int64_t>(found.size()) < kFewest) {
    return {};
  }
  std::vector<Line> sorted = found;
  std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), {}, &Line::slope);
  const double usual = sorted[sorted.size() / 2].slope;
  for (const Line& line : found) {
    const double bound = kMostDeviations * line.deviation + kSystematic;
    if (!(std::fabs(line.slope - usual) <= bound)) {
      return octile::format("{} {}: {} of what it should be, the others {}, within {}", of_tokens ? "token" : "channel",
                            line.index, line.slope, usual, bound);
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
  for (const bool of_tokens : {true, false}) {
    if (wrong = odd_line(y, dtype, y_stride, accumulate, of_tokens); !wrong.empty()) {
      return wrong;
    }
  }
  const ErrorReport report = compare_with_reference(y, dtype, y_stride, reference_, m_, n_);
  // Precise mode sums 128 elements on the matrix unit before it promotes; of fewer the largest has more of the norm.
  constexpr std::int64_t kPromotion = 128;
  const bool is_short = accumulate == Accumulate::precise || k_ < kPromotion;
  const double promoted = is_short ? 4e-5 * std::sqrt(static_cast<double>(kPromotion)) : 0.0;
  const double tolerance = error_tolerance(dtype, k_, accumulate) + promoted;
  if (report.nan_mismatch || !(report.relative_frobenius <= tolerance)) {
    return octile::format("{}; tolerance {}", report.to_string(), tolerance);
  }
  return {};
}

}  // namespace octile::test
