// SPDX-License-Identifier: Apache-2.0
// Tensors that cannot be what the linear is made of, refused by name.
#include "octile/model/checkpoint_linear.h"

#include "support/tiny_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile {
namespace {

using test::ScaleShape;
using ::testing::HasSubstr;

constexpr const char* kQ = "model.layers.0.self_attn.q_proj";
constexpr const char* kK = "model.layers.0.self_attn.k_proj";

std::string problem_of(const test::TinyCheckpoint& checkpoint) {
  const test::TemporaryDirectory directory;
  return test::load_problem(checkpoint, directory);
}

TEST(BindLinear, TensorsThatBreakTheFormatAreRefusedByName) {
  using Change = void (*)(test::TinyCheckpoint&);
  const struct {
    const char* what;
    Change change;
    const char* message;
  } table[] = {
      {"no such weight", [](test::TinyCheckpoint& c) { c.remove("model.layers.1.self_attn.v_proj.weight"); },
       "wanted tensor \"model.layers.1.self_attn.v_proj.weight\", which no file holds"},
      {"no scale", [](test::TinyCheckpoint& c) { c.remove("model.layers.0.self_attn.q_proj.weight_scale"); },
       "wanted a tensor \"model.layers.0.self_attn.q_proj.weight_scale\" of its scales"},
      {"another shape", [](test::TinyCheckpoint& c) { c.tensor(std::string(kQ) + ".weight").shape = {8, 16}; },
       "wanted [16, 8], as config.json says, got F8_E4M3 [8, 16]"},
      {"one dimension", [](test::TinyCheckpoint& c) { c.tensor(std::string(kQ) + ".weight").shape = {128}; },
       "got F8_E4M3 [128]"},
      {"e5m2", [](test::TinyCheckpoint& c) { c.tensor(std::string(kQ) + ".weight").dtype = "F8_E5M2"; },
       "wanted F8_E4M3 codes, or BF16, F16 or F32, got F8_E5M2 [16, 8]"},
      {"e4m3fnuz", [](test::TinyCheckpoint& c) { c.tensor(std::string(kQ) + ".weight").dtype = "F8_E4M3FNUZ"; },
       "got F8_E4M3FNUZ [16, 8]"},
      {"int8", [](test::TinyCheckpoint& c) { c.tensor(std::string(kQ) + ".weight").dtype = "I8"; }, "got I8 [16, 8]"},
      {"too few scales",
       [](test::TinyCheckpoint& c) { c.put({std::string(kQ) + ".weight_scale", "F32", {8, 1}, std::string(32, 'x')}); },
       "wanted F32, BF16 or F16 [16], [16, 1] or one for all, got F32 [8, 1]"},
      {"scales by row and block",
       [](test::TinyCheckpoint& c) { c.put({std::string(kQ) + ".weight_scale", "F32", {16, 2}, std::string(128, 'x')}); },
       "(block-scaled weights are not supported), got F32 [16, 2]"},
      {"transposed scales", [](test::TinyCheckpoint& c) { c.tensor(std::string(kQ) + ".weight_scale").shape = {1, 16}; },
       "got F32 [1, 16]"},
      {"scales in e8m0",
       [](test::TinyCheckpoint& c) { c.put({std::string(kQ) + ".weight_scale", "F8_E8M0", {16, 1}, std::string(16, 'x')}); },
       "got F8_E8M0 [16, 1]"},
      {"scales in fp64",
       [](test::TinyCheckpoint& c) { c.put({std::string(kQ) + ".weight_scale", "F64", {16, 1}, std::string(128, 'x')}); },
       "got F64 [16, 1]"},
      {"one scale where one a row is said",
       [](test::TinyCheckpoint& c) { c.put({std::string(kQ) + ".weight_scale", "F32", {1}, std::string(4, 'x')}); },
       "wanted one scale a row, [16] or [16, 1], as the quantisation \"compressed-tensors\" says, got F32 [1]"},
      {"inverse block scales",
       [](test::TinyCheckpoint& c) { c.put({std::string(kQ) + ".weight_scale_inv", "F32", {1, 1}, std::string(4, 'x')}); },
       "weight_scale_inv\" of"},
      {"packed weights",
       [](test::TinyCheckpoint& c) { c.put({std::string(kQ) + ".weight_packed", "I32", {1}, std::string(4, 'x')}); },
       "packed weights are not supported"},
      {"scaled activations",
       [](test::TinyCheckpoint& c) { c.put({std::string(kQ) + ".pre_quant_scale", "F32", {1}, std::string(4, 'x')}); },
       "pre_quant_scale\" of"},
      {"a static scale unsaid",
       [](test::TinyCheckpoint& c) { c.put({std::string(kQ) + ".input_scale", "F32", {1}, std::string(4, 'x')}); },
       "wanted none, since the quantisation \"compressed-tensors\" says that activations are quantised dynamically"},
      {"a bias of another length",
       [](test::TinyCheckpoint& c) { c.put({std::string(kQ) + ".bias", "F32", {8}, std::string(32, 'x')}); },
       "wanted F32, BF16 or F16 [16], got F32 [8]"},
      {"parts of two kinds",
       [](test::TinyCheckpoint& c) {
         c.put({std::string(kK) + ".weight", "BF16", {8, 8}, std::string(128, 'x')});
         c.remove(std::string(kK) + ".weight_scale");
       },
       "cannot become one linear: one is F8_E4M3, the other BF16; load the checkpoint without fusing"},
      {"floats with a scale",
       [](test::TinyCheckpoint& c) { c.put({std::string(kK) + ".weight", "BF16", {8, 8}, std::string(128, 'x')}); },
       "wanted F8_E4M3 codes, since it has a weight_scale, got BF16"},
      {"no quantisation said", [](test::TinyCheckpoint& c) { c.config.erase("quantization_config"); },
       "wanted BF16, F16 or F32, since config.json says of no quantised weights, got F8_E4M3 [16, 8]"},
      {"another model", [](test::TinyCheckpoint& c) { c.config["model_type"] = "mixtral"; }, "mixture of experts"},
      {"no model", [](test::TinyCheckpoint& c) { c.config = nlohmann::ordered_json::array(); }, "wanted a JSON object"},
      {"other tensors", [](test::TinyCheckpoint& c) { c.tensors.resize(1); }, "wanted a decoder with one of the tensors"},
  };
  const test::TinyCheckpoint whole = test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column);
  EXPECT_EQ(problem_of(whole), "loaded");
  for (const auto& [what, change, message] : table) {
    SCOPED_TRACE(what);
    test::TinyCheckpoint broken = whole;
    change(broken);
    EXPECT_THAT(problem_of(broken), HasSubstr(message));
  }
}

TEST(BindLinear, ACheckpointOfPackedWeightsAloneIsRefusedAsSuch) {
  test::TinyCheckpoint checkpoint = test::tiny_fp8_checkpoint(test::kCompressedTensors, ScaleShape::column);
  checkpoint.config.erase("num_hidden_layers");
  for (test::TensorToWrite& tensor : checkpoint.tensors) {
    if (tensor.dtype == "F8_E4M3") {
      tensor.name += "_packed";
    }
  }
  EXPECT_THAT(problem_of(checkpoint), HasSubstr("q_proj.weight_packed"));
}

}  // namespace
}  // namespace octile
