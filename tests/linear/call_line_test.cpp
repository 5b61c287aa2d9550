// SPDX-License-Identifier: Apache-2.0
// What OCTILE_VERBOSE prints, and that a linear prints it for each call.
#include "octile/linear/call_line.h"

#include <octile/octile.hpp>

#include "octile/core/env.h"
#include "support/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace octile {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

// stderr of one call with `m` rows of a linear [48, 64] in chunks of at most 4, made under OCTILE_VERBOSE=`value`.
std::string lines_of_a_call(std::optional<std::string> value, std::int64_t m) {
  const env::ScopedOverride verbose("OCTILE_VERBOSE", std::move(value));
  const std::int64_t n = 48;
  const std::int64_t k = 64;
  const std::vector<std::uint8_t> codes = test::random_codes(n * k);
  const std::vector<float> scales = test::random_scales(n);
  WeightSource source;
  source.n = n;
  source.k = k;
  source.codes = codes.data();
  source.scales = scales.data();
  source.scale_count = n;
  auto weight = Fp8Weight::create(source);
  auto linear = Fp8Linear::create(*weight);
  EXPECT_TRUE(linear) << linear.error().message;
  EXPECT_TRUE(linear->prepare(4));
  const std::vector<unsigned char> x = test::as_bytes(test::normals(m * k), DType::bf16);
  std::vector<std::uint16_t> y(static_cast<std::size_t>(m * n));
  const std::int64_t bytes = linear->workspace_bytes(m);
  const std::unique_ptr<void, void (*)(void*)> workspace(
      std::aligned_alloc(64, (static_cast<std::size_t>(bytes) + 63) / 64 * 64), std::free);
  testing::internal::CaptureStderr();
  const auto done = linear->run({x.data(), DType::bf16, m, k, k}, {y.data(), DType::bf16, m, n, n}, workspace.get(), bytes);
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(done) << done.error().message;
  return printed;
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
  const std::vector<std::uint8_t> codes = test::random_codes(16);
  const std::vector<float> scales = test::random_scales(4);
  WeightSource source;
  source.n = 4;
  source.k = 4;
  source.codes = codes.data();
  source.scales = scales.data();
  source.scale_count = 4;
  auto weight = Fp8Weight::create(source);
  ASSERT_TRUE(weight) << weight.error().message;
  const auto linear = Fp8Linear::create(*weight);
  ASSERT_FALSE(linear);
  EXPECT_THAT(linear.error().message, HasSubstr("OCTILE_VERBOSE"));
  EXPECT_THAT(linear.error().message, HasSubstr("loud"));
}

}  // namespace
}  // namespace octile
