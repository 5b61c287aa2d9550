// SPDX-License-Identifier: Apache-2.0
// Conversions against their definitions. The comparison with ml_dtypes, an independent implementation, is in
// conversions_oracle.py.
#include "octile/core/float_formats.h"

#include "support/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace octile {
namespace {

// The value of a code by the definition of the format: sign, exponent with bias 7, three bits of mantissa.
double defined_e4m3(unsigned code) {
  const double sign = (code & 0x80U) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>((code >> 3) & 15U);
  const int mantissa = static_cast<int>(code & 7U);
  return exponent == 0 ? sign * std::ldexp(mantissa, -9) : sign * std::ldexp(8 + mantissa, exponent - 10);
}

TEST(FloatFormats, EveryE4m3CodeHasTheValueOfItsDefinition) {
  for (unsigned code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<std::uint8_t>(code));
    if ((code & 0x7FU) == 0x7FU) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(static_cast<double>(value), defined_e4m3(code)) << code;
      EXPECT_EQ(std::signbit(value), (code & 0x80U) != 0) << code;
    }
  }
}

TEST(FloatFormats, EveryFiniteE4m3CodeSurvivesTheRoundTrip) {
  for (unsigned code = 0; code < 256; ++code) {
    if ((code & 0x7FU) != 0x7FU) {
      EXPECT_EQ(float_to_e4m3_saturate(e4m3_to_float(static_cast<std::uint8_t>(code))), code);
    }
  }
}

// Nearest code by search over all of them: ties go to the even mantissa.
std::uint8_t nearest_by_search(float value) {
  if (std::isnan(value)) {
    return static_cast<std::uint8_t>(kE4m3NaN | (std::signbit(value) ? 0x80 : 0));
  }
  unsigned best = 0;
  double best_distance = std::numeric_limits<double>::infinity();
  for (unsigned code = 0; code < 0x7F; ++code) {
    const double distance = std::fabs(std::fabs(static_cast<double>(value)) - defined_e4m3(code));
    if (distance < best_distance || (distance == best_distance && (code & 1U) == 0)) {
      best = code;
      best_distance = distance;
    }
  }
  // Every distance to an infinity is infinite; it saturates.
  if (std::isinf(value)) {
    best = 0x7E;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(value) ? 0x80U : 0U));
}

TEST(FloatFormats, EveryBf16AndFp16ValueRoundsToTheNearestE4m3Code) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const float from_bf16 = bf16_to_float(static_cast<std::uint16_t>(bits));
    const float from_fp16 = fp16_to_float(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(float_to_e4m3_saturate(from_bf16), nearest_by_search(from_bf16)) << "bf16 bits " << bits;
    ASSERT_EQ(float_to_e4m3_saturate(from_fp16), nearest_by_search(from_fp16)) << "fp16 bits " << bits;
  }
}

TEST(FloatFormats, ValuesBeyondTheLargestCodeSaturateInsteadOfBecomingNaN) {
  for (const float value : {448.0F, 449.0F, 464.0F, 464.1F, 480.0F, 1e30F, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(float_to_e4m3_saturate(value), 0x7E);
    EXPECT_EQ(float_to_e4m3_saturate(-value), 0xFE);
  }
  EXPECT_EQ(float_to_e4m3_saturate(std::numeric_limits<float>::quiet_NaN()) & 0x7F, 0x7F);
}

TEST(FloatFormats, TiesOfE4m3GoToTheEvenCodeAndNeighboursDoNot) {
  for (unsigned code = 0; code < 0x7E; ++code) {
    const auto tie = static_cast<float>((defined_e4m3(code) + defined_e4m3(code + 1)) / 2);
    EXPECT_EQ(float_to_e4m3_saturate(tie), code + (code & 1U));
    EXPECT_EQ(float_to_e4m3_saturate(std::nextafter(tie, 0.0F)), code);
    EXPECT_EQ(float_to_e4m3_saturate(std::nextafter(tie, 1000.0F)), code + 1);
  }
}

TEST(FloatFormats, EveryBf16AndFp16ValueSurvivesTheRoundTripThroughFp32) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float bf16 = bf16_to_float(half);
    const float fp16 = fp16_to_float(half);
    if (std::isnan(bf16)) {
      ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(bf16))));
    } else {
      ASSERT_EQ(float_to_bf16(bf16), half);
    }
    if (std::isnan(fp16)) {
      ASSERT_TRUE(std::isnan(fp16_to_float(float_to_fp16(fp16))));
    } else {
      ASSERT_EQ(float_to_fp16(fp16), half);
    }
  }
}

// Nearest of two neighbouring values of a narrower format, for random fp32 bits.
template <class Widen, class Narrow>
void check_narrowing(Widen widen, Narrow narrow, float largest) {
  SCOPED_TRACE(test::seed_text());
  std::uniform_int_distribution<std::uint32_t> draw;
  for (int i = 0; i < 2'000'000; ++i) {
    const float value = std::bit_cast<float>(draw(test::generator()));
    const std::uint16_t got = narrow(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(widen(got)));
      continue;
    }
    const float back = widen(got);
    ASSERT_EQ(std::signbit(back), std::signbit(value));
    if (std::fabs(value) > largest) {
      continue;
    }
    const double error = std::fabs(static_cast<double>(back) - static_cast<double>(value));
    for (const int step : {-1, 1}) {
      const auto neighbour_bits = static_cast<std::uint16_t>(got + step);
      const float neighbour = widen(neighbour_bits);
      if ((got & 0x7FFF) == 0 && step < 0) {
        continue;
      }
      if (std::isfinite(neighbour)) {
        const double other = std::fabs(static_cast<double>(neighbour) - static_cast<double>(value));
        ASSERT_TRUE(error < other || (error == other && (got & 1U) == 0)) << value;
      }
    }
  }
}

TEST(FloatFormats, RandomFp32BitsRoundToTheNearestBf16) { check_narrowing(bf16_to_float, float_to_bf16, 3.3e38F); }

TEST(FloatFormats, RandomFp32BitsRoundToTheNearestFp16) { check_narrowing(fp16_to_float, float_to_fp16, 65504.0F); }

TEST(FloatFormats, Fp16OverflowsToInfinityFrom65520AndBf16PastItsLargest) {
  EXPECT_EQ(float_to_fp16(65519.99F), 0x7BFF);
  EXPECT_EQ(float_to_fp16(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_fp16(-1e30F), 0xFC00);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
}

}  // namespace
}  // namespace octile
