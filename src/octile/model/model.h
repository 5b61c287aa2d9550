// SPDX-License-Identifier: Apache-2.0
// The FP8 linears of one decoder layer of a model: from a preset, or from a Hugging Face config.json of a dense decoder.
// Architectures that are not understood are refused by name, never guessed.
#pragma once

#include <octile/error.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octile {

// The figures of a decoder layer that fix its linears; names as in config.json.
struct ModelFigures {
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
};

struct ModelPreset {
  const char* name;  // "qwen3-8b"
  ModelFigures figures;
};

// One linear: weight [n, k].
struct LinearShape {
  std::string name;  // "qkv", "o", "gate_up", "down".
  std::int64_t n = 0;
  std::int64_t k = 0;
};

struct Model {
  std::string name;    // The preset's name, or the path of the config.json.
  std::string source;  // "preset", or the model_type of the config.json.
  ModelFigures figures;
  std::int64_t tp = 1;
  std::vector<LinearShape> linears;  // qkv, o, gate_up, down of one rank, in this order.
};

// Largest --tp that is taken.
inline constexpr std::int64_t kMaxTensorParallel = 1024;

std::span<const ModelPreset> model_presets();

// The four linears of one rank of `tp`: qkv and gate_up divided along N, o and down along K. Key/value heads are divided
// where there are at least `tp` of them, and replicated (one a rank) where there are fewer, as engines do.
// Errors (invalid_argument): what does not divide, with the numbers.
Expected<std::vector<LinearShape>> linear_shapes(const ModelFigures& figures, std::int64_t tp);

// `preset_or_path` is a preset's name (case, '-', '_' and '.' don't matter), the path of a config.json, or a directory
// that holds one. Errors: invalid_argument for an unknown preset (the nearest is named), an architecture that is not
// understood and what does not divide by `tp`; io and corrupt for the file.
Expected<Model> load_model(std::string_view preset_or_path, std::int64_t tp = 1);

}  // namespace octile
