// SPDX-License-Identifier: Apache-2.0
// A kernel's configuration: named integers, in the order they were set. A family gives the names their meaning; tables and
// the tuner only store, compare and print them. The field's tile keys (BLOCK_SIZE_M, ...) are names like any other.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octile {

struct TileConfig {
  std::vector<std::pair<std::string, std::int64_t>> values;

  std::optional<std::int64_t> find(std::string_view name) const noexcept;
  std::int64_t get(std::string_view name, std::int64_t fallback) const noexcept;
  void set(std::string_view name, std::int64_t value);  // Replaces or appends.

  // {"BLOCK_SIZE_M": 16, ...}, in order.
  std::string to_json() const;
  // Equal as sets of (name, value).
  friend bool operator==(const TileConfig& a, const TileConfig& b) noexcept;
};

// to_json() as an object.
nlohmann::ordered_json config_object(const TileConfig& config);

}  // namespace octile
