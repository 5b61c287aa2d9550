// SPDX-License-Identifier: Apache-2.0
// What coordinator and worker say to each other survives the way through a line, and what no coordinator says is refused.
#include "octile/tune/protocol.h"

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace octile {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// As the other side reads it.
Expected<MeasureSettings> through_a_line(const MeasureSettings& settings) {
  const auto line = parse_line(to_json(settings).dump());
  return line ? settings_from_json(*line) : Expected<MeasureSettings>(line.error());
}

TEST(Protocol, SettingsComeBackAsTheyWereWithEveryLaunchMode) {
  for (const Pdl pdl : {Pdl::off, Pdl::consume, Pdl::full}) {
    MeasureSettings settings;
    settings.problem.out_dtype = DType::fp16;
    settings.problem.bias = true;
    settings.problem.accumulate = Accumulate::precise;
    settings.problem.numerics = Numerics::baseline;
    settings.problem.batch_invariant = true;
    settings.problem.pdl = pdl;
    settings.problem.layout = pdl == Pdl::full ? WeightLayout::slab64 : WeightLayout::row_major;
    settings.quantized_input = true;
    settings.seed = std::numeric_limits<std::uint64_t>::max();
    const auto back = through_a_line(settings);
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_EQ(back->problem.out_dtype, DType::fp16);
    EXPECT_TRUE(back->problem.bias);
    EXPECT_EQ(back->problem.accumulate, Accumulate::precise);
    EXPECT_EQ(back->problem.numerics, Numerics::baseline);
    EXPECT_TRUE(back->problem.batch_invariant);
    EXPECT_EQ(back->problem.pdl, pdl);
    EXPECT_EQ(back->problem.layout, settings.problem.layout);
    EXPECT_TRUE(back->quantized_input);
    EXPECT_EQ(back->seed, settings.seed);
  }
}

TEST(Protocol, SettingsWithALaunchModeThatThereIsNotAreRefusedAndQuoted) {
  const json whole = to_json(MeasureSettings{});
  ASSERT_TRUE(settings_from_json(whole).has_value());
  for (const json& bad : {json(7), json(3), json(-1), json("full"), json(1.5), json(nullptr)}) {
    json settings = whole;
    settings["pdl"] = bad;
    const auto read = settings_from_json(settings);
    ASSERT_FALSE(read.has_value()) << bad;
    EXPECT_EQ(read.error().code, ErrorCode::corrupt);
    EXPECT_THAT(read.error().message, testing::AllOf(HasSubstr("pdl"), HasSubstr("\"pdl\":" + bad.dump())));
  }
  json without = whole;
  without.erase("pdl");
  EXPECT_FALSE(settings_from_json(without).has_value()) << "a worker of another build must not guess";
}

TEST(Protocol, AShapeComesWithTheLayoutOfItsWeightAndWithNoOther) {
  for (const WeightLayout layout : {WeightLayout::automatic, WeightLayout::row_major, WeightLayout::slab64}) {
    const auto line = parse_line(shape_request(6144, 4096, layout).dump());
    ASSERT_TRUE(line.has_value());
    EXPECT_EQ(json_get(*line, "n", std::int64_t{0}), 6144);
    EXPECT_EQ(json_get(*line, "k", std::int64_t{0}), 4096);
    const auto back = layout_of_request(*line);
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_EQ(*back, layout);
  }
  for (const json& bad : {json(3), json(-1), json("slab64"), json(nullptr)}) {
    json request = shape_request(6144, 4096, WeightLayout::slab64);
    request["layout"] = bad;
    const auto read = layout_of_request(request);
    ASSERT_FALSE(read.has_value()) << bad;
    EXPECT_EQ(read.error().code, ErrorCode::corrupt);
  }
}

}  // namespace
}  // namespace octile
