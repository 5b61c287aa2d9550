// SPDX-License-Identifier: Apache-2.0
// Numbers as the reports print them.
#include "octile/report/numbers.h"

#include <limits>
#include <locale>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace octile {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Numbers, WhatWasNotMeasuredIsADash) {
  EXPECT_EQ(format_fixed(std::nullopt, 2), "-");
  EXPECT_EQ(format_fixed(kNaN, 2), "-");
  EXPECT_EQ(format_us(kInf), "-");
  EXPECT_EQ(format_us(-kInf), "-");
  EXPECT_EQ(format_ratio(kNaN), "-");
  EXPECT_EQ(format_share(std::nullopt), "-");
  EXPECT_EQ(format_duration(kNaN), "-");
}

TEST(Numbers, MicrosecondsKeepThreeOrFourDigits) {
  EXPECT_EQ(format_us(0.0), "0.00");
  EXPECT_EQ(format_us(7.226), "7.23");
  EXPECT_EQ(format_us(9.994), "9.99");
  EXPECT_EQ(format_us(9.996), "10.0");
  EXPECT_EQ(format_us(61.44), "61.4");
  EXPECT_EQ(format_us(99.96), "100");
  EXPECT_EQ(format_us(15230.4), "15230");
}

TEST(Numbers, RatiosAndSharesCarryTheirUnit) {
  EXPECT_EQ(format_ratio(1.254), "1.25x");
  EXPECT_EQ(format_share(0.874), "87 %");
}

TEST(Numbers, BytesMoveToTheNextUnitBeforeTheyReadAs1024) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(1024 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(std::int64_t{100663296}), "96.0 MiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::int64_t>::max()), "8388608.0 TiB");
}

TEST(Numbers, DurationsRollOver) {
  EXPECT_EQ(format_duration(-3), "0 s");
  EXPECT_EQ(format_duration(59.4), "59 s");
  EXPECT_EQ(format_duration(59.6), "1 min 00 s");
  EXPECT_EQ(format_duration(185), "3 min 05 s");
  EXPECT_EQ(format_duration(7620), "2 h 07 min");
}

class DecimalComma : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

TEST(Numbers, TheLocaleDoesNotChangeThem) {
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new DecimalComma));
  std::ostringstream stream;
  stream << 1234.5;
  const std::string fixed = format_fixed(1234.5, 1);
  const std::string us = format_us(15230.4);
  std::locale::global(before);
  EXPECT_EQ(stream.str(), "1.234,5") << "the locale of this test has no effect";
  EXPECT_EQ(fixed, "1234.5");
  EXPECT_EQ(us, "15230");
}

}  // namespace
}  // namespace octile
