// SPDX-License-Identifier: Apache-2.0
// What OCTILE_VERBOSE prints, and that a linear prints it for each call.
#include "octile/linear/call_line.h"

#include <octile/octile.hpp>

#include "layer.h"
#include "octile/core/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace octile {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

// stderr of one call with `m` rows of a linear [48, 64] in chunks of at most 4, made under OCTILE_VERBOSE=`value`.
std::string lines_of_a_call(std::optional<std::string> value, std::int64_t m) {
  const env::ScopedOverride verbose("OCTILE_VERBOSE", std::move(value));
  const test::Weights weights(48, 64);
  auto weight = Fp8Weight::create(weights.source());
  auto linear = Fp8Linear::create(*weight);
  EXPECT_TRUE(linear) << linear.error().message;
  EXPECT_TRUE(linear->prepare(4));
  const test::Inputs inputs(m, weights.k);
  testing::internal::CaptureStderr();
  test::run_guarded(*linear, inputs.view(), DType::bf16, weights.n);
  return testing::internal::GetCapturedStderr();
}

TEST(CallLine, NamesKernelShapeTimeAndRates) {
  CallLine call;
  call.kernel = "avx512";
  call.m = 2;
  call.n = 1000;
  call.k = 500;
  call.x_bytes = 2000;
  call.y_bytes = 4000;
  call.us = 50.0;
  EXPECT_EQ(call_line(call), "octile: avx512 M=2 N=1000 K=500 50.0 us, 10.1 GB/s, 0.04 TFLOP/s");
  call.us = 0.0;
  EXPECT_THAT(call_line(call), HasSubstr("0.0 us"));
  call.is_done = false;
  call.us = 3.14;
  EXPECT_EQ(call_line(call), "octile: avx512 M=2 N=1000 K=500 enqueued in 3.1 us");
}

TEST(CallLine, ALinearPrintsOneForEachChunkWhereItIsAskedTo) {
  const std::string one = lines_of_a_call("1", 3);
  EXPECT_THAT(one, MatchesRegex("octile: [a-z0-9]+ M=3 N=48 K=64 [0-9.]+ us, [0-9.]+ GB/s, [0-9.]+ TFLOP/s\n"));
  const std::string two = lines_of_a_call("on", 6);
  EXPECT_EQ(std::ranges::count(two, '\n'), 2);
  EXPECT_THAT(two, HasSubstr("M=4 "));
  EXPECT_THAT(two, HasSubstr("M=2 "));
}

TEST(CallLine, NothingIsPrintedOtherwise) {
  EXPECT_THAT(lines_of_a_call(std::nullopt, 3), IsEmpty());
  EXPECT_THAT(lines_of_a_call("0", 3), IsEmpty());
}

TEST(CallLine, AWordThatIsNoBooleanIsTheErrorOfTheLinear) {
  const env::ScopedOverride verbose("OCTILE_VERBOSE", "loud");
  const test::Weights weights(4, 4);
  auto weight = Fp8Weight::create(weights.source());
  ASSERT_TRUE(weight) << weight.error().message;
  const auto linear = Fp8Linear::create(*weight);
  ASSERT_FALSE(linear);
  EXPECT_THAT(linear.error().message, HasSubstr("OCTILE_VERBOSE"));
  EXPECT_THAT(linear.error().message, HasSubstr("loud"));
}

}  // namespace
}  // namespace octile
