// SPDX-License-Identifier: Apache-2.0
// From a preset or a config.json to the four linears of one tensor-parallel rank.
#include "octile/model/model.h"

#include "octile/core/format.h"
#include "octile/core/json_file.h"
#include "octile/core/nearest.h"
#include "octile/model/hf_config.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace octile {
namespace {

// "Llama_3.1-8B" and "llama-3.1-8b" are one name.
std::string normalized(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') {
      result += static_cast<char>(c - 'A' + 'a');
    } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      result += c;
    }
  }
  return result;
}

const ModelPreset* find_preset(std::string_view name) {
  const std::string wanted = normalized(name);
  for (const ModelPreset& preset : model_presets()) {
    if (normalized(preset.name) == wanted) {
      return &preset;
    }
  }
  return nullptr;
}

Error unknown_model(std::string_view wanted) {
  std::vector<std::string> names;
  std::string list;
  for (const ModelPreset& preset : model_presets()) {
    names.emplace_back(preset.name);
    list += list.empty() ? "" : ", ";
    list += preset.name;
  }
  // "Qwen/Qwen3-8B", the name of a repository, means its last part.
  std::string name(wanted.substr(wanted.rfind('/') + 1));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  const std::string nearest = nearest_name(name, names);
  return make_error(ErrorCode::invalid_argument,
                    "no model preset and no file \"{}\"{}; presets: {}; or the path of a config.json", wanted,
                    nearest.empty() ? "" : format(" (did you mean {}?)", nearest), list);
}

Expected<Model> load_config(const std::string& path, std::int64_t tp) {
  const auto json = read_json_file(path);
  if (!json) {
    return json.error();
  }
  auto config = parse_hf_config(*json);
  if (!config) {
    return Error{config.error().code, format("{}: {}", path, config.error().message)};
  }
  auto linears = linear_shapes(config->figures, tp);
  if (!linears) {
    return Error{linears.error().code, format("{}: {}", path, linears.error().message)};
  }
  return Model{path, config->model_type, config->figures, tp, *std::move(linears)};
}

}  // namespace

Expected<std::vector<LinearShape>> linear_shapes(const ModelFigures& figures, std::int64_t tp) {
  if (tp < 1 || tp > kMaxTensorParallel) {
    return make_error(ErrorCode::invalid_argument, "tensor parallelism: wanted an integer from 1 to {}, got {}",
                      kMaxTensorParallel, tp);
  }
  if (figures.num_attention_heads % tp != 0) {
    return make_error(ErrorCode::invalid_argument, "{} attention heads do not divide by {} ranks",
                      figures.num_attention_heads, tp);
  }
  if (figures.intermediate_size % tp != 0) {
    return make_error(ErrorCode::invalid_argument, "an intermediate size of {} does not divide by {} ranks",
                      figures.intermediate_size, tp);
  }
  const std::int64_t kv_heads = figures.num_key_value_heads;
  if (kv_heads >= tp ? kv_heads % tp != 0 : tp % kv_heads != 0) {
    return make_error(ErrorCode::invalid_argument,
                      "{} key/value heads are neither divisible by {} ranks nor a divisor of them", kv_heads, tp);
  }
  const std::int64_t rank_heads = figures.num_attention_heads / tp;
  const std::int64_t rank_kv_heads = std::max<std::int64_t>(1, kv_heads / tp);
  const std::int64_t rank_intermediate = figures.intermediate_size / tp;
  return std::vector<LinearShape>{
      {"qkv", (rank_heads + 2 * rank_kv_heads) * figures.head_dim, figures.hidden_size},
      {"o", figures.hidden_size, rank_heads * figures.head_dim},
      {"gate_up", 2 * rank_intermediate, figures.hidden_size},
      {"down", figures.hidden_size, rank_intermediate},
  };
}

Expected<Model> load_model(std::string_view preset_or_path, std::int64_t tp) {
  // A preset wins over a file of its name in the working directory; "./qwen3-8b" names the file.
  if (const ModelPreset* preset = find_preset(preset_or_path);
      preset != nullptr && preset_or_path.find('/') == std::string_view::npos) {
    auto linears = linear_shapes(preset->figures, tp);
    if (!linears) {
      return Error{linears.error().code, format("{}: {}", preset->name, linears.error().message)};
    }
    return Model{preset->name, "preset", preset->figures, tp, *std::move(linears)};
  }
  std::error_code ignored;
  const std::filesystem::path path(preset_or_path);
  if (std::filesystem::is_directory(path, ignored)) {
    return load_config((path / "config.json").string(), tp);
  }
  if (std::filesystem::exists(path, ignored) || path.extension() == ".json") {
    return load_config(path.string(), tp);
  }
  return unknown_model(preset_or_path);
}

}  // namespace octile
