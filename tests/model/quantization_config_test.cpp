// SPDX-License-Identifier: Apache-2.0
// What the tools' configurations say, and what is refused by its name.
#include "octile/model/quantization_config.h"

#include "octile/core/json_file.h"
#include "support/tiny_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

Expected<QuantizationScheme> read(const std::string& quantization) {
  return read_quantization(Json{{"model_type", "llama"}, {"quantization_config", Json::parse(quantization)}}, nullptr);
}

// "compressed-tensors: channel dynamic"
std::string summary(const Expected<QuantizationScheme>& scheme) {
  if (!scheme) {
    return scheme.error().message;
  }
  std::string text = scheme->method + ":";
  text += scheme->channel_scales ? " channel" : "";
  text += scheme->tensor_scales ? " tensor" : "";
  text += scheme->dynamic_activations ? " dynamic" : "";
  text += scheme->static_activations ? " static" : "";
  return text;
}

// `quantization` with the value at a JSON pointer replaced.
std::string changed(const char* quantization, const char* pointer, const char* value) {
  Json json = Json::parse(quantization);
  json[Json::json_pointer(pointer)] = Json::parse(value);
  return json.dump();
}

TEST(QuantizationConfig, WhatTheToolsWriteIsRead) {
  EXPECT_EQ(summary(read(test::kCompressedTensors)), "compressed-tensors: channel dynamic");
  EXPECT_EQ(summary(read(test::kCompressedTensorsStatic)), "compressed-tensors: tensor static");
  EXPECT_EQ(summary(read(test::kFbgemm)), "fbgemm_fp8: channel dynamic");
  EXPECT_EQ(summary(read(test::kFp8Static)), "fp8: tensor static");
  EXPECT_EQ(summary(read(R"({"quant_method": "fp8", "activation_scheme": "dynamic"})")), "fp8: tensor dynamic");
  EXPECT_EQ(summary(read(test::kModelopt)), "modelopt: channel dynamic");
  EXPECT_EQ(summary(read(R"({"quant_method": "modelopt", "quant_algo": "FP8"})")), "modelopt: tensor static");
  EXPECT_EQ(summary(read(R"({"producer": {"name": "modelopt"}, "quant_algo": "FP8"})")), "modelopt: tensor static");
  EXPECT_EQ(summary(read(test::kQuark)), "quark: channel dynamic");
}

TEST(QuantizationConfig, VariantsOfTheToolsAreRead) {
  const struct {
    const char* base;
    const char* pointer;
    const char* value;
    const char* wanted;
  } table[] = {
      {test::kCompressedTensors, "/quant_method", R"("compressed_tensors")", "compressed-tensors: channel dynamic"},
      {test::kCompressedTensors, "/format", R"("naive-quantized")", "compressed-tensors: channel dynamic"},
      {test::kCompressedTensors, "/sparsity_config", R"({})", "compressed-tensors: channel dynamic"},
      {test::kCompressedTensors, "/sparsity_config", R"({"format": "dense"})", "compressed-tensors: channel dynamic"},
      {test::kCompressedTensors, "/transform_config", R"({"config_groups": {}})", "compressed-tensors: channel dynamic"},
      {test::kCompressedTensors, "/config_groups/group_0/weights/strategy", R"("tensor")",
       "compressed-tensors: tensor dynamic"},
      {test::kCompressedTensors, "/config_groups/group_0/input_activations/strategy", R"("tensor")",
       "compressed-tensors: channel dynamic"},
      {test::kCompressedTensors, "/config_groups/group_0/format", R"("float-quantized")",
       "compressed-tensors: channel dynamic"},
      {test::kCompressedTensors, "/config_groups", "{}", "compressed-tensors:"},
      {test::kQuark, "/global_quant_config/weight/qscheme", R"("per_tensor")", "quark: tensor dynamic"},
      {test::kQuark, "/global_quant_config/input_tensors/qscheme", R"("per_token")", "quark: channel dynamic"},
      {test::kQuark, "/global_quant_config/input_tensors",
       R"({"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": false})", "quark: channel static"},
      // A KV cache in fp8 is no concern of the linears.
      {test::kQuark, "/layer_quant_config",
       R"({"*k_proj": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "ch_axis": 0},
           "input_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "is_dynamic": true},
           "output_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}, "lm_head": null})",
       "quark: channel dynamic"},
      {test::kModelopt, "/quant_algo", "null", "modelopt:"},
  };
  for (const auto& [base, pointer, value, wanted] : table) {
    SCOPED_TRACE(std::string(pointer) + " " + value);
    EXPECT_EQ(summary(read(changed(base, pointer, value))), wanted);
  }
}

TEST(QuantizationConfig, WithoutOneNothingIsQuantised) {
  EXPECT_EQ(summary(read_quantization(Json{{"model_type", "llama"}}, nullptr)), "none:");
  EXPECT_EQ(summary(read_quantization(Json{{"quantization_config", nullptr}}, nullptr)), "none:");
}

TEST(QuantizationConfig, AMultimodalModelMayHaveItInItsTextConfig) {
  const Json config = {{"text_config", {{"quantization_config", Json::parse(test::kFbgemm)}}}};
  EXPECT_EQ(summary(read_quantization(config, nullptr)), "fbgemm_fp8: channel dynamic");
}

TEST(QuantizationConfig, FbgemmsUpperBoundIsTaken) {
  EXPECT_EQ(read(test::kFbgemm)->activation_upper_bound, 1200.0F);
  EXPECT_EQ(read(R"({"quant_method": "fbgemm_fp8"})")->activation_upper_bound, QuantizeOptions().upper_bound);
  for (const char* bad : {"0", "-1", "1e39", "\"1200\"", "true", "[]"}) {
    EXPECT_THAT(summary(read(changed(test::kFbgemm, "/activation_scale_ub", bad))),
                HasSubstr("\"activation_scale_ub\": wanted a finite number > 0"))
        << bad;
  }
}

TEST(QuantizationConfig, ModeloptsOwnFileIsRead) {
  const Json exported =
      Json::parse(R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN",
                      "kv_cache_quant_algo": null, "exclude_modules": ["lm_head"]}})");
  EXPECT_EQ(summary(read_quantization(Json::object(), &exported)), "modelopt: channel dynamic");
  const Json same = {{"quantization_config", Json::parse(test::kModelopt)}};
  EXPECT_EQ(summary(read_quantization(same, &exported)), "modelopt: channel dynamic");
  const Json other = {{"quantization_config", {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}}};
  EXPECT_THAT(summary(read_quantization(other, &exported)), HasSubstr("which is it?"));
  const Json foreign = {{"quantization_config", Json::parse(test::kFbgemm)}};
  EXPECT_THAT(summary(read_quantization(foreign, &exported)), HasSubstr("config.json says \"fbgemm_fp8\""));
  for (const char* bad : {"[]", "{}", R"({"quantization": 1})", R"({"quantization": {"quant_algo": 8}})"}) {
    const Json broken = Json::parse(bad);
    EXPECT_THAT(summary(read_quantization(Json::object(), &broken)), HasSubstr("hf_quant_config.json")) << bad;
  }
}

TEST(QuantizationConfig, WhatOctileCannotComputeIsRefusedByName) {
  const struct {
    const char* base;
    const char* pointer;
    const char* value;
    const char* message;
  } table[] = {
      // Block scales of all four tools.
      {test::kCompressedTensors, "/config_groups/group_0/weights",
       R"({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]})",
       "strategy \"block\" (block_structure [128,128]), block-scaled weights, is not supported"},
      {test::kFp8Static, "/weight_block_size", "[128, 128]", "\"weight_block_size\": [128,128], block-scaled weights,"},
      {test::kModelopt, "/quant_algo", R"("FP8_PB_WO")", "\"quant_algo\": \"fp8_pb_wo\", block-scaled weights,"},
      {test::kQuark, "/global_quant_config/weight/qscheme", R"("per_block")",
       "\"qscheme\": \"per_block\", block-scaled weights,"},
      // Other tools and other numbers.
      {test::kFbgemm, "/quant_method", R"("gptq")", "\"quant_method\": \"gptq\" is not supported; Octile reads e4m3"},
      {test::kFbgemm, "/quant_method", "null", "\"quant_method\": \"\" is not supported"},
      {test::kCompressedTensors, "/format", R"("pack-quantized")", "format \"pack-quantized\""},
      {test::kCompressedTensors, "/config_groups/group_0/format", R"("nvfp4-pack-quantized")",
       "format \"nvfp4-pack-quantized\""},
      {test::kCompressedTensors, "/config_groups/group_0/weights/type", R"("int")", "type \"int\" of 8 bits"},
      {test::kCompressedTensors, "/config_groups/group_0/weights/num_bits", "4", "type \"float\" of 4 bits"},
      {test::kCompressedTensors, "/config_groups/group_0/weights/symmetric", "false", "codes with a zero point"},
      {test::kCompressedTensors, "/config_groups/group_0/weights/strategy", R"("group")", "strategy \"group\""},
      {test::kCompressedTensors, "/config_groups/group_0/weights", "null", "a group without \"weights\""},
      {test::kCompressedTensors, "/sparsity_config", R"({"format": "sparse-24-bitmask"})", "format \"sparse-24-bitmask\""},
      {test::kCompressedTensors, "/transform_config", R"({"config_groups": {"R3": {}}})", "rotations"},
      {test::kModelopt, "/quant_algo", R"("NVFP4")", "\"quant_algo\": \"nvfp4\""},
      {test::kModelopt, "/quant_algo", R"("MIXED_PRECISION")", "\"quant_algo\": \"mixed_precision\""},
      {test::kQuark, "/global_quant_config/weight/dtype", R"("fp4")", "\"dtype\": \"fp4\""},
      {test::kQuark, "/global_quant_config/weight/ch_axis", "1", "\"ch_axis\": 1"},
      {test::kQuark, "/global_quant_config/weight", "[{}, {}]", "quantised in several steps"},
      {test::kQuark, "/global_quant_config/weight/qscheme", R"("per_group")", "\"qscheme\": \"per_group\""},
      {test::kFp8Static, "/fmt", R"("e5m2")", "\"fmt\": \"e5m2\""},
      {test::kFp8Static, "/activation_scheme", R"("token")", "\"activation_scheme\": \"token\""},
      // Activations.
      {test::kCompressedTensors, "/config_groups/group_0/input_activations", "null", "whose activations are not quantised"},
      {test::kCompressedTensors, "/config_groups/group_0/input_activations/strategy", R"("group")", "strategy \"group\""},
      {test::kCompressedTensors, "/config_groups/group_0/input_activations/dynamic", R"("local")", "\"dynamic\": \"local\""},
      {test::kCompressedTensors, "/config_groups/group_0/input_activations/dynamic", "false",
       "strategy \"token\" with \"dynamic\": false"},
      {test::kCompressedTensors, "/config_groups/group_0/output_activations", R"({"num_bits": 8})", "quantised outputs"},
      {test::kQuark, "/global_quant_config/input_tensors", "null", "whose activations are not quantised"},
      {test::kQuark, "/global_quant_config/input_tensors/is_dynamic", "false", "\"is_dynamic\": false"},
      {test::kQuark, "/layer_quant_config", R"({"*down_proj": {"weight": {"dtype": "int4"}, "input_tensors": {}}})",
       "\"layer_quant_config\": \"*down_proj\": \"weight\": \"dtype\": \"int4\""},
  };
  for (const auto& [base, pointer, value, message] : table) {
    SCOPED_TRACE(std::string(pointer) + " " + value);
    EXPECT_THAT(summary(read(changed(base, pointer, value))), HasSubstr(message));
  }
}

// Every member of each configuration replaced by each kind of value: an answer, never a crash.
TEST(QuantizationConfig, AnyJsonInAnyPlaceGivesAnAnswer) {
  const char* const values[] = {"null", "true", "-1", "1.5", "\"\"", "\"x\"", "[]", "[1]", "{}", R"({"a": {"b": []}})"};
  int answers = 0;
  for (const char* base : {test::kCompressedTensors, test::kFbgemm, test::kFp8Static, test::kModelopt, test::kQuark}) {
    const Json flat = Json::parse(base).flatten();
    for (const auto& [pointer, ignored] : flat.items()) {
      for (std::string place = pointer; !place.empty(); place.erase(place.rfind('/'))) {
        for (const char* value : values) {
          const std::string text = summary(read(changed(base, place.c_str(), value)));
          EXPECT_LT(text.size(), 1000U);
          ++answers;
        }
      }
    }
  }
  for (const char* value : values) {
    EXPECT_FALSE(summary(read(value)).empty());
    const Json json = Json::parse(value);
    EXPECT_FALSE(summary(read_quantization(json, &json)).empty());
  }
  EXPECT_GT(answers, 1000);
}

}  // namespace
}  // namespace octile
