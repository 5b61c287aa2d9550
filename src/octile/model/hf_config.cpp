// SPDX-License-Identifier: Apache-2.0
// Reads a config.json by an allow-list of model types: what is not on it is refused, since a guessed shape would be tuned
// for nothing. Keys that make a known type something else (experts, latent attention, state spaces) are refused first.
#include "octile/model/hf_config.h"

#include "octile/core/format.h"
#include "octile/core/json_file.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace octile {
namespace {

using Json = nlohmann::ordered_json;

// Values that transformers fills in where a config.json leaves them out. Published files do leave some out: gemma-3-4b
// states neither heads nor head_dim. 0: the key must be there (heads), head_dim = hidden_size / heads, one key/value head a
// head.
struct KnownType {
  const char* model_type;
  std::int64_t default_heads;
  std::int64_t default_kv_heads;
  bool kv_heads_required;
  std::int64_t default_head_dim;
};
constexpr KnownType kKnownTypes[] = {
    {"gemma", 0, 0, true, 256}, {"gemma2", 0, 0, true, 256}, {"gemma3_text", 8, 4, false, 256}, {"granite", 0, 0, false, 0},
    {"llama", 0, 0, false, 0},  {"mistral", 0, 0, true, 0},  {"olmo2", 0, 0, false, 0},         {"phi3", 0, 0, false, 0},
    {"qwen2", 0, 0, true, 0},   {"qwen3", 0, 0, true, 128},  {"smollm3", 0, 0, true, 0},
};

// Keys whose presence (as a number above the bound, or as a list that is not empty) means another architecture.
struct Marker {
  const char* key;
  std::int64_t above;
  const char* architecture;
};
constexpr Marker kMarkers[] = {
    {"num_experts", 1, "a mixture of experts"},
    {"num_local_experts", 1, "a mixture of experts"},
    {"n_routed_experts", 0, "a mixture of experts"},
    {"moe_num_experts", 1, "a mixture of experts"},
    {"moe_intermediate_size", 0, "a mixture of experts"},
    {"num_experts_per_tok", 0, "a mixture of experts"},
    {"kv_lora_rank", 0, "multi-head latent attention (MLA)"},
    {"q_lora_rank", 0, "multi-head latent attention (MLA)"},
    {"mamba_d_state", 0, "a state-space model"},
    {"mamba_d_ssm", 0, "a state-space model"},
    {"ssm_state_size", 0, "a state-space model"},
    {"state_size", 0, "a state-space model"},
    {"attn_layer_period", 0, "a hybrid of attention and a state-space model"},
    {"linear_num_key_heads", 0, "a hybrid with linear attention"},
    {"decoder_layers", 0, "an encoder-decoder model"},
};

// Model types that people will try, so that the refusal says what they are.
struct RefusedType {
  const char* model_type;
  const char* architecture;
};
constexpr RefusedType kRefusedTypes[] = {
    {"bart", "an encoder-decoder model"},
    {"bert", "an encoder"},
    {"clip", "a vision-text encoder"},
    {"clip_vision_model", "a vision encoder"},
    {"deepseek_v2", "multi-head latent attention (MLA) with a mixture of experts"},
    {"deepseek_v3", "multi-head latent attention (MLA) with a mixture of experts"},
    {"dbrx", "a mixture of experts"},
    {"falcon_mamba", "a state-space model"},
    {"gemma3n", "a decoder whose layers differ in size"},
    {"gemma3n_text", "a decoder whose layers differ in size"},
    {"gpt_oss", "a mixture of experts"},
    {"jamba", "a hybrid of attention and a state-space model"},
    {"llama4", "a mixture of experts"},
    {"llama4_text", "a mixture of experts"},
    {"mamba", "a state-space model"},
    {"mamba2", "a state-space model"},
    {"minicpm3", "multi-head latent attention (MLA)"},
    {"mixtral", "a mixture of experts"},
    {"olmoe", "a mixture of experts"},
    {"qwen2_moe", "a mixture of experts"},
    {"qwen3_moe", "a mixture of experts"},
    {"qwen3_next", "a hybrid with linear attention"},
    {"roberta", "an encoder"},
    {"rwkv", "a recurrent model"},
    {"siglip", "a vision-text encoder"},
    {"siglip_vision_model", "a vision encoder"},
    {"t5", "an encoder-decoder model"},
    {"vit", "a vision encoder"},
    {"whisper", "an encoder-decoder model"},
};

Error refused(std::string_view model_type, std::string_view what) {
  std::string known;
  for (const KnownType& type : kKnownTypes) {
    known += known.empty() ? "" : ", ";
    known += type.model_type;
  }
  return make_error(ErrorCode::invalid_argument,
                    "model_type \"{}\" is not supported: {}; Octile reads dense decoders of the types {}", model_type, what,
                    known);
}

// nullopt where the key is absent or null.
Expected<std::optional<std::int64_t>> read_size(const Json& config, const char* key, std::int64_t limit) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    return std::optional<std::int64_t>();
  }
  // get<std::int64_t> of an unsigned above its range wraps, so that range is checked first.
  const bool representable =
      found->is_number_integer() &&
      (!found->is_number_unsigned() || found->get<std::uint64_t>() <= static_cast<std::uint64_t>(limit));
  if (!representable || found->get<std::int64_t>() < 1 || found->get<std::int64_t>() > limit) {
    return make_error(ErrorCode::invalid_argument, "\"{}\": wanted an integer from 1 to {}, got {}", key, limit,
                      describe_json(*found));
  }
  return std::optional<std::int64_t>(found->get<std::int64_t>());
}

Expected<std::int64_t> read_required_size(const Json& config, const char* key, std::int64_t limit, std::int64_t fallback) {
  const auto value = read_size(config, key, limit);
  if (!value) {
    return value.error();
  }
  if (value->has_value()) {
    return **value;
  }
  if (fallback == 0) {
    return make_error(ErrorCode::invalid_argument, "\"{}\": wanted an integer from 1 to {}, but the key is missing", key,
                      limit);
  }
  return fallback;
}

Expected<void> refuse_other_architectures(const Json& config, std::string_view model_type) {
  const auto encoder_decoder = config.find("is_encoder_decoder");
  if (encoder_decoder != config.end() && encoder_decoder->is_boolean() && encoder_decoder->get<bool>()) {
    return refused(model_type, "it is an encoder-decoder model (\"is_encoder_decoder\": true)");
  }
  for (const RefusedType& type : kRefusedTypes) {
    if (model_type == type.model_type) {
      return refused(model_type, format("it is {}", type.architecture));
    }
  }
  for (const Marker& marker : kMarkers) {
    const auto found = config.find(marker.key);
    if (found == config.end()) {
      continue;
    }
    const bool set = found->is_number() ? found->get<double>() > static_cast<double>(marker.above)
                                        : found->is_structured() && !found->empty();
    if (set) {
      return refused(model_type, format("it is {} (\"{}\" is {})", marker.architecture, marker.key, describe_json(*found)));
    }
  }
  return {};
}

Expected<std::string> read_model_type(const Json& config) {
  const auto found = config.find("model_type");
  if (found == config.end()) {
    return make_error(ErrorCode::invalid_argument,
                      "\"model_type\": wanted a string, but the key is missing: is this a Hugging Face config.json?");
  }
  if (!found->is_string()) {
    return make_error(ErrorCode::invalid_argument, "\"model_type\": wanted a string, got {}", describe_json(*found));
  }
  return found->get<std::string>();
}

const KnownType* find_known_type(std::string_view model_type) {
  const auto* found = std::find_if(std::begin(kKnownTypes), std::end(kKnownTypes),
                                   [&](const KnownType& type) { return model_type == type.model_type; });
  return found == std::end(kKnownTypes) ? nullptr : found;
}

Expected<ModelFigures> read_figures(const Json& config, const KnownType& type) {
  // Limits far above any model, and low enough that no product below overflows: 2^20 heads of 2^16 are 2^36.
  constexpr std::int64_t kSizeLimit = std::int64_t{1} << 24;
  constexpr std::int64_t kHeadsLimit = std::int64_t{1} << 20;
  constexpr std::int64_t kHeadDimLimit = std::int64_t{1} << 16;

  ModelFigures figures;
  const std::pair<std::int64_t*, Expected<std::int64_t>> required[] = {
      {&figures.hidden_size, read_required_size(config, "hidden_size", kSizeLimit, 0)},
      {&figures.intermediate_size, read_required_size(config, "intermediate_size", kSizeLimit, 0)},
      {&figures.num_attention_heads, read_required_size(config, "num_attention_heads", kHeadsLimit, type.default_heads)},
  };
  for (const auto& [figure, value] : required) {
    if (!value) {
      return value.error();
    }
    *figure = *value;
  }

  std::int64_t kv_fallback = type.default_kv_heads;
  if (kv_fallback == 0 && !type.kv_heads_required) {
    kv_fallback = figures.num_attention_heads;
  }
  const auto kv_heads = read_required_size(config, "num_key_value_heads", kHeadsLimit, kv_fallback);
  if (!kv_heads) {
    return kv_heads.error();
  }
  figures.num_key_value_heads = *kv_heads;
  if (figures.num_attention_heads % figures.num_key_value_heads != 0) {
    return make_error(ErrorCode::invalid_argument,
                      "\"num_attention_heads\": {} is not a multiple of \"num_key_value_heads\": {}",
                      figures.num_attention_heads, figures.num_key_value_heads);
  }

  std::int64_t head_dim_fallback = type.default_head_dim;
  if (head_dim_fallback == 0 && figures.hidden_size % figures.num_attention_heads == 0) {
    head_dim_fallback = figures.hidden_size / figures.num_attention_heads;
  }
  if (head_dim_fallback == 0 && !config.contains("head_dim")) {
    return make_error(ErrorCode::invalid_argument,
                      "\"head_dim\" is missing and \"hidden_size\": {} is not a multiple of \"num_attention_heads\": {}",
                      figures.hidden_size, figures.num_attention_heads);
  }
  const auto head_dim = read_required_size(config, "head_dim", kHeadDimLimit, head_dim_fallback);
  if (!head_dim) {
    return head_dim.error();
  }
  figures.head_dim = *head_dim;
  return figures;
}

}  // namespace

std::vector<std::string> known_model_types() {
  std::vector<std::string> names;
  for (const KnownType& type : kKnownTypes) {
    names.emplace_back(type.model_type);
  }
  return names;
}

Expected<HfConfig> parse_hf_config(const Json& config) {
  if (!config.is_object()) {
    return make_error(ErrorCode::corrupt, "wanted a JSON object, got {}", describe_json(config));
  }
  auto model_type = read_model_type(config);
  if (!model_type) {
    return std::move(model_type).error();
  }
  if (auto ok = refuse_other_architectures(config, *model_type); !ok) {
    return std::move(ok).error();
  }
  // The decoder of a multimodal model stands in its text_config, which states its own type.
  if (const auto text = config.find("text_config"); text != config.end() && !text->is_null()) {
    if (!text->is_object()) {
      return make_error(ErrorCode::invalid_argument, "\"text_config\": wanted an object, got {}", describe_json(*text));
    }
    auto nested = parse_hf_config(*text);
    if (!nested) {
      return Error{nested.error().code, "text_config: " + nested.error().message};
    }
    return nested;
  }
  const KnownType* type = find_known_type(*model_type);
  if (type == nullptr) {
    return refused(*model_type, config.contains("vision_config") ? "its decoder is not in a \"text_config\""
                                                                 : "its architecture is not known");
  }
  const auto figures = read_figures(config, *type);
  if (!figures) {
    return Error{figures.error().code, format("model_type \"{}\": {}", *model_type, figures.error().message)};
  }
  constexpr std::int64_t kLayersLimit = std::int64_t{1} << 16;
  const auto layers = read_size(config, "num_hidden_layers", kLayersLimit);
  if (!layers) {
    return make_error(layers.error().code, "model_type \"{}\": {}", *model_type, layers.error().message);
  }
  return HfConfig{*model_type, *figures, layers->value_or(0)};
}

}  // namespace octile
