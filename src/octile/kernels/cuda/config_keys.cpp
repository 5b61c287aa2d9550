// SPDX-License-Identifier: Apache-2.0
#include "octile/kernels/cuda/config_keys.h"

#include "octile/core/format.h"

#include <algorithm>
#include <bit>

namespace octile::cuda {
namespace {

bool is_among(KeyValues values, std::uint64_t value) noexcept {
  constexpr std::uint64_t kThreeQuarters = 48;
  return values == KeyValues::any || std::has_single_bit(value) ||
         (values == KeyValues::tile_sides && value % kThreeQuarters == 0 && std::has_single_bit(value / kThreeQuarters));
}

const char* in_words(KeyValues values) noexcept {
  switch (values) {
    case KeyValues::any:
      return "an integer in";
    case KeyValues::powers_of_two:
      return "a power of two in";
    case KeyValues::tile_sides:
      break;
  }
  return "a power of two or 48 times one in";
}

}  // namespace

Expected<std::vector<int>> config_values(std::string_view family, const TileConfig& config,
                                         std::span<const ConfigKey> keys) {
  for (const auto& [name, value] : config.values) {
    if (std::ranges::none_of(keys, [&](const ConfigKey& key) { return name == key.name; })) {
      return make_error(ErrorCode::invalid_argument, "{}: unknown key {} = {}", family, name, value);
    }
  }
  std::vector<int> values;
  values.reserve(keys.size());
  for (const ConfigKey& key : keys) {
    const auto found = config.find(key.name);
    if (!found && !key.fallback) {
      return make_error(ErrorCode::invalid_argument, "{}: {} is missing in {}", family, key.name, config.to_json());
    }
    const std::int64_t value = found.value_or(key.fallback.value_or(0));
    if (value < key.lowest || value > key.highest || !is_among(key.values, static_cast<std::uint64_t>(value))) {
      return make_error(ErrorCode::invalid_argument, "{}: {} = {}: want {} {}..{}", family, key.name, value,
                        in_words(key.values), key.lowest, key.highest);
    }
    values.push_back(static_cast<int>(value));
  }
  return values;
}

}  // namespace octile::cuda
