// SPDX-License-Identifier: Apache-2.0
// Dividing the linears over ranks.
#include "octile/model/model.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile {
namespace {

using Shape = std::pair<std::int64_t, std::int64_t>;

std::map<std::string, Shape> shapes(const ModelFigures& figures, std::int64_t tp) {
  const auto linears = linear_shapes(figures, tp);
  EXPECT_TRUE(linears) << linears.error().message;
  std::map<std::string, Shape> result;
  if (linears) {
    for (const LinearShape& linear : *linears) {
      result[linear.name] = {linear.n, linear.k};
    }
  }
  return result;
}

constexpr ModelFigures kQwen3At8B{4096, 12288, 32, 8, 128};
constexpr ModelFigures kLlamaAt70B{8192, 28672, 64, 8, 128};

TEST(TensorParallel, DividesQkvAndGateUpAlongNAndOAndDownAlongK) {
  const auto two = shapes(kQwen3At8B, 2);
  EXPECT_EQ(two.at("qkv"), Shape(3072, 4096));
  EXPECT_EQ(two.at("o"), Shape(4096, 2048));
  EXPECT_EQ(two.at("gate_up"), Shape(12288, 4096));
  EXPECT_EQ(two.at("down"), Shape(4096, 6144));
}

TEST(TensorParallel, KeyValueHeadsAreReplicatedWhereThereAreFewerThanRanks) {
  const auto sixteen = shapes(kLlamaAt70B, 16);
  // 4 query heads and one key and one value head a rank.
  EXPECT_EQ(sixteen.at("qkv"), Shape((4 + 2) * 128, 8192));
  EXPECT_EQ(sixteen.at("o"), Shape(8192, 4 * 128));
}

TEST(TensorParallel, RanksTogetherHoldTheWholeLinear) {
  const auto one = shapes(kLlamaAt70B, 1);
  for (const std::int64_t tp : {2, 4, 8}) {
    const auto rank = shapes(kLlamaAt70B, tp);
    for (const auto& [name, shape] : one) {
      EXPECT_EQ(tp * rank.at(name).first * rank.at(name).second, shape.first * shape.second) << name << " tp " << tp;
    }
  }
}

TEST(TensorParallel, WhatDoesNotDivideIsRefusedWithTheNumbers) {
  struct Case {
    ModelFigures figures;
    std::int64_t tp;
    const char* message;
  };
  const Case cases[] = {
      {kQwen3At8B, 3, "32 attention heads do not divide by 3 ranks"},
      {{5120, 17920, 40, 10, 128}, 4, "10 key/value heads are neither divisible by 4 ranks nor a divisor of them"},
      {{4096, 12290, 32, 8, 128}, 4, "an intermediate size of 12290 does not divide by 4 ranks"},
      {kQwen3At8B, 0, "wanted an integer from 1 to 1024, got 0"},
      {kQwen3At8B, -2, "wanted an integer from 1 to 1024, got -2"},
      {kQwen3At8B, std::int64_t{1} << 40, "got 1099511627776"},
  };
  for (const Case& c : cases) {
    const auto linears = linear_shapes(c.figures, c.tp);
    ASSERT_FALSE(linears) << c.message;
    EXPECT_EQ(linears.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(linears.error().message, testing::HasSubstr(c.message));
  }
}

TEST(TensorParallel, TheErrorOfAPresetNamesIt) {
  const auto model = load_model("phi-4", 4);
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, testing::HasSubstr("phi-4: 10 key/value heads"));
}

}  // namespace
}  // namespace octile
