// SPDX-License-Identifier: Apache-2.0
// Values of options.
#include "octile/cli/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile::cli {
namespace {

TEST(Parse, AListOfMKeepsItsOrder) {
  const auto list = parse_m_list("16,1,1048576");
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(*list, (std::vector<std::int64_t>{16, 1, 1048576}));
}

TEST(Parse, AListOfMHasABound) {
  std::string text = "1";
  for (int m = 2; m <= 4096; ++m) {
    text += ",";
    text += std::to_string(m);
  }
  EXPECT_TRUE(parse_m_list(text));
  EXPECT_FALSE(parse_m_list(text + ",4097"));
}

TEST(Parse, WhatIsNoListOfMIsRefused) {
  for (const char* text : {"", ",", "0", "-1", "+1", "1 ", " 1", "1;2", "0x10", "1e3", "1,1", "1048577", "1\n2"}) {
    EXPECT_FALSE(parse_m_list(text)) << text;
  }
}

TEST(Parse, AShardIsOneOfSeveral) {
  const auto shard = parse_shard("2/8");
  ASSERT_TRUE(shard) << shard.error().message;
  EXPECT_EQ(shard->index, 2);
  EXPECT_EQ(shard->count, 8);
  EXPECT_TRUE(parse_shard("1/1"));
  for (const char* text : {"", "/", "2", "2/", "/8", "0/8", "9/8", "-1/8", "2/8/8", "2 / 8", "1/1025", "a/b"}) {
    EXPECT_FALSE(parse_shard(text)) << text;
  }
}

TEST(Parse, BudgetsTakeUnits) {
  const std::pair<const char*, double> cases[] = {{"60", 60},   {"60s", 60},  {"2m", 120},     {"1.5min", 90},
                                                  {"0.5", 0.5}, {"1h", 3600}, {"168h", 604800}};
  for (const auto& [text, seconds] : cases) {
    const auto budget = parse_budget_s(text);
    ASSERT_TRUE(budget) << budget.error().message;
    EXPECT_DOUBLE_EQ(*budget, seconds) << text;
  }
}

TEST(Parse, WhatIsNoBudgetIsRefused) {
  for (const char* text : {"", "s", "0", "0s", "-1", "1d", "1 s", "inf", "nan", "1e400", "1e3", "169h", "60s60"}) {
    EXPECT_FALSE(parse_budget_s(text)) << text;
  }
}

}  // namespace
}  // namespace octile::cli
