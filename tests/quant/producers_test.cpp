// SPDX-License-Identifier: Apache-2.0
// The plain code of the producers against double precision and against their definition.
#include "octile/quant/producers.h"

#include "octile/core/float_formats.h"
#include "support/producer_case.h"
#include "support/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace octile {
namespace {

using test::ProducerOperands;
using test::ProducerShape;

constexpr double kExactSilu = 0x1p-23;  // silu() in double, rounded to fp32 first.

class PlainProducers : public testing::Test {
  testing::ScopedTrace trace_{__FILE__, __LINE__, test::seed_text()};
};

TEST_F(PlainProducers, AreAsCloseToDoublePrecisionAsTheirRoundingsExplain) {
  for (const ProducerKind kind : {ProducerKind::rms_norm, ProducerKind::swiglu}) {
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      for (const std::int64_t k : {1, 7, 64, 1000, 4096, 5120, 12289}) {
        for (const bool adds : {false, true}) {
          ProducerShape shape{.kind = kind, .dtype = dtype, .m = 9, .k = k, .adds = adds, .padding = 3, .offset = 1};
          const ProducerOperands operands(shape);
          EXPECT_EQ(distance_from_double(operands, operands.plain_sums(), operands.plain_y(), kExactSilu), "");
        }
      }
    }
  }
}

// Its gate's silu is -1.7e-16, which fp16 rounds to zero, and times an infinity that is NaN.
TEST_F(PlainProducers, AnInfinityBesideAGateThatRoundsToZeroIsNaNAndSoTheReferenceAllows) {
  ProducerOperands operands(ProducerShape{.kind = ProducerKind::swiglu, .dtype = DType::fp16, .m = 9, .k = 64});
  operands.x.set(7, 63, -40.0F);
  ASSERT_TRUE(std::isinf(operands.x.at(7, 127)));
  const std::vector<unsigned char> y = operands.plain_y();
  EXPECT_TRUE(std::isnan(load_as_float(y.data(), DType::fp16, 7 * 64 + 63)));
  EXPECT_EQ(distance_from_double(operands, operands.plain_sums(), y, kExactSilu), "");
}

TEST_F(PlainProducers, TheSumWithTheResidualIsRoundedOnceToTheType) {
  const ProducerOperands operands(ProducerShape{.m = 5, .k = 777, .adds = true});
  const std::vector<unsigned char> sums = operands.plain_sums();
  for (std::int64_t row = 0; row < 5; ++row) {
    for (std::int64_t i = 0; i < 777; ++i) {
      const float want = bf16_to_float(float_to_bf16(operands.x.at(row, i) + operands.residual.at(row, i)));
      ASSERT_EQ(load_as_float(sums.data(), DType::bf16, row * 777 + i), want) << row << ", " << i;
    }
  }
}

// The definition word for word: 4096 positions, halved bit after bit.
float defined_sum(const std::vector<unsigned char>& s, DType dtype, std::int64_t k) {
  std::vector<float> positions(4096, 0.0F);
  for (std::int64_t i = 0; i < k; ++i) {
    const float value = load_as_float(s.data(), dtype, i);
    const float square = value * value;
    positions[static_cast<std::size_t>(i % 4096)] += square;
  }
  std::size_t gone = 0;
  for (const unsigned bit : {0U, 1U, 2U, 10U, 11U, 3U, 4U, 5U, 6U, 7U, 8U, 9U}) {
    gone |= std::size_t{1} << bit;
    for (std::size_t p = 0; p < positions.size(); ++p) {
      if ((p & gone) == 0) {
        positions[p] += positions[p | (std::size_t{1} << bit)];
      }
    }
  }
  return positions[0];
}

TEST_F(PlainProducers, TheSumOfSquaresIsAddedInTheOrderOfItsDefinition) {
  int differ = 0;
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const std::int64_t k : {1, 8, 100, 1024, 4096, 4100, 12288, 20001}) {
      const std::vector<float> values = test::normals_with_outliers(k);
      const std::vector<unsigned char> s = test::as_bytes(values, dtype);
      const float got = sum_of_squares(s.data(), dtype, k);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(defined_sum(s, dtype, k))) << "K " << k;
      float one_by_one = 0;
      for (std::int64_t i = 0; i < k; ++i) {
        const float value = load_as_float(s.data(), dtype, i);
        one_by_one += value * value;
      }
      differ += got == one_by_one ? 0 : 1;
    }
  }
  EXPECT_GT(differ, 0) << "data for which the order makes no difference show nothing";
}

TEST_F(PlainProducers, ASumThatOverflowsMakesTheRowNaN) {
  EXPECT_TRUE(std::isnan(rms_norm_factor(std::numeric_limits<float>::infinity(), 8, 1e-6F)));
  EXPECT_TRUE(std::isnan(rms_norm_factor(std::numeric_limits<float>::quiet_NaN(), 8, 1e-6F)));
  EXPECT_EQ(rms_norm_factor(0.0F, 8, 0.25F), 2.0F);
  const std::vector<unsigned char> s = test::as_bytes(std::vector<float>(8, 1e30F), DType::bf16);
  EXPECT_TRUE(std::isinf(sum_of_squares(s.data(), DType::bf16, 8)));
}

TEST_F(PlainProducers, SiluOfEveryGateIsRoundedCorrectly) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    prepare_swiglu(dtype);
    const std::vector<unsigned char> one = test::as_bytes({1.0F}, dtype);
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto gate = static_cast<std::uint16_t>(bits);
      std::uint16_t y = 0;
      swiglu_elements(&gate, one.data(), dtype, 1, &y);
      const float g = load_as_float(&gate, dtype, 0);
      const double exact = static_cast<double>(g) / (1.0 + std::exp(-static_cast<double>(g)));
      const float got = load_as_float(&y, dtype, 0);
      std::uint16_t want = 0;
      store_from_float(&want, dtype, 0, static_cast<float>(exact));
      ASSERT_TRUE(y == want || (std::isnan(got) && std::isnan(exact))) << to_string(dtype) << " gate " << g << ": " << got;
    }
  }
}

TEST_F(PlainProducers, OneRowInPlaceGivesTheSameBits) {
  ProducerOperands operands(ProducerShape{.m = 1, .k = 1500, .adds = true});
  const std::vector<unsigned char> want = operands.plain_y();
  unsigned char* row = operands.x.row(0);
  add_rounded(row, operands.residual.row(0), DType::bf16, 1500, row);
  const float factor = rms_norm_factor(sum_of_squares(row, DType::bf16, 1500), 1500, operands.epsilon);
  rms_norm_elements(row, operands.gamma.bytes.data(), DType::bf16, 1500, factor, row);
  EXPECT_EQ(std::memcmp(row, want.data(), want.size()), 0);
}

}  // namespace
}  // namespace octile
