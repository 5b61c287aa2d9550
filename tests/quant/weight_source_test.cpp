// SPDX-License-Identifier: Apache-2.0
// What is refused of a checkpoint's weight, and that the message prints what came.
#include "octile/quant/weight_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace octile {
namespace {

using ::testing::HasSubstr;

class WeightSourceCheck : public ::testing::Test {
 protected:
  WeightSource source() {
    WeightSource s;
    s.n = 3;
    s.k = 5;
    s.codes = codes_.data();
    s.scales = scales_.data();
    s.scale_count = 3;
    return s;
  }
  static void expect_refused(const WeightSource& s, const std::string& part) {
    const auto result = check_weight_source(s);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(result.error().message, HasSubstr(part));
  }
  std::vector<std::uint8_t> codes_ = std::vector<std::uint8_t>(3 * 8, 0x38);
  std::vector<float> scales_ = {0.5F, 1.0F, 2.0F};
};

TEST_F(WeightSourceCheck, AcceptsOneScaleARowAndOneForAll) {
  EXPECT_TRUE(check_weight_source(source()));
  WeightSource one = source();
  one.scale_count = 1;
  EXPECT_TRUE(check_weight_source(one));
  EXPECT_EQ(weight_scale(one, 2), 0.5F);
  EXPECT_EQ(weight_scale(source(), 2), 2.0F);
}

TEST_F(WeightSourceCheck, WidensBf16AndFp16ScalesExactly) {
  const std::array<std::uint16_t, 3> bf16 = {0x3F80, 0x3FC0, 0x0001};
  WeightSource s = source();
  s.scales = bf16.data();
  s.scale_dtype = DType::bf16;
  EXPECT_TRUE(check_weight_source(s));
  EXPECT_EQ(weight_scale(s, 1), 1.5F);
  EXPECT_EQ(weight_scale(s, 2), 0x1p-133F);
  const std::array<std::uint16_t, 3> fp16 = {0x3C00, 0x0001, 0x7BFF};
  s.scales = fp16.data();
  s.scale_dtype = DType::fp16;
  EXPECT_EQ(weight_scale(s, 1), 0x1p-24F);
  EXPECT_EQ(weight_scale(s, 2), 65504.0F);
}

TEST_F(WeightSourceCheck, RefusesEmptyShapesAndShortRows) {
  WeightSource s = source();
  s.n = 0;
  expect_refused(s, "[0, 5]");
  s = source();
  s.k = -1;
  expect_refused(s, "[3, -1]");
  s = source();
  s.row_stride = 4;
  expect_refused(s, "got 4");
  s.row_stride = 8;
  EXPECT_TRUE(check_weight_source(s));
}

TEST_F(WeightSourceCheck, RefusesShapesBeyondTheAddressSpace) {
  WeightSource s = source();
  s.scale_count = 1;
  s.n = std::int64_t{1} << 40;
  s.k = std::int64_t{1} << 40;
  expect_refused(s, "want at most");
}

TEST_F(WeightSourceCheck, RefusesOtherDtypesByName) {
  WeightSource s = source();
  s.code_dtype = DType::e4m3fnuz;
  expect_refused(s, "e4m3fnuz");
  s = source();
  s.scale_dtype = DType::e4m3;
  expect_refused(s, "got e4m3");
}

TEST_F(WeightSourceCheck, RefusesNullPointersAndWrongScaleCounts) {
  WeightSource s = source();
  s.codes = nullptr;
  expect_refused(s, "codes");
  s = source();
  s.scales = nullptr;
  expect_refused(s, "scales");
  s = source();
  s.scale_count = 5;  // K, not N.
  expect_refused(s, "got 5");
  s.scale_count = 0;
  expect_refused(s, "got 0");
}

TEST_F(WeightSourceCheck, RefusesScalesThatAreNotFiniteAndPositive) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1.0F}) {
    scales_[1] = bad;
    expect_refused(source(), "weight scale 1");
  }
}

TEST_F(WeightSourceCheck, AScaleOfZeroNeedsAChannelOfZeros) {
  scales_[2] = 0.0F;
  expect_refused(source(), "weight scale 2");
  for (int k = 0; k < 5; ++k) {
    codes_[2 * 5 + k] = k % 2 == 0 ? 0x00 : 0x80;
  }
  EXPECT_TRUE(check_weight_source(source()));
}

}  // namespace
}  // namespace octile
