// SPDX-License-Identifier: Apache-2.0
// Reading config.json: what is understood, what is refused by name, and what is broken.
#include "octile/model/hf_config.h"

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile {
namespace {

using Json = nlohmann::ordered_json;

Json qwen3() {
  return {{"architectures", {"Qwen3ForCausalLM"}},
          {"model_type", "qwen3"},
          {"hidden_size", 4096},
          {"intermediate_size", 12288},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"head_dim", 128}};
}

Json with(Json config, const char* key, Json value) {
  config[key] = std::move(value);
  return config;
}
Json without(Json config, const char* key) {
  config.erase(key);
  return config;
}

void expect_figures(const Json& config, const ModelFigures& want) {
  const auto got = parse_hf_config(config);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->figures.hidden_size, want.hidden_size);
  EXPECT_EQ(got->figures.intermediate_size, want.intermediate_size);
  EXPECT_EQ(got->figures.num_attention_heads, want.num_attention_heads);
  EXPECT_EQ(got->figures.num_key_value_heads, want.num_key_value_heads);
  EXPECT_EQ(got->figures.head_dim, want.head_dim);
}

void expect_refused(const Json& config, const std::string& message) {
  const auto got = parse_hf_config(config);
  ASSERT_FALSE(got) << config.dump();
  EXPECT_EQ(got.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(got.error().message, testing::HasSubstr(message));
}

TEST(HfConfig, ReadsADenseDecoder) { expect_figures(qwen3(), {4096, 12288, 32, 8, 128}); }

TEST(HfConfig, EveryKnownTypeIsRead) {
  for (const std::string& type : known_model_types()) {
    expect_figures(with(qwen3(), "model_type", type), {4096, 12288, 32, 8, 128});
  }
}

TEST(HfConfig, AMissingHeadDimIsDerivedWhereTheArchitectureDerivesIt) {
  expect_figures(without(with(qwen3(), "model_type", "llama"), "head_dim"), {4096, 12288, 32, 8, 128});
  expect_figures(without(with(with(qwen3(), "model_type", "llama"), "hidden_size", 2048), "head_dim"),
                 {2048, 12288, 32, 8, 64});
  // A null counts as missing.
  expect_figures(with(with(qwen3(), "model_type", "mistral"), "head_dim", nullptr), {4096, 12288, 32, 8, 128});
}

TEST(HfConfig, AMissingHeadDimIsTheTypesOwnWhereItHasOne) {
  expect_figures(without(with(qwen3(), "hidden_size", 1024), "head_dim"), {1024, 12288, 32, 8, 128});
  expect_figures(without(with(qwen3(), "model_type", "gemma"), "head_dim"), {4096, 12288, 32, 8, 256});
}

TEST(HfConfig, AMissingHeadDimThatCannotBeDerivedIsRefused) {
  expect_refused(without(with(with(qwen3(), "model_type", "llama"), "hidden_size", 4100), "head_dim"),
                 "\"hidden_size\": 4100 is not a multiple of \"num_attention_heads\": 32");
}

TEST(HfConfig, WithoutKeyValueHeadsLlamaHasOneAHead) {
  expect_figures(without(with(qwen3(), "model_type", "llama"), "num_key_value_heads"), {4096, 12288, 32, 32, 128});
}

TEST(HfConfig, WithoutKeyValueHeadsOthersAreRefused) {
  expect_refused(without(qwen3(), "num_key_value_heads"), "\"num_key_value_heads\"");
  expect_refused(without(qwen3(), "num_key_value_heads"), "the key is missing");
}

TEST(HfConfig, AMultimodalConfigIsReadThroughItsTextConfig) {
  // As gemma-3-4b is published: neither heads nor head_dim are stated.
  expect_figures({{"architectures", {"Gemma3ForConditionalGeneration"}},
                  {"model_type", "gemma3"},
                  {"hidden_size", 1},
                  {"text_config", {{"model_type", "gemma3_text"}, {"hidden_size", 2560}, {"intermediate_size", 10240}}},
                  {"vision_config", {{"model_type", "siglip_vision_model"}, {"hidden_size", 1152}}}},
                 {2560, 10240, 8, 4, 256});
  expect_figures({{"model_type", "mistral3"},
                  {"text_config",
                   {{"model_type", "mistral"},
                    {"hidden_size", 5120},
                    {"intermediate_size", 32768},
                    {"num_attention_heads", 32},
                    {"num_key_value_heads", 8},
                    {"head_dim", 128}}}},
                 {5120, 32768, 32, 8, 128});
}

TEST(HfConfig, ATextConfigOfAnotherArchitectureIsRefusedByName) {
  expect_refused({{"model_type", "llama4"}, {"text_config", {{"model_type", "llama4_text"}}}}, "\"llama4\"");
  expect_refused({{"model_type", "some_vl"}, {"text_config", {{"model_type", "qwen3_moe"}}}},
                 "text_config: model_type \"qwen3_moe\" is not supported: it is a mixture of experts");
}

TEST(HfConfig, AVisionModelIsRefusedByName) {
  expect_refused({{"model_type", "vit"}, {"hidden_size", 768}}, "\"vit\" is not supported: it is a vision encoder");
  expect_refused({{"model_type", "some_vl"}, {"vision_config", Json::object()}}, "its decoder is not in a \"text_config\"");
}

TEST(HfConfig, OtherArchitecturesAreRefusedByName) {
  expect_refused(with(qwen3(), "model_type", "mixtral"), "\"mixtral\" is not supported: it is a mixture of experts");
  expect_refused(with(qwen3(), "model_type", "deepseek_v3"), "multi-head latent attention");
  expect_refused(with(qwen3(), "model_type", "mamba2"), "state-space");
  expect_refused(with(qwen3(), "model_type", "t5"), "encoder-decoder");
  expect_refused(with(qwen3(), "model_type", "brand_new"), "\"brand_new\" is not supported: its architecture is not known");
}

TEST(HfConfig, KeysThatChangeAKnownTypeRefuseIt) {
  expect_refused(with(qwen3(), "is_encoder_decoder", true), "encoder-decoder");
  expect_refused(with(qwen3(), "num_experts", 128), "a mixture of experts (\"num_experts\" is the number 128)");
  expect_refused(with(qwen3(), "num_local_experts", 8), "\"num_local_experts\" is the number 8");
  expect_refused(with(qwen3(), "n_routed_experts", 256), "\"n_routed_experts\" is the number 256");
  expect_refused(with(qwen3(), "kv_lora_rank", 512),
                 "multi-head latent attention (MLA) (\"kv_lora_rank\" is the number 512)");
  expect_refused(with(qwen3(), "mamba_d_state", 128), "state-space");
}

TEST(HfConfig, TheSameKeysAtTheirDenseValueDoNot) {
  Json config = qwen3();
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "kv_lora_rank", "mamba_d_state"}) {
    config[key] = nullptr;
  }
  expect_figures(config, {4096, 12288, 32, 8, 128});
  expect_figures(with(with(qwen3(), "num_local_experts", 0), "is_encoder_decoder", false), {4096, 12288, 32, 8, 128});
}

TEST(HfConfig, ARefusalListsWhatIsRead) {
  const auto got = parse_hf_config(with(qwen3(), "model_type", "mixtral"));
  ASSERT_FALSE(got);
  for (const std::string& type : known_model_types()) {
    EXPECT_THAT(got.error().message, testing::HasSubstr(type));
  }
}

TEST(HfConfig, AFigureThatIsNoPositiveIntegerIsRefusedWithItsValue) {
  const std::pair<Json, const char*> values[] = {
      {"4096", "got the string \"4096\""},
      {4096.0, "got the number 4096"},
      {0, "got the number 0"},
      {-4096, "got the number -4096"},
      {true, "got true"},
      {Json::array({4096, 2048}), "got an array"},
      {Json::object(), "got an object"},
      {std::uint64_t{18446744073709551615U}, "got the number 18446744073709551615"},
      {std::int64_t{1} << 40, "got the number 1099511627776"},
      {std::string(100000, 'x'), "xxxx"},
  };
  for (const auto& [value, message] : values) {
    for (const char* key : {"hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"}) {
      const auto got = parse_hf_config(with(qwen3(), key, value));
      ASSERT_FALSE(got) << key << ": " << message;
      EXPECT_THAT(got.error().message, testing::HasSubstr(key));
      EXPECT_THAT(got.error().message, testing::HasSubstr(message));
      EXPECT_LT(got.error().message.size(), 300U);
    }
  }
}

TEST(HfConfig, AMissingFigureIsRefused) {
  for (const char* key : {"hidden_size", "intermediate_size", "num_attention_heads"}) {
    const auto got = parse_hf_config(without(qwen3(), key));
    ASSERT_FALSE(got) << key;
    EXPECT_THAT(got.error().message, testing::AllOf(testing::HasSubstr(key), testing::HasSubstr("is missing")));
  }
}

TEST(HfConfig, HeadsThatDoNotShareKeyValueHeadsEvenlyAreRefused) {
  expect_refused(with(qwen3(), "num_key_value_heads", 7),
                 "\"num_attention_heads\": 32 is not a multiple of \"num_key_value_heads\": 7");
  expect_refused(with(qwen3(), "num_key_value_heads", 64), "is not a multiple");
}

TEST(HfConfig, WhatIsNoConfigIsRefused) {
  for (const Json& json : {Json::array(), Json("text"), Json(7), Json(nullptr)}) {
    const auto got = parse_hf_config(json);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ErrorCode::corrupt);
    EXPECT_THAT(got.error().message, testing::HasSubstr("wanted a JSON object"));
  }
  expect_refused(Json::object(), "\"model_type\": wanted a string, but the key is missing");
  expect_refused({{"model_type", 7}}, "\"model_type\": wanted a string, got the number 7");
  expect_refused({{"model_type", "gemma3"}, {"text_config", 7}}, "\"text_config\": wanted an object, got the number 7");
}

TEST(HfConfig, TheNumberOfLayersIsReadWhereItIsStated) {
  EXPECT_EQ(parse_hf_config(qwen3())->num_hidden_layers, 0);
  EXPECT_EQ(parse_hf_config(with(qwen3(), "num_hidden_layers", 36))->num_hidden_layers, 36);
  for (const Json& bad : {Json(0), Json(-1), Json(36.0), Json("36"), Json(65537)}) {
    const auto config = parse_hf_config(with(qwen3(), "num_hidden_layers", bad));
    ASSERT_FALSE(config) << bad;
    EXPECT_THAT(config.error().message, testing::HasSubstr("\"num_hidden_layers\": wanted an integer from 1 to 65536"));
  }
}

}  // namespace
}  // namespace octile
