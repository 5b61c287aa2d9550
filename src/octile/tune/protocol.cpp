// SPDX-License-Identifier: Apache-2.0
// The worker protocol's objects as JSON; see protocol.h.
#include "octile/tune/protocol.h"

#include "octile/core/format.h"
#include "octile/core/json_file.h"

#include <nlohmann/json.hpp>

#include <cstdint>

namespace octile {

using nlohmann::json;

template <class T>
T json_get(const json& object, const char* name, T fallback) {
  if (!object.is_object()) {
    return fallback;
  }
  const auto found = object.find(name);
  if (found == object.end()) {
    return fallback;
  }
  if constexpr (std::is_same_v<T, bool>) {
    return found->is_boolean() ? found->get<bool>() : fallback;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->get<std::string>() : fallback;
  } else if constexpr (std::is_floating_point_v<T>) {
    return found->is_number() ? found->get<T>() : fallback;
  } else {
    return found->is_number_integer() ? found->get<T>() : fallback;
  }
}
template bool json_get(const json&, const char*, bool);
template int json_get(const json&, const char*, int);
template double json_get(const json&, const char*, double);
template std::int64_t json_get(const json&, const char*, std::int64_t);
template std::uint64_t json_get(const json&, const char*, std::uint64_t);
template std::string json_get(const json&, const char*, std::string);

json to_json(const TileConfig& config) {
  json object = json::array();  // Pairs: an object would lose the order.
  for (const auto& [name, value] : config.values) {
    object.push_back(json::array({name, value}));
  }
  return object;
}

Expected<TileConfig> config_from_json(const json& value) {
  TileConfig config;
  if (!value.is_array()) {
    return Error{ErrorCode::corrupt, "a config is a list of [name, integer] pairs"};
  }
  for (const json& pair : value) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number_integer()) {
      return make_error(ErrorCode::corrupt, "a config is a list of [name, integer] pairs, not {}", value.dump());
    }
    config.values.emplace_back(pair[0].get<std::string>(), pair[1].get<std::int64_t>());
  }
  return config;
}

json to_json(const MeasureSettings& settings) {
  const Problem& problem = settings.problem;
  return {{"out_dtype", static_cast<int>(problem.out_dtype)},   {"bias", problem.bias},
          {"accumulate", static_cast<int>(problem.accumulate)}, {"numerics", static_cast<int>(problem.numerics)},
          {"batch_invariant", problem.batch_invariant},         {"pdl", static_cast<int>(problem.pdl)},
          {"quantized_input", settings.quantized_input},        {"seed", settings.seed},
          {"layout", static_cast<int>(problem.layout)},         {"max_sms", problem.max_sms}};
}

Expected<MeasureSettings> settings_from_json(const json& value) {
  MeasureSettings settings;
  const int out_dtype = json_get(value, "out_dtype", -1);
  const int accumulate = json_get(value, "accumulate", -1);
  const int numerics = json_get(value, "numerics", -1);
  const int pdl = json_get(value, "pdl", -1);
  if (out_dtype < 0 || out_dtype > static_cast<int>(DType::fp32) || accumulate < 0 ||
      accumulate > static_cast<int>(Accumulate::precise) || numerics < 0 ||
      numerics > static_cast<int>(Numerics::baseline) || pdl < 0 || pdl > static_cast<int>(Pdl::full)) {
    return make_error(ErrorCode::corrupt, "settings with an unknown out_dtype, accumulate, numerics or pdl: {}",
                      value.dump());
  }
  settings.problem.out_dtype = static_cast<DType>(out_dtype);
  settings.problem.accumulate = static_cast<Accumulate>(accumulate);
  settings.problem.numerics = static_cast<Numerics>(numerics);
  settings.problem.pdl = static_cast<Pdl>(pdl);
  const Expected<WeightLayout> layout = layout_of_request(value);
  if (!layout) {
    return layout.error();
  }
  settings.problem.layout = *layout;
  settings.problem.max_sms = json_get(value, "max_sms", 0);
  settings.problem.bias = json_get(value, "bias", false);
  settings.problem.batch_invariant = json_get(value, "batch_invariant", false);
  settings.quantized_input = json_get(value, "quantized_input", false);
  settings.seed = json_get(value, "seed", std::uint64_t{1});
  return settings;
}

json shape_request(std::int64_t n, std::int64_t k, WeightLayout layout) {
  return {{"command", "shape"}, {"n", n}, {"k", k}, {"layout", static_cast<int>(layout)}};
}

Expected<WeightLayout> layout_of_request(const json& request) {
  const int layout = json_get(request, "layout", -1);
  if (layout < 0 || layout > static_cast<int>(WeightLayout::slab64)) {
    return make_error(ErrorCode::corrupt, "an unknown weight layout: {}", request.dump());
  }
  return static_cast<WeightLayout>(layout);
}

json to_json(const CandidateSpec& spec) {
  return {{"role", static_cast<int>(spec.role)}, {"kernel", spec.kernel}, {"config", to_json(spec.config)}};
}

Expected<CandidateSpec> spec_from_json(const json& value) {
  CandidateSpec spec;
  const int role = json_get(value, "role", -1);
  if (role < 0 || role > static_cast<int>(CandidateSpec::Role::floor) || !value.contains("config")) {
    return make_error(ErrorCode::corrupt, "a candidate without a known role or a config: {}", value.dump());
  }
  spec.role = static_cast<CandidateSpec::Role>(role);
  spec.kernel = json_get(value, "kernel", std::string());
  Expected<TileConfig> config = config_from_json(value["config"]);
  if (!config) {
    return std::move(config).error();
  }
  spec.config = std::move(*config);
  return spec;
}

json to_json(const Admission& admission) {
  return {{"admitted", admission.admitted},    {"kind", admission.kind},       {"reason", admission.reason},
          {"kernel", admission.kernel},        {"layout", admission.layout},   {"rel_error", admission.rel_error},
          {"first_us", admission.first_us},    {"seconds", admission.seconds}, {"copies", admission.copies},
          {"copy_bytes", admission.copy_bytes}};
}

Expected<Admission> admission_from_json(const json& value) {
  if (!value.is_object() || !value.contains("admitted")) {
    return make_error(ErrorCode::corrupt, "wanted what became of a candidate, not {}", value.dump());
  }
  Admission admission;
  admission.admitted = json_get(value, "admitted", false);
  admission.kind = json_get(value, "kind", std::string());
  admission.reason = json_get(value, "reason", std::string());
  admission.kernel = json_get(value, "kernel", std::string());
  admission.layout = json_get(value, "layout", std::string());
  admission.rel_error = json_get(value, "rel_error", 0.0);
  admission.first_us = json_get(value, "first_us", 0.0);
  admission.seconds = json_get(value, "seconds", 0.0);
  admission.copies = json_get(value, "copies", std::int64_t{0});
  admission.copy_bytes = json_get(value, "copy_bytes", std::int64_t{0});
  return admission;
}

Expected<json> parse_line(std::string_view line) {
  const Expected<nlohmann::ordered_json> parsed = parse_json(line, "the line");
  if (!parsed || !parsed->is_object()) {
    return make_error(ErrorCode::corrupt, "wanted a line with a JSON object, not {}", quote_for_message(line));
  }
  return json(*parsed);
}

}  // namespace octile
