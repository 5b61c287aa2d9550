// SPDX-License-Identifier: Apache-2.0
// A kernel's configuration as named integers.
#include "octile/table/tile_config.h"

#include "octile/core/format.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace octile {

std::optional<std::int64_t> TileConfig::find(std::string_view name) const noexcept {
  for (const auto& [known, value] : values) {
    if (known == name) {
      return value;
    }
  }
  return std::nullopt;
}

std::int64_t TileConfig::get(std::string_view name, std::int64_t fallback) const noexcept {
  return find(name).value_or(fallback);
}

void TileConfig::set(std::string_view name, std::int64_t value) {
  for (auto& [known, old] : values) {
    if (known == name) {
      old = value;
      return;
    }
  }
  values.emplace_back(name, value);
}

std::string TileConfig::to_json() const {
  std::string text = "{";
  for (const auto& [name, value] : values) {
    text += format("{}\"{}\": {}", text.size() == 1 ? "" : ", ", name, value);
  }
  return text + "}";
}

bool operator==(const TileConfig& a, const TileConfig& b) noexcept {
  return a.values.size() == b.values.size() &&
         std::all_of(a.values.begin(), a.values.end(), [&](const auto& pair) { return b.find(pair.first) == pair.second; });
}

nlohmann::ordered_json config_object(const TileConfig& config) {
  auto json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : config.values) {
    json[name] = value;
  }
  return json;
}

}  // namespace octile
