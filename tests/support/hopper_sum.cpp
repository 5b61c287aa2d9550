// SPDX-License-Identifier: Apache-2.0
#include "support/hopper_sum.h"

#include "octile/core/float_formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

namespace octile::test {
namespace {

constexpr std::int64_t kStep = 32;        // Products of one addition,
constexpr std::int64_t kPromotion = 128;  // and of one sum in precise mode.
constexpr int kKeptBits = 13;             // Below the largest exponent.
constexpr int kExponentBias = 7;
constexpr int kLowestExponent = -6;  // Subnormals have it, too.

bool is_nan(std::uint8_t code) { return (code & 0x7F) == 0x7F; }
bool is_zero(std::uint8_t code) { return (code & 0x7F) == 0; }
int exponent_of(std::uint8_t code) { return std::max(((code >> 3) & 0xF) - kExponentBias, kLowestExponent); }

// Towards zero, to a multiple of the last bit that is kept below `exponent`.
double cut(double value, int exponent) {
  const double unit = std::ldexp(1.0, exponent - kKeptBits);
  return std::trunc(value / unit) * unit;
}

// `sum` and the products of `count` codes; exact in double.
double added(double sum, const std::uint8_t* x, const std::uint8_t* w, std::int64_t count) {
  std::array<double, kStep> products = {};
  int largest = sum == 0 ? std::numeric_limits<int>::min() : std::ilogb(sum);
  for (std::int64_t i = 0; i < count; ++i) {
    if (is_zero(x[i]) || is_zero(w[i])) {
      continue;
    }
    products[static_cast<std::size_t>(i)] = static_cast<double>(e4m3_to_float(x[i])) * e4m3_to_float(w[i]);
    largest = std::max(largest, exponent_of(x[i]) + exponent_of(w[i]));
  }
  if (largest == std::numeric_limits<int>::min()) {
    return 0;
  }
  double result = cut(sum, largest);
  for (const double product : products) {
    result += cut(product, largest);
  }
  return result == 0 ? 0 : cut(result, std::ilogb(result));
}

}  // namespace

float hopper_sum(const std::uint8_t* x, const std::uint8_t* w, std::int64_t k, Accumulate accumulate) {
  if (std::any_of(x, x + k, is_nan) || std::any_of(w, w + k, is_nan)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const std::int64_t interval = accumulate == Accumulate::precise ? kPromotion : k;
  float promoted = 0;
  for (std::int64_t begin = 0; begin < k; begin += interval) {
    const std::int64_t end = std::min(begin + interval, k);
    double sum = 0;
    for (std::int64_t i = begin; i < end; i += kStep) {
      sum = added(sum, x + i, w + i, std::min(kStep, end - i));
    }
    promoted += static_cast<float>(sum);
  }
  return promoted;
}

std::vector<float> hopper_linear(const ReferenceInputs& in, Accumulate accumulate) {
  std::vector<float> y;
  y.reserve(static_cast<std::size_t>(in.m * in.n));
  for (std::int64_t m = 0; m < in.m; ++m) {
    for (std::int64_t n = 0; n < in.n; ++n) {
      const float sum = hopper_sum(in.codes_x + m * in.k, in.codes_w + n * in.k, in.k, accumulate);
      const float scaled = sum * in.scales_w[n] * in.scales_x[m];
      y.push_back(in.bias == nullptr ? scaled : scaled + in.bias[n]);
    }
  }
  return y;
}

}  // namespace octile::test
