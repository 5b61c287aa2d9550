// SPDX-License-Identifier: Apache-2.0
// The oracle of products on a GPU: it accepts what a matrix unit of 13 bits drops, and nothing that is wrong.
#include "support/product_oracle.h"

#include "octile/core/float_formats.h"
#include "support/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace octile::test {
namespace {

// Towards zero, to 13 bits below the leading one of `largest`.
double truncated(double value, double largest) {
  const double step = std::ldexp(1.0, std::ilogb(largest) - 13);
  return std::trunc(value / step) * step;
}

struct Product {
  std::int64_t m = 16, n = 48, k = 0;
  std::vector<std::uint8_t> codes_x, codes_w;
  std::vector<float> scales_x, scales_w;

  // Every finite code as often as any other: products over ten orders of magnitude.
  explicit Product(std::int64_t elements, bool outliers = false) : k(elements) {
    std::mt19937_64& generator = test::generator();
    const auto fill = [&](std::vector<std::uint8_t>& codes, std::vector<float>& scales, std::int64_t rows) {
      codes.resize(static_cast<std::size_t>(rows * k));
      for (std::uint8_t& code : codes) {
        do {
          code = static_cast<std::uint8_t>(generator());
        } while ((code & 0x7F) == 0x7F);
      }
      scales.resize(static_cast<std::size_t>(rows));
      std::ranges::generate(scales, [&] { return std::uniform_real_distribution<float>(0.001F, 0.1F)(generator); });
    };
    fill(codes_x, scales_x, m);
    fill(codes_w, scales_w, n);
    if (outliers) {
      // Of each token two elements a hundred times as large as the others, which may cancel.
      codes_x = random_codes(m * k, 4.0F);
      codes_w = random_codes(n * k);
      for (std::int64_t row = 0; row < m; ++row) {
        for (int i = 0; i < 2; ++i) {
          const auto at = std::uniform_int_distribution<std::int64_t>(0, k - 1)(generator);
          codes_x[static_cast<std::size_t>(row * k + at)] = (generator() & 1) == 0 ? 0x7E : 0xFE;
        }
      }
    }
  }

  ReferenceInputs inputs() const {
    return {m, n, k, codes_x.data(), scales_x.data(), codes_w.data(), scales_w.data(), nullptr};
  }

  // As a matrix unit adds: 32 products and the sum so far, aligned to the largest; in precise mode into fp32 every 128.
  std::vector<float> added(Accumulate accumulate) const {
    std::vector<float> y(static_cast<std::size_t>(m * n));
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t channel = 0; channel < n; ++channel) {
        double sum = 0;
        double promoted = 0;
        for (std::int64_t first = 0; first < k; first += 32) {
          std::vector<double> addends{sum};
          for (std::int64_t i = first; i < std::min(first + 32, k); ++i) {
            addends.push_back(static_cast<double>(e4m3_to_float(codes_x[static_cast<std::size_t>(row * k + i)])) *
                              e4m3_to_float(codes_w[static_cast<std::size_t>(channel * k + i)]));
          }
          double largest = 0;
          std::ranges::for_each(addends, [&](double a) { largest = std::max(largest, std::fabs(a)); });
          sum = 0;
          if (largest > 0) {
            std::ranges::for_each(addends, [&](double a) { sum += truncated(a, largest); });
          }
          if (accumulate == Accumulate::precise && (first + 32) % 128 == 0) {
            promoted += sum;
            sum = 0;
          }
        }
        y[static_cast<std::size_t>(row * n + channel)] = static_cast<float>(
            (promoted + sum) * scales_w[static_cast<std::size_t>(channel)] * scales_x[static_cast<std::size_t>(row)]);
      }
    }
    return y;
  }
};

TEST(ProductOracle, AcceptsWhatAMatrixUnitOfThirteenBitsDrops) {
  SCOPED_TRACE(seed_text());
  for (const std::int64_t k : {16, 32, 128, 269, 1152, 4096}) {
    for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
      for (const bool outliers : {false, true}) {
        const Product product(k, outliers);
        const ProductOracle oracle(product.inputs());
        EXPECT_EQ(oracle.verdict(product.added(accumulate).data(), DType::fp32, product.n, accumulate), "")
            << "K=" << k << " " << to_string(accumulate) << (outliers ? ", two outliers a token" : "");
      }
    }
  }
}

TEST(ProductOracle, RefusesAScaleThatIsAFewPercentOffAndPiecesOfTwoTokensInEachOthersPlace) {
  SCOPED_TRACE(seed_text());
  for (const std::int64_t k : {64, 4096}) {
    for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
      for (const DType dtype : {DType::bf16, DType::fp32}) {
        SCOPED_TRACE(testing::Message() << "K=" << k << " " << to_string(accumulate) << " " << to_string(dtype));
        const Product product(k);
        const ProductOracle oracle(product.inputs());
        const auto verdict = [&](const Product& of) {
          return oracle.verdict(as_bytes(of.added(accumulate), dtype).data(), dtype, product.n, accumulate);
        };
        EXPECT_EQ(verdict(product), "");
        Product of_token = product;
        of_token.scales_x[3] *= 1.01F;
        EXPECT_NE(verdict(of_token), "");
        Product of_channel = product;
        of_channel.scales_w[5] *= 1.02F;
        EXPECT_NE(verdict(of_channel), "");
        Product exchanged = product;
        const auto token = exchanged.codes_x.begin() + 3 * k;
        std::swap_ranges(token, token + 16, token + k);
        EXPECT_NE(verdict(exchanged), "");
        Product shifted = product;  // Eight tokens in the place of their neighbours.
        std::rotate(shifted.codes_x.begin(), shifted.codes_x.begin() + k, shifted.codes_x.begin() + 8 * k);
        EXPECT_NE(verdict(shifted), "");
      }
    }
  }
}

TEST(ProductOracle, RefusesAMissingPieceOfKAForeignScaleAndAColumnInAnothersPlace) {
  SCOPED_TRACE(seed_text());
  const Product product(1152);
  const ProductOracle oracle(product.inputs());
  for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
    Product shorter = product;
    std::fill_n(shorter.codes_w.begin() + 7 * product.k + 512, 128, std::uint8_t{0});  // 128 elements of one channel.
    EXPECT_NE(oracle.verdict(shorter.added(accumulate).data(), DType::fp32, product.n, accumulate), "");
    Product scaled = product;
    scaled.scales_x[3] *= 1.05F;
    EXPECT_NE(oracle.verdict(scaled.added(accumulate).data(), DType::fp32, product.n, accumulate), "");
    std::vector<float> exchanged = product.added(accumulate);
    std::swap(exchanged[5], exchanged[6]);
    EXPECT_NE(oracle.verdict(exchanged.data(), DType::fp32, product.n, accumulate), "");
    std::vector<float> nan = product.added(accumulate);
    nan[100] = NAN;
    EXPECT_NE(oracle.verdict(nan.data(), DType::fp32, product.n, accumulate), "");
  }
}

}  // namespace
}  // namespace octile::test
