// SPDX-License-Identifier: Apache-2.0
#include "octile/quant/reference.h"

#include "octile/core/float_formats.h"
#include "support/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace octile {
namespace {

TEST(Reference, AllOnesWithPowersOfTwoAsScalesComeOutExactly) {
  constexpr std::int64_t kM = 5, kN = 7, kK = 33;
  const std::uint8_t one = float_to_e4m3_saturate(1.0F);
  const std::vector<std::uint8_t> x(kM * kK, one), w(kN * kK, one);
  std::vector<float> sx(kM), sw(kN), bias(kN);
  for (int i = 0; i < kM; ++i) sx[i] = std::ldexp(1.0F, i - 2);
  for (int i = 0; i < kN; ++i) {
    sw[i] = std::ldexp(1.0F, -i);
    bias[i] = static_cast<float>(i);
  }
  const auto y = reference_linear({kM, kN, kK, x.data(), sx.data(), w.data(), sw.data(), bias.data()}).values;
  for (int m = 0; m < kM; ++m) {
    for (int n = 0; n < kN; ++n) {
      EXPECT_EQ(y[m * kN + n], 33.0 * std::ldexp(1.0, m - 2 - n) + n);
    }
  }
}

TEST(Reference, SamplesAreTheElementsOfTheWhole) {
  constexpr std::int64_t kM = 6, kN = 9, kK = 50;
  const auto x = test::random_codes(kM * kK), w = test::random_codes(kN * kK);
  const auto sx = test::random_scales(kM), sw = test::random_scales(kN);
  const ReferenceInputs in{kM, kN, kK, x.data(), sx.data(), w.data(), sw.data(), nullptr};
  const auto whole = reference_linear(in).values;
  const auto some = reference_samples(in, {5, 0}, {8, 3, 3}).values;
  const std::vector<double> want = {whole[5 * kN + 8], whole[5 * kN + 3], whole[5 * kN + 3], whole[8], whole[3], whole[3]};
  EXPECT_EQ(some, want);
}

TEST(Reference, ACorrectlyRoundedResultIsWithinTheToleranceAndAnOffByOneRowIsNot) {
  SCOPED_TRACE(test::seed_text());
  constexpr std::int64_t kM = 8, kN = 64, kK = 512;
  const auto x = test::random_codes(kM * kK), w = test::random_codes(kN * kK);
  const auto sx = test::random_scales(kM), sw = test::random_scales(kN);
  const auto reference = reference_linear({kM, kN, kK, x.data(), sx.data(), w.data(), sw.data(), nullptr});
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    std::vector<unsigned char> y(kM * kN * 4);
    for (std::int64_t i = 0; i < kM * kN; ++i) {
      store_from_float(y.data(), dtype, i, static_cast<float>(reference.values[static_cast<std::size_t>(i)]));
    }
    const auto good = compare_with_reference(y.data(), dtype, kN, reference, kM, kN);
    EXPECT_LE(good.largest_row, error_tolerance(dtype, kK, Accumulate::precise)) << good.to_string();
    // Off by a quarter of the row's norm, far beyond every tolerance, whatever the element itself is.
    double squares = 0;
    for (std::int64_t n = 0; n < kN; ++n) {
      squares += reference.values[3 * kN + n] * reference.values[3 * kN + n];
    }
    const double wrong = reference.values[3 * kN + 5] + 0.25 * std::sqrt(squares);
    store_from_float(y.data(), dtype, 3 * kN + 5, static_cast<float>(wrong));
    const auto bad = compare_with_reference(y.data(), dtype, kN, reference, kM, kN);
    EXPECT_GT(bad.largest_row, error_tolerance(dtype, kK, Accumulate::precise));
    EXPECT_EQ(bad.worst_row, 3);
    EXPECT_EQ(bad.worst_col, 5);
  }
}

TEST(Reference, ANaNOnOneSideOnlyIsAMismatchThatNamesItsPlace) {
  const Reference reference = {{1.0, NAN, 3.0, 4.0}, std::vector<double>(4, 0.0)};
  std::vector<float> y = {1.0F, NAN, 3.0F, 4.0F};
  EXPECT_FALSE(compare_with_reference(y.data(), DType::fp32, 2, reference, 2, 2).nan_mismatch);
  y[3] = NAN;
  const auto report = compare_with_reference(y.data(), DType::fp32, 2, reference, 2, 2);
  EXPECT_TRUE(report.nan_mismatch);
  EXPECT_EQ(report.worst_row, 1);
  EXPECT_EQ(report.worst_col, 1);
  EXPECT_TRUE(std::isinf(report.relative_frobenius));
}

TEST(Reference, AnErrorWhereTheReferenceIsZeroIsNotHidden) {
  const Reference reference = {std::vector<double>(4, 0.0), std::vector<double>(4, 0.0)};
  std::vector<float> y(4, 0.0F);
  EXPECT_EQ(compare_with_reference(y.data(), DType::fp32, 2, reference, 2, 2).relative_frobenius, 0.0);
  y[0] = 1e-3F;
  EXPECT_TRUE(std::isinf(compare_with_reference(y.data(), DType::fp32, 2, reference, 2, 2).largest_row));
}

// The kind of fault: a tolerance relative to a result that cancels, or that no longer has all its bits, fails what is right.
TEST(Reference, ASingleElementThatCancelsOrIsTinyIsHeldToWhatWasAdded) {
  SCOPED_TRACE(test::seed_text());
  int cancelled = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const auto x = test::random_codes(3), w = test::random_codes(3);
    const auto sx = test::random_scales(1), sw = test::random_scales(1);
    const double product = reference_linear({1, 1, 3, x.data(), sx.data(), w.data(), sw.data(), nullptr}).values[0];
    const float bias = -static_cast<float>(product) * (1.0F + 0.001F * test::normals(1)[0]);
    const Reference reference = reference_linear({1, 1, 3, x.data(), sx.data(), w.data(), sw.data(), &bias});
    float sum = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      sum += e4m3_to_float(x[i]) * e4m3_to_float(w[i]);
    }
    const float y = sum * sw[0] * sx[0] + bias;
    const ErrorReport report = compare_with_reference(&y, DType::fp32, 1, reference, 1, 1);
    EXPECT_LE(report.relative_frobenius, error_tolerance(DType::fp32, 3, Accumulate::precise)) << report.to_string();
    cancelled += std::fabs(y - reference.values[0]) > 1e-5 * std::fabs(reference.values[0]) ? 1 : 0;
    const float off = y + 1e-4F * static_cast<float>(reference.addends[0]);
    EXPECT_GT(compare_with_reference(&off, DType::fp32, 1, reference, 1, 1).relative_frobenius,
              error_tolerance(DType::fp32, 3, Accumulate::precise))
        << "an error that rounding cannot explain must show";
  }
  EXPECT_GT(cancelled, 100) << "sums must cancel, or this test says nothing";

  const Reference tiny = {{1.3e-6}, {1.3e-6}};
  std::vector<unsigned char> y(2);
  store_from_float(y.data(), DType::fp16, 0, 1.3e-6F);
  EXPECT_EQ(compare_with_reference(y.data(), DType::fp16, 1, tiny, 1, 1).relative_frobenius, 0.0);
  store_from_float(y.data(), DType::fp16, 0, 1.5e-6F);
  EXPECT_GT(compare_with_reference(y.data(), DType::fp16, 1, tiny, 1, 1).relative_frobenius, 0.01);
}

}  // namespace
}  // namespace octile
