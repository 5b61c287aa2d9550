// SPDX-License-Identifier: Apache-2.0
// Explanations and devices as JSON values, with the fields of docs/guide.md, "Machine-readable output", in their order. Both
// public interfaces and the report layer print these. Include <nlohmann/json.hpp> in the .cpp file that uses the result.
#pragma once

#include <octile/linear.hpp>

#include <nlohmann/json_fwd.hpp>

namespace octile {

nlohmann::ordered_json explanation_value(const Explanation& explanation);
// Every device of every backend.
nlohmann::ordered_json devices_value();

}  // namespace octile
