// SPDX-License-Identifier: Apache-2.0
// Configurations as named integers.
#include "octile/table/tile_config.h"

#include <gtest/gtest.h>

namespace octile {
namespace {

TEST(TileConfig, FindsWhatWasSetAndNothingElse) {
  TileConfig config;
  config.set("BLOCK_SIZE_M", 16);
  config.set("num_warps", 4);
  EXPECT_EQ(config.find("BLOCK_SIZE_M"), 16);
  EXPECT_EQ(config.find("BLOCK_SIZE_N"), std::nullopt);
  EXPECT_EQ(config.get("num_warps", 8), 4);
  EXPECT_EQ(config.get("num_stages", 3), 3);
}

TEST(TileConfig, SettingAgainReplacesInPlace) {
  TileConfig config;
  config.set("a", 1);
  config.set("b", 2);
  config.set("a", -3);
  EXPECT_EQ(config.to_json(), R"({"a": -3, "b": 2})");
}

TEST(TileConfig, PrintsAsJsonInTheOrderItWasSet) {
  EXPECT_EQ(TileConfig{}.to_json(), "{}");
  TileConfig config;
  config.set("z", 9'000'000'000);
  config.set("a", 0);
  EXPECT_EQ(config.to_json(), R"({"z": 9000000000, "a": 0})");
}

TEST(TileConfig, EqualityIgnoresTheOrderButNothingElse) {
  TileConfig a, b;
  a.set("x", 1);
  a.set("y", 2);
  b.set("y", 2);
  EXPECT_FALSE(a == b);
  b.set("x", 1);
  EXPECT_TRUE(a == b);
  b.set("x", 3);
  EXPECT_FALSE(a == b);
  TileConfig c;
  c.set("x", 1);
  c.set("z", 2);
  EXPECT_FALSE(a == c);
}

}  // namespace
}  // namespace octile
