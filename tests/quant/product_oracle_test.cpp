// SPDX-License-Identifier: Apache-2.0
// The oracle of products on a GPU: it accepts what a matrix unit of 13 bits drops, and nothing that is wrong.
#include "support/product_oracle.h"

#include "support/hopper_sum.h"
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

  std::vector<float> added(Accumulate accumulate) const { return hopper_linear(inputs(), accumulate); }
};

// One row times one row of codes whose products are known.
float sum_of(std::vector<std::uint8_t> x, std::vector<std::uint8_t> w, Accumulate accumulate = Accumulate::fast) {
  return hopper_sum(x.data(), w.data(), static_cast<std::int64_t>(x.size()), accumulate);
}

TEST(HopperSum, CutsEachAddendToThirteenBitsBelowTheLargestExponent) {
  constexpr std::uint8_t kOne = 0x38;
  constexpr std::uint8_t kMinusOne = 0xB8;
  constexpr std::uint8_t kEight = 0x50;
  constexpr std::uint8_t k256 = 0x78;
  constexpr std::uint8_t kSixteenth = 0x18;
  constexpr std::uint8_t kMost = 0x7E;                      // 448: 1.75 x 2^8.
  EXPECT_EQ(sum_of({k256, kOne}, {k256, kOne}), 65536.0F);  // The last of 13 bits below 2^16 is 8.
  EXPECT_EQ(sum_of({k256, k256}, {k256, kSixteenth}), 65536.0F + 16);
  EXPECT_EQ(sum_of({k256, kMinusOne}, {k256, kOne}), 65536.0F);  // Towards zero.
  // 3.06 x 2^16, whose exponent counts as 16: two eights are kept, and of the sum 16 is the last bit.
  EXPECT_EQ(sum_of({kMost, kEight, kEight}, {kMost, kOne, kOne}), 200704.0F + 16);
  EXPECT_EQ(sum_of({kMost, kEight}, {kMost, kOne}), 200704.0F);
}

TEST(HopperSum, StepsOf32AndPromotionsOf128DecideWhatMeets) {
  std::vector<std::uint8_t> x(256, 0);
  std::vector<std::uint8_t> w(256, 0x38);
  x[0] = 0x78;
  w[0] = 0x78;  // 2^16 first,
  x[130] = 0x38;
  EXPECT_EQ(sum_of(x, w), 65536.0F);                       // and a one behind it is lost,
  EXPECT_EQ(sum_of(x, w, Accumulate::precise), 65537.0F);  // but for a sum that begins anew.
  x[130] = 0;
  x[40] = 0x38;
  EXPECT_EQ(sum_of(x, w, Accumulate::precise), 65536.0F);
  std::rotate(x.begin(), x.begin() + 40, x.end());  // Ones first: they meet the large one as a sum.
  std::rotate(w.begin(), w.begin() + 40, w.end());
  std::fill_n(x.begin(), 8, std::uint8_t{0x38});
  EXPECT_EQ(sum_of(x, w), 65536.0F + 8);
}

TEST(HopperSum, ANaNCodeMakesNaN) {
  EXPECT_TRUE(std::isnan(sum_of({0x7F, 0x38}, {0x38, 0x38})));
  EXPECT_TRUE(std::isnan(sum_of({0x38, 0x38}, {0x00, 0xFF})));
}

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
