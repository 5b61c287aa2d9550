// SPDX-License-Identifier: Apache-2.0
// The presets against what the published models hold: their parameter counts pin the figures from outside.
#include "octile/model/model.h"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile {
namespace {

const ModelFigures& figures_of(const std::string& name) {
  for (const ModelPreset& preset : model_presets()) {
    if (name == preset.name) {
      return preset.figures;
    }
  }
  ADD_FAILURE() << "no preset " << name;
  static const ModelFigures none;
  return none;
}

std::pair<std::int64_t, std::int64_t> shape_of(const std::vector<LinearShape>& linears, const std::string& name) {
  for (const LinearShape& linear : linears) {
    if (linear.name == name) {
      return {linear.n, linear.k};
    }
  }
  ADD_FAILURE() << "no linear " << name;
  return {};
}

TEST(Presets, Qwen3At8BHasThePublishedShapes) {
  const auto model = load_model("qwen3-8b");
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->name, "qwen3-8b");
  EXPECT_EQ(model->source, "preset");
  ASSERT_EQ(model->linears.size(), 4U);
  EXPECT_EQ(model->linears[0].name, "qkv");
  EXPECT_EQ(shape_of(model->linears, "qkv"), std::pair(std::int64_t{6144}, std::int64_t{4096}));
  EXPECT_EQ(shape_of(model->linears, "o"), std::pair(std::int64_t{4096}, std::int64_t{4096}));
  EXPECT_EQ(shape_of(model->linears, "gate_up"), std::pair(std::int64_t{24576}, std::int64_t{4096}));
  EXPECT_EQ(shape_of(model->linears, "down"), std::pair(std::int64_t{4096}, std::int64_t{12288}));
}

TEST(Presets, NamesAreTakenWhateverTheirCaseAndDashes) {
  for (const char* name : {"Qwen3-8B", "qwen3_8b", "QWEN3.8B", "llama-3.1-8b", "Llama3.1-8B", "phi4", "gemma3-27b"}) {
    EXPECT_TRUE(load_model(name)) << name;
  }
}

TEST(Presets, EveryPresetLoadsByItsOwnName) {
  std::set<std::vector<std::int64_t>> seen;
  for (const ModelPreset& preset : model_presets()) {
    const auto model = load_model(preset.name);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->name, preset.name);
    EXPECT_EQ(model->figures.hidden_size, preset.figures.hidden_size);
    EXPECT_EQ(model->figures.num_attention_heads % model->figures.num_key_value_heads, 0) << preset.name;
  }
}

// Parameters of a model: its linears and norms (negligible) in every layer, and the embedding (twice where it is not tied).
TEST(Presets, FiguresGiveThePublishedParameterCounts) {
  struct Published {
    const char* name;
    std::int64_t layers, vocabulary, embeddings;
    double billions;  // As the model card states it.
  };
  const Published published[] = {
      {"qwen3-0.6b", 28, 151936, 1, 0.596},    {"qwen3-1.7b", 28, 151936, 1, 1.72},   {"qwen3-4b", 36, 151936, 1, 4.02},
      {"qwen3-8b", 36, 151936, 2, 8.19},       {"qwen3-14b", 40, 151936, 2, 14.77},   {"qwen3-32b", 64, 151936, 2, 32.76},
      {"llama-3.2-1b", 16, 128256, 1, 1.236},  {"llama-3.2-3b", 28, 128256, 1, 3.21}, {"llama-3.1-8b", 32, 128256, 2, 8.03},
      {"llama-3.1-70b", 80, 128256, 2, 70.55}, {"mistral-7b", 32, 32000, 2, 7.242},   {"gemma-3-1b", 26, 262144, 1, 1.0},
      {"gemma-3-4b", 34, 262208, 1, 3.88},     {"gemma-3-12b", 48, 262208, 1, 11.77}, {"gemma-3-27b", 62, 262208, 1, 27.01},
      {"phi-4", 40, 100352, 2, 14.66},         {"phi-4-mini", 32, 200064, 1, 3.84},
  };
  EXPECT_EQ(std::size(published), model_presets().size()) << "a preset without its published count";
  for (const Published& model : published) {
    const auto linears = linear_shapes(figures_of(model.name), 1);
    ASSERT_TRUE(linears) << linears.error().message;
    std::int64_t parameters = model.embeddings * model.vocabulary * figures_of(model.name).hidden_size;
    for (const LinearShape& linear : *linears) {
      parameters += model.layers * linear.n * linear.k;
    }
    EXPECT_NEAR(static_cast<double>(parameters) / 1e9, model.billions, 0.006 * model.billions) << model.name;
  }
}

TEST(Presets, AnUnknownOneListsAllAndNamesTheNearest) {
  const auto model = load_model("qwen3-9b");
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(model.error().message, testing::HasSubstr("\"qwen3-9b\""));
  EXPECT_THAT(model.error().message, testing::HasSubstr("did you mean qwen3-"));
  for (const ModelPreset& preset : model_presets()) {
    EXPECT_THAT(model.error().message, testing::HasSubstr(preset.name));
  }
}

TEST(Presets, TheNameOfARepositoryIsNoFileAndNamesThePreset) {
  const auto model = load_model("Qwen/Qwen3-8B");
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, testing::HasSubstr("did you mean qwen3-8b?"));
}

TEST(Presets, AnEmptyNameIsUnknown) {
  const auto model = load_model("");
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace octile
