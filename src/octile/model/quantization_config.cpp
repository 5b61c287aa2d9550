// SPDX-License-Identifier: Apache-2.0
// quantization_config of config.json as compressed-tensors, fbgemm, modelopt, quark and the plain "fp8" write it, and
// modelopt's hf_quant_config.json.
#include "octile/model/quantization_config.h"

#include "octile/core/format.h"
#include "octile/core/json_file.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

namespace octile {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kWanted = "Octile reads e4m3 weights with one scale an output channel or one for all";

Error refused(std::string_view what) {
  return make_error(ErrorCode::invalid_argument, "{} is not supported; {}", what, kWanted);
}

// The member, or nullptr where it is absent or null.
const Json* find(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// An object that holds something.
bool filled(const Json* value) { return value != nullptr && value->is_structured() && !value->empty(); }

Expected<const Json*> find_object(const Json& object, const char* key) {
  const Json* const found = find(object, key);
  if (found != nullptr && !found->is_object()) {
    return make_error(ErrorCode::corrupt, "\"{}\": wanted an object, got {}", key, describe_json(*found));
  }
  return found;
}

// A string member in lower case, "" where it is absent or null.
Expected<std::string> find_word(const Json& object, const char* key) {
  const Json* const found = find(object, key);
  if (found == nullptr) {
    return std::string();
  }
  if (!found->is_string()) {
    return make_error(ErrorCode::corrupt, "\"{}\": wanted a string, got {}", key, describe_json(*found));
  }
  std::string word = found->get<std::string>();
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return word;
}

bool is(const Json& object, const char* key, bool wanted) {
  const Json* const found = find(object, key);
  return found != nullptr && found->is_boolean() && found->get<bool>() == wanted;
}

// Puts where an error happened before its message.
Error within(std::string_view place, const Error& error) { return {error.code, format("{}: {}", place, error.message)}; }

// --- compressed-tensors

// "weights" or "input_activations": e4m3, symmetric.
Expected<void> check_compressed_numbers(const Json& args) {
  const auto type = find_word(args, "type");
  if (!type) {
    return type.error();
  }
  const Json* const bits = find(args, "num_bits");
  if (*type != "float" || bits == nullptr || !bits->is_number_integer() || *bits != 8) {
    return refused(format("type {} of {} bits", quote_for_message(*type), bits == nullptr ? "no" : bits->dump()));
  }
  if (is(args, "symmetric", false)) {
    return refused("\"symmetric\": false, codes with a zero point,");
  }
  return {};
}

Expected<void> read_compressed_weights(const Json& weights, QuantizationScheme& scheme) {
  if (auto ok = check_compressed_numbers(weights); !ok) {
    return ok;
  }
  const auto strategy = find_word(weights, "strategy");
  if (!strategy) {
    return strategy.error();
  }
  if (*strategy == "block") {
    const Json* const block = find(weights, "block_structure");
    return refused(format("strategy \"block\" (block_structure {}), block-scaled weights,",
                          block == nullptr ? "unstated" : printable_text(block->dump())));
  }
  if (*strategy != "channel" && *strategy != "tensor") {
    return refused(format("strategy {}", quote_for_message(*strategy)));
  }
  (*strategy == "channel" ? scheme.channel_scales : scheme.tensor_scales) = true;
  return {};
}

Expected<void> read_compressed_activations(const Json* activations, QuantizationScheme& scheme) {
  if (activations == nullptr) {
    return refused("a linear of quantised weights whose activations are not quantised");
  }
  if (auto ok = check_compressed_numbers(*activations); !ok) {
    return ok;
  }
  const auto strategy = find_word(*activations, "strategy");
  if (!strategy) {
    return strategy.error();
  }
  const bool dynamic = is(*activations, "dynamic", true);
  const bool fixed = find(*activations, "dynamic") == nullptr || is(*activations, "dynamic", false);
  if (dynamic && (*strategy == "token" || *strategy == "tensor")) {
    scheme.dynamic_activations = true;
  } else if (fixed && *strategy == "tensor") {
    scheme.static_activations = true;
  } else {
    return refused(format("strategy {} with \"dynamic\": {}", quote_for_message(*strategy),
                          fixed ? "false" : printable_text(find(*activations, "dynamic")->dump())));
  }
  return {};
}

Expected<void> check_compressed_format(const Json& object) {
  const auto name = find_word(object, "format");
  if (!name) {
    return name.error();
  }
  // naive-quantized is how early versions called the same; mixed-precision leaves it to the groups.
  if (!name->empty() && *name != "float-quantized" && *name != "naive-quantized" && *name != "mixed-precision" &&
      *name != "dense") {
    return refused(format("format {}", quote_for_message(*name)));
  }
  return {};
}

Expected<void> read_compressed_group(const Json& group, QuantizationScheme& scheme) {
  if (!group.is_object()) {
    return make_error(ErrorCode::corrupt, "wanted an object, got {}", describe_json(group));
  }
  if (auto ok = check_compressed_format(group); !ok) {
    return ok;
  }
  const auto weights = find_object(group, "weights");
  const auto inputs = find_object(group, "input_activations");
  const auto outputs = find_object(group, "output_activations");
  for (const auto* member : {&weights, &inputs, &outputs}) {
    if (!*member) {
      return member->error();
    }
  }
  if (*outputs != nullptr) {
    return refused("a linear with quantised outputs (\"output_activations\")");
  }
  if (*weights == nullptr) {
    return refused("a group without \"weights\"");
  }
  if (auto ok = read_compressed_weights(**weights, scheme); !ok) {
    return within("\"weights\"", ok.error());
  }
  if (auto ok = read_compressed_activations(*inputs, scheme); !ok) {
    return within("\"input_activations\"", ok.error());
  }
  return {};
}

Expected<void> read_compressed_tensors(const Json& config, QuantizationScheme& scheme) {
  if (auto ok = check_compressed_format(config); !ok) {
    return ok;
  }
  const auto sparsity = find_object(config, "sparsity_config");
  if (!sparsity) {
    return sparsity.error();
  }
  if (filled(*sparsity)) {
    if (auto ok = check_compressed_format(**sparsity); !ok) {
      return within("\"sparsity_config\"", ok.error());
    }
  }
  if (const Json* const transforms = find(config, "transform_config");
      transforms != nullptr && filled(find(*transforms, "config_groups"))) {
    return refused("\"transform_config\": rotations of activations between the linears");
  }
  const auto groups = find_object(config, "config_groups");
  if (!groups) {
    return groups.error();
  }
  if (*groups == nullptr) {
    return {};  // The KV cache alone is quantised.
  }
  for (const auto& [name, group] : (*groups)->items()) {
    if (auto ok = read_compressed_group(group, scheme); !ok) {
      return within(format("\"config_groups\": {}", quote_for_message(name)), ok.error());
    }
  }
  return {};
}

// --- fbgemm

Expected<void> read_fbgemm(const Json& config, QuantizationScheme& scheme) {
  scheme.channel_scales = true;
  scheme.dynamic_activations = true;
  if (const Json* const bound = find(config, "activation_scale_ub"); bound != nullptr) {
    if (!bound->is_number() || !(bound->get<double>() > 0) ||
        bound->get<double>() > static_cast<double>(std::numeric_limits<float>::max())) {
      return make_error(ErrorCode::invalid_argument, "\"activation_scale_ub\": wanted a finite number > 0, got {}",
                        describe_json(*bound));
    }
    scheme.activation_upper_bound = bound->get<float>();
  }
  return {};
}

// --- "fp8", which serves two formats

Expected<void> read_fp8(const Json& config, QuantizationScheme& scheme) {
  if (const Json* const block = find(config, "weight_block_size"); block != nullptr) {
    return refused(format("\"weight_block_size\": {}, block-scaled weights,", printable_text(block->dump())));
  }
  const auto numbers = find_word(config, "fmt");
  if (!numbers) {
    return numbers.error();
  }
  if (!numbers->empty() && *numbers != "e4m3" && *numbers != "float8_e4m3fn") {
    return refused(format("\"fmt\": {}", quote_for_message(*numbers)));
  }
  const auto activations = find_word(config, "activation_scheme");
  if (!activations) {
    return activations.error();
  }
  if (*activations != "static" && *activations != "dynamic") {
    return refused(format("\"activation_scheme\": {}", quote_for_message(*activations)));
  }
  scheme.tensor_scales = true;
  (*activations == "static" ? scheme.static_activations : scheme.dynamic_activations) = true;
  return {};
}

// --- modelopt

Expected<void> read_modelopt_algorithm(const std::string& algorithm, QuantizationScheme& scheme) {
  if (algorithm.empty()) {
    return {};  // The KV cache alone is quantised.
  }
  if (algorithm == "fp8") {
    scheme.tensor_scales = true;
    scheme.static_activations = true;
    return {};
  }
  if (algorithm == "fp8_per_channel_per_token") {
    scheme.channel_scales = true;
    scheme.dynamic_activations = true;
    return {};
  }
  if (algorithm == "fp8_pb_wo" || algorithm == "fp8_block_scales") {
    return refused(format("\"quant_algo\": {}, block-scaled weights,", quote_for_message(algorithm)));
  }
  return refused(format("\"quant_algo\": {}", quote_for_message(algorithm)));
}

// --- quark

Expected<void> read_quark_weight(const Json& weight, QuantizationScheme& scheme) {
  if (weight.is_array()) {
    return refused("a weight quantised in several steps");
  }
  const auto dtype = find_word(weight, "dtype");
  const auto layout = find_word(weight, "qscheme");
  if (!dtype || !layout) {
    return !dtype ? dtype.error() : layout.error();
  }
  if (*dtype != "fp8_e4m3") {
    return refused(format("\"dtype\": {}", quote_for_message(*dtype)));
  }
  if (is(weight, "is_dynamic", true)) {
    return refused("\"is_dynamic\": true");
  }
  if (*layout == "per_tensor") {
    scheme.tensor_scales = true;
    return {};
  }
  if (*layout != "per_channel") {
    return refused(format("\"qscheme\": {}{}", quote_for_message(*layout),
                          layout->find("block") == std::string::npos ? "" : ", block-scaled weights,"));
  }
  if (const Json* const axis = find(weight, "ch_axis"); axis != nullptr && *axis != 0) {
    return refused(format("\"ch_axis\": {}", printable_text(axis->dump())));
  }
  scheme.channel_scales = true;
  return {};
}

Expected<void> read_quark_inputs(const Json& inputs, QuantizationScheme& scheme) {
  if (inputs.is_array()) {
    return refused("an activation quantised in several steps");
  }
  const auto dtype = find_word(inputs, "dtype");
  const auto layout = find_word(inputs, "qscheme");
  if (!dtype || !layout) {
    return !dtype ? dtype.error() : layout.error();
  }
  if (*dtype != "fp8_e4m3") {
    return refused(format("\"dtype\": {}", quote_for_message(*dtype)));
  }
  const bool dynamic = is(inputs, "is_dynamic", true);
  // Quark calls a scale a token "per_channel": the channels of [tokens, K].
  const bool per_token = *layout == "per_channel" || *layout == "per_token";
  if (*layout != "per_tensor" && !(dynamic && per_token)) {
    return refused(format("\"qscheme\": {} with \"is_dynamic\": {}", quote_for_message(*layout), dynamic));
  }
  (dynamic ? scheme.dynamic_activations : scheme.static_activations) = true;
  return {};
}

// One of the configurations that a quark file holds: global, or of some layers. output_tensors are the KV cache's.
Expected<void> read_quark_layer(const Json& layer, QuantizationScheme& scheme) {
  if (!layer.is_object()) {
    return make_error(ErrorCode::corrupt, "wanted an object, got {}", describe_json(layer));
  }
  const Json* const weight = find(layer, "weight");
  const Json* const inputs = find(layer, "input_tensors");
  if (weight == nullptr) {
    return {};  // Not quantised.
  }
  if (inputs == nullptr) {
    return refused("a linear of quantised weights whose activations are not quantised");
  }
  for (const auto& [key, value] : {std::pair("weight", weight), std::pair("input_tensors", inputs)}) {
    if (!value->is_structured()) {
      return make_error(ErrorCode::corrupt, "\"{}\": wanted an object, got {}", key, describe_json(*value));
    }
  }
  if (auto ok = read_quark_weight(*weight, scheme); !ok) {
    return within("\"weight\"", ok.error());
  }
  if (auto ok = read_quark_inputs(*inputs, scheme); !ok) {
    return within("\"input_tensors\"", ok.error());
  }
  return {};
}

Expected<void> read_quark(const Json& config, QuantizationScheme& scheme) {
  const auto global = find_object(config, "global_quant_config");
  if (!global) {
    return global.error();
  }
  if (*global == nullptr) {
    return make_error(ErrorCode::corrupt, "\"global_quant_config\" is missing");
  }
  if (auto ok = read_quark_layer(**global, scheme); !ok) {
    return within("\"global_quant_config\"", ok.error());
  }
  for (const char* key : {"layer_quant_config", "layer_type_quant_config"}) {
    const auto layers = find_object(config, key);
    if (!layers) {
      return layers.error();
    }
    if (*layers == nullptr) {
      continue;
    }
    for (const auto& [name, layer] : (*layers)->items()) {
      if (layer.is_null()) {
        continue;
      }
      if (auto ok = read_quark_layer(layer, scheme); !ok) {
        return within(format("\"{}\": {}", key, quote_for_message(name)), ok.error());
      }
    }
  }
  return {};
}

// --- all

// The object in config.json, of a multimodal model also in its text_config; nullptr where there is none.
Expected<const Json*> find_quantization(const Json& config) {
  auto found = find_object(config, "quantization_config");
  if (!found || *found != nullptr) {
    return found;
  }
  const auto text = find_object(config, "text_config");
  if (!text) {
    return text.error();
  }
  return *text == nullptr ? static_cast<const Json*>(nullptr) : find_object(**text, "quantization_config");
}

// quant_method, for modelopt's also from its producer.
Expected<std::string> method_of(const Json& quantization) {
  auto method = find_word(quantization, "quant_method");
  if (!method) {
    return method;
  }
  if (*method == "compressed_tensors") {
    return std::string("compressed-tensors");
  }
  if (const Json* const producer = find(quantization, "producer");
      method->empty() && producer != nullptr && producer->is_object()) {
    return find_word(*producer, "name");
  }
  return method;
}

Expected<void> read_method(const Json& quantization, const std::string& algorithm, QuantizationScheme& scheme) {
  if (scheme.method == "compressed-tensors") {
    return read_compressed_tensors(quantization, scheme);
  }
  if (scheme.method == "fbgemm_fp8") {
    return read_fbgemm(quantization, scheme);
  }
  if (scheme.method == "fp8") {
    return read_fp8(quantization, scheme);
  }
  if (scheme.method == "modelopt") {
    return read_modelopt_algorithm(algorithm, scheme);
  }
  if (scheme.method == "quark") {
    return read_quark(quantization, scheme);
  }
  return refused(format("\"quant_method\": {}", quote_for_message(scheme.method)));
}

// quant_algo of hf_quant_config.json; "" where the file, or the quantisation of weights, is not there.
Expected<std::string> read_hf_quant_config(const Json* hf_quant_config) {
  if (hf_quant_config == nullptr) {
    return std::string();
  }
  if (!hf_quant_config->is_object()) {
    return make_error(ErrorCode::corrupt, "hf_quant_config.json: wanted an object, got {}", describe_json(*hf_quant_config));
  }
  const auto quantization = find_object(*hf_quant_config, "quantization");
  if (!quantization) {
    return within("hf_quant_config.json", quantization.error());
  }
  if (*quantization == nullptr) {
    return make_error(ErrorCode::corrupt, "hf_quant_config.json: \"quantization\" is missing");
  }
  auto algorithm = find_word(**quantization, "quant_algo");
  if (!algorithm) {
    return within("hf_quant_config.json: \"quantization\"", algorithm.error());
  }
  return algorithm;
}

}  // namespace

Expected<QuantizationScheme> read_quantization(const Json& config, const Json* hf_quant_config) {
  if (!config.is_object()) {
    return make_error(ErrorCode::corrupt, "config.json: wanted an object, got {}", describe_json(config));
  }
  const auto quantization = find_quantization(config);
  if (!quantization) {
    return within("config.json", quantization.error());
  }
  const auto exported = read_hf_quant_config(hf_quant_config);
  if (!exported) {
    return exported.error();
  }
  QuantizationScheme scheme;
  if (*quantization == nullptr) {
    if (exported->empty()) {
      return scheme;
    }
    scheme.method = "modelopt";
    if (auto ok = read_modelopt_algorithm(*exported, scheme); !ok) {
      return within("hf_quant_config.json", ok.error());
    }
    return scheme;
  }
  constexpr const char* kPlace = "config.json: \"quantization_config\"";
  auto method = method_of(**quantization);
  if (!method) {
    return within(kPlace, method.error());
  }
  scheme.method = *std::move(method);
  auto algorithm = find_word(**quantization, "quant_algo");
  if (!algorithm) {
    return within(kPlace, algorithm.error());
  }
  if (!exported->empty()) {
    if (scheme.method != "modelopt" || (!algorithm->empty() && *algorithm != *exported)) {
      return make_error(ErrorCode::invalid_argument,
                        "hf_quant_config.json says modelopt's {}, config.json says {} {}: which is it?",
                        quote_for_message(*exported), quote_for_message(scheme.method), quote_for_message(*algorithm));
    }
    *algorithm = *exported;
  }
  if (auto ok = read_method(**quantization, *algorithm, scheme); !ok) {
    return within(kPlace, ok.error());
  }
  return scheme;
}

}  // namespace octile
