// SPDX-License-Identifier: Apache-2.0
// What coordinator and worker say to each other: one JSON object a line. The coordinator asks, the worker announces each
// step that may crash or hang ({"step": ...}), then answers. See docs/tuning.md, "Processes".
#pragma once

#include <octile/error.hpp>

#include "octile/tune/measure.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace octile {

nlohmann::json to_json(const TileConfig& config);
// Errors (corrupt): no object, or a value that is no integer.
Expected<TileConfig> config_from_json(const nlohmann::json& value);

nlohmann::json to_json(const MeasureSettings& settings);
nlohmann::json to_json(const CandidateSpec& spec);
nlohmann::json to_json(const Admission& admission);
// The request that sets a weight's shape and the layout of it that our families read; see Measurer::set_shape().
nlohmann::json shape_request(std::int64_t n, std::int64_t k, WeightLayout layout);
// The layout in it, or in settings. Errors (corrupt): none, or an unknown one.
Expected<WeightLayout> layout_of_request(const nlohmann::json& request);
Expected<MeasureSettings> settings_from_json(const nlohmann::json& value);
Expected<CandidateSpec> spec_from_json(const nlohmann::json& value);
Expected<Admission> admission_from_json(const nlohmann::json& value);

// Member `name` of an object as T, or `fallback` where it is missing or of another type.
template <class T>
T json_get(const nlohmann::json& object, const char* name, T fallback);

// One line as a JSON object. Errors (corrupt) quote its beginning.
Expected<nlohmann::json> parse_line(std::string_view line);

}  // namespace octile
