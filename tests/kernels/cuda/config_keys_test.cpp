// SPDX-License-Identifier: Apache-2.0
#include "octile/kernels/cuda/config_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>

namespace octile::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::array kKeys = {ConfigKey{"WANTED", 1, 8, std::nullopt}, ConfigKey{"USUAL", 0, 100, 7},
                              ConfigKey{"POWER", 1, 64, 2, KeyValues::powers_of_two},
                              ConfigKey{"SIDE", 8, 256, 16, KeyValues::tile_sides}};

TileConfig with(const char* name, std::int64_t value) {
  TileConfig config;
  config.set("WANTED", 3);
  config.set(name, value);
  return config;
}

std::string refusal(const TileConfig& config) {
  const auto values = config_values("some_family", config, kKeys);
  return values ? "none" : values.error().message;
}

TEST(ConfigKeys, ComeInTheirOwnOrderWithDefaultsWhereNothingIsGiven) {
  EXPECT_THAT(*config_values("some_family", with("POWER", 64), kKeys), ElementsAre(3, 7, 64, 16));
  EXPECT_THAT(*config_values("some_family", with("SIDE", 192), kKeys), ElementsAre(3, 7, 2, 192));
}

TEST(ConfigKeys, WhatIsWrongIsSaidWithFamilyKeyValueAndRange) {
  EXPECT_EQ(refusal({}), "some_family: WANTED is missing in {}");
  EXPECT_EQ(refusal(with("OTHER", 4)), "some_family: unknown key OTHER = 4");
  EXPECT_EQ(refusal(with("WANTED", 9)), "some_family: WANTED = 9: want an integer in 1..8");
  EXPECT_EQ(refusal(with("USUAL", -1)), "some_family: USUAL = -1: want an integer in 0..100");
  EXPECT_EQ(refusal(with("POWER", 48)), "some_family: POWER = 48: want a power of two in 1..64");
  EXPECT_EQ(refusal(with("SIDE", 72)), "some_family: SIDE = 72: want a power of two or 48 times one in 8..256");
}

TEST(ConfigKeys, NoIntegerIsTooLargeToBeRefused) {
  for (const std::int64_t value : {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min(),
                                   std::int64_t{1} << 32, (std::int64_t{1} << 32) + 3}) {
    for (const ConfigKey& key : kKeys) {
      EXPECT_THAT(refusal(with(key.name, value)), HasSubstr(std::to_string(value))) << key.name;
    }
  }
}

}  // namespace
}  // namespace octile::cuda
