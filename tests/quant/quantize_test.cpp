// SPDX-License-Identifier: Apache-2.0
#include "octile/quant/quantize.h"

#include "octile/core/float_formats.h"
#include "support/random.h"

#include <octile/octile.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace octile {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

struct Row {
  std::vector<std::uint8_t> codes;
  float scale = 0;
};

Row quantize(const std::vector<float>& values, DType dtype, const QuantizeOptions& options = {}) {
  const auto bytes = test::as_bytes(values, dtype);
  Row row{std::vector<std::uint8_t>(values.size(), 0x55), 0};
  row.scale = quantize_row(bytes.data(), dtype, static_cast<std::int64_t>(values.size()), row.codes.data(), options);
  return row;
}

TEST(Quantize, TheLargestMagnitudeOfARowBecomes448AndEveryValueIsWithinHalfAStep) {
  SCOPED_TRACE(test::seed_text());
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    const auto values = test::normals_with_outliers(4096);
    const Row row = quantize(values, dtype);
    const auto bytes = test::as_bytes(values, dtype);
    float amax = 0;
    for (std::int64_t i = 0; i < 4096; ++i) {
      amax = std::max(amax, std::fabs(load_as_float(bytes.data(), dtype, i)));
    }
    EXPECT_EQ(row.scale, amax / 448.0F);
    for (std::int64_t i = 0; i < 4096; ++i) {
      const float x = load_as_float(bytes.data(), dtype, i);
      const float back = e4m3_to_float(row.codes[static_cast<std::size_t>(i)]) * row.scale;
      // Half a step of a 3-bit mantissa is 2^-4 of the value, of a subnormal 2^-10 of the scale.
      EXPECT_LE(std::fabs(back - x), std::max(std::fabs(x) * 0x1p-4F, row.scale * 0x1p-10F) * 1.0001F);
    }
  }
}

TEST(Quantize, ARowOfZerosGivesZeroCodesAndAFinitePositiveNormalScale) {
  const Row row = quantize(std::vector<float>(64, 0.0F), DType::bf16);
  EXPECT_THAT(row.codes, Each(0));
  EXPECT_EQ(row.scale, 0x1p-126F);
}

TEST(Quantize, NegativeZeroKeepsItsSignAndNoValueBecomesNaN) {
  const Row row = quantize({-0.0F, 1.0F}, DType::bf16);
  EXPECT_EQ(row.codes[0], 0x80);
  EXPECT_EQ(row.codes[1], 0x7E);
}

TEST(Quantize, TinyRowsStayFiniteAndAreBoundedOrFlushedToZero) {
  for (const float tiny : {1e-38F, 1e-40F, -1e-40F}) {
    const Row row = quantize({tiny, 0.0F, tiny / 2}, DType::bf16);
    ASSERT_TRUE(std::isfinite(row.scale));
    ASSERT_GT(row.scale, 0.0F);
    for (const std::uint8_t code : row.codes) {
      ASSERT_NE(code & 0x7F, kE4m3NaN);
      ASSERT_LT(code & 0x7F, 0x7E);
    }
    const float stored = load_as_float(test::as_bytes({tiny}, DType::bf16).data(), DType::bf16, 0);
    EXPECT_LE(std::fabs(e4m3_to_float(row.codes[0]) * row.scale - stored),
              0x1p-126F * 0x1p-10F + std::fabs(stored) * 0x1p-4F);
  }
}

TEST(Quantize, ARowWithANonFiniteValueBecomesNaNWhollyAndIsNotLaundered) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    const Row row = quantize({1.0F, bad, 2.0F}, DType::bf16);
    EXPECT_THAT(row.codes, Each(kE4m3NaN));
    EXPECT_TRUE(std::isnan(row.scale));
    std::vector<std::uint8_t> codes(3);
    const auto bytes = test::as_bytes({1.0F, bad, 2.0F}, DType::fp16);
    EXPECT_TRUE(std::isnan(quantize_row_static(bytes.data(), DType::fp16, 3, codes.data(), 0.5F)));
    EXPECT_THAT(codes, Each(kE4m3NaN));
  }
}

TEST(Quantize, OtherRowsDoNotChangeBesideANonFiniteOne) {
  std::vector<float> values = test::normals(3 * 20);
  const auto clean = test::as_bytes(values, DType::bf16);
  values[25] = std::numeric_limits<float>::infinity();
  const auto dirty = test::as_bytes(values, DType::bf16);
  std::vector<std::uint8_t> a(60), b(60);
  std::vector<float> sa(3), sb(3);
  ASSERT_TRUE(quantize_per_token({clean.data(), DType::bf16, 3, 20, 20, 1}, a.data(), sa.data()));
  ASSERT_TRUE(quantize_per_token({dirty.data(), DType::bf16, 3, 20, 20, 1}, b.data(), sb.data()));
  for (const std::size_t row : {0U, 2U}) {
    EXPECT_EQ(sa[row], sb[row]);
    EXPECT_TRUE(std::equal(a.begin() + row * 20, a.begin() + row * 20 + 20, b.begin() + row * 20));
  }
  EXPECT_TRUE(std::isnan(sb[1]));
}

TEST(Quantize, PaddedRowsGiveWhatContiguousOnesGiveAndThePaddingIsNeverRead) {
  const auto values = test::normals(4 * 12);
  std::vector<float> padded(4 * 17, std::numeric_limits<float>::quiet_NaN());
  for (std::size_t row = 0; row < 4; ++row) {
    std::copy_n(values.begin() + row * 12, 12, padded.begin() + row * 17);
  }
  const auto tight = test::as_bytes(values, DType::fp16);
  const auto loose = test::as_bytes(padded, DType::fp16);
  std::vector<std::uint8_t> a(48), b(48);
  std::vector<float> sa(4), sb(4);
  ASSERT_TRUE(quantize_per_token({tight.data(), DType::fp16, 4, 12, 12, 1}, a.data(), sa.data()));
  ASSERT_TRUE(quantize_per_token({loose.data(), DType::fp16, 4, 12, 17, 1}, b.data(), sb.data()));
  EXPECT_EQ(a, b);
  EXPECT_EQ(sa, sb);
}

TEST(Quantize, EveryReductionLengthFromOneUpIsRight) {
  for (const std::int64_t k : {1, 3, 4, 12, 20, 1001}) {
    const Row row = quantize(test::normals(k), DType::bf16);
    EXPECT_NE(std::ranges::count_if(row.codes, [](std::uint8_t c) { return (c & 0x7F) == 0x7E; }), 0) << k;
  }
}

TEST(Quantize, StridesThatAreNotRowsAreRefusedWithTheStridesInTheMessage) {
  const std::vector<std::uint16_t> x(64);
  std::vector<std::uint8_t> codes(64);
  std::vector<float> scales(8);
  const auto transposed = quantize_per_token({x.data(), DType::bf16, 8, 8, 1, 8}, codes.data(), scales.data());
  ASSERT_FALSE(transposed);
  EXPECT_THAT(transposed.error().message, HasSubstr("(1, 8)"));
  EXPECT_FALSE(quantize_per_token({x.data(), DType::bf16, 8, 8, 7, 1}, codes.data(), scales.data()));
  EXPECT_FALSE(quantize_per_token({x.data(), DType::e4m3, 8, 8, 8, 1}, codes.data(), scales.data()));
  EXPECT_FALSE(quantize_per_token({x.data(), DType::e4m3fnuz, 8, 8, 8, 1}, codes.data(), scales.data()));
  EXPECT_FALSE(quantize_per_token({nullptr, DType::bf16, 8, 8, 8, 1}, codes.data(), scales.data()));
}

TEST(Quantize, ViewsOfCodesAreRefusedAsWhatTheyAre) {
  const std::vector<std::uint8_t> codes(64);
  EXPECT_TRUE(check_codes_view({codes.data(), DType::e4m3, 8, 8, 8, 1}, 8));
  EXPECT_TRUE(check_codes_view({nullptr, DType::e4m3, 0, 8, 8, 1}, 8));
  EXPECT_TRUE(check_codes_view({codes.data(), DType::e4m3, 1, 8, 0, 1}, 8)) << "one row has no stride";
  const auto said = [&](const ConstMatrixView& view) { return check_codes_view(view, 8).error().message; };
  EXPECT_THAT(said({codes.data(), DType::e4m3, 8, 8, 7, 1}), AllOf(HasSubstr("[8, 8] e4m3"), HasSubstr("(7, 1)")));
  EXPECT_THAT(said({codes.data(), DType::e4m3, 8, 8, 8, 2}), AllOf(HasSubstr("[8, 8] e4m3"), HasSubstr("(8, 2)")));
  EXPECT_THAT(said({nullptr, DType::e4m3, 8, 8, 8, 1}), AllOf(HasSubstr("[8, 8] e4m3"), HasSubstr("null")));
  EXPECT_THAT(said({codes.data(), DType::e4m3, 8, 4, 8, 1}), HasSubstr("want [M, 8], got [8, 4]"));
  EXPECT_THAT(said({codes.data(), DType::bf16, 8, 8, 8, 1}), HasSubstr("want e4m3 codes, got bf16"));
}

// Against every element of small matrices of one stride, anywhere around each other.
TEST(Quantize, OutputsAreApartFromActivationsExactlyWhereTheyShareNoByte) {
  std::vector<unsigned char> memory(256);
  for (const std::int64_t stride : {1, 2, 5}) {
    for (std::int64_t x_cols = 1; x_cols <= stride; ++x_cols) {
      for (std::int64_t y_cols = 1; y_cols <= stride; ++y_cols) {
        for (const std::int64_t rows : {1, 2, 3}) {
          for (std::int64_t offset = -40; offset <= 40; offset += 2) {
            std::set<const unsigned char*> bytes;
            const unsigned char* const x = memory.data() + 128;
            unsigned char* const y = memory.data() + 128 + offset;
            bool shared = false;
            for (std::int64_t i = 0; i < rows * x_cols * 2; ++i) {
              bytes.insert(x + i / (x_cols * 2) * stride * 2 + i % (x_cols * 2));
            }
            for (std::int64_t i = 0; i < rows * y_cols * 2; ++i) {
              shared = shared || bytes.contains(y + i / (y_cols * 2) * stride * 2 + i % (y_cols * 2));
            }
            const auto apart =
                check_apart({x, DType::bf16, rows, x_cols, stride, 1}, {y, DType::bf16, rows, y_cols, stride, 1});
            EXPECT_NE(apart.has_value(), shared) << stride << " " << x_cols << " " << y_cols << " " << rows << " " << offset;
          }
        }
      }
    }
  }
}

TEST(Quantize, AnEmptyBatchIsDoneAtOnce) {
  EXPECT_TRUE(quantize_per_token({nullptr, DType::bf16, 0, 8, 8, 1}, nullptr, nullptr));
}

TEST(Quantize, VllmsFloorBoundsTheScaleAndItsUpperBoundSaturates) {
  auto options = *quantize_preset("vllm");
  EXPECT_EQ(quantize({1e-6F}, DType::bf16, options).scale, (1.0F / 512.0F) / 448.0F);
  options.upper_bound = 10.0F;
  const Row row = quantize({20.0F, 5.0F}, DType::bf16, options);
  EXPECT_EQ(row.scale, 10.0F / 448.0F);
  EXPECT_EQ(row.codes[0], 0x7E);
  EXPECT_EQ(row.codes[1], float_to_e4m3_saturate(5.0F / row.scale));
}

TEST(Quantize, TheReciprocalDivisionIsTheOneEnginesDoAndDiffersSomewhere) {
  SCOPED_TRACE(test::seed_text());
  const auto options = *quantize_preset("sglang");
  int differing = 0;
  for (int i = 0; i < 200; ++i) {
    const auto values = test::normals(1024);
    const auto bytes = test::as_bytes(values, DType::bf16);
    const Row exact = quantize(values, DType::bf16);
    const Row engine = quantize(values, DType::bf16, options);
    ASSERT_EQ(exact.scale, engine.scale);
    const float reciprocal = 1.0F / engine.scale;
    for (std::int64_t j = 0; j < 1024; ++j) {
      ASSERT_EQ(engine.codes[static_cast<std::size_t>(j)],
                float_to_e4m3_saturate(load_as_float(bytes.data(), DType::bf16, j) * reciprocal));
    }
    differing += static_cast<int>(exact.codes != engine.codes);
  }
  EXPECT_GT(differing, 0);
}

TEST(Quantize, OptionsThatMakeAScaleMeaninglessAreRefused) {
  for (const float floor :
       {0.0F, -1.0F, 1e-40F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_FALSE(check_quantize_options({.floor = floor})) << floor;
  }
  EXPECT_FALSE(check_quantize_options({.floor = 1.0F, .upper_bound = 0.5F}));
  EXPECT_TRUE(check_quantize_options({}));
  EXPECT_FALSE(quantize_preset("no such engine"));
  EXPECT_FALSE(quantize_preset(nullptr));
}

}  // namespace
}  // namespace octile
