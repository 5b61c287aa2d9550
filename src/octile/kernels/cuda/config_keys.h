// SPDX-License-Identifier: Apache-2.0
// The integers of a config by name: which keys a family knows, their ranges and defaults. Knows no CUDA.
#pragma once

#include <octile/error.hpp>

#include "octile/table/tile_config.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace octile::cuda {

enum class KeyValues {
  any,
  powers_of_two,
  tile_sides,  // Powers of two and 48 times one: between 32 and 64 rows a third of the work of the next power is wasted.
};

struct ConfigKey {
  const char* name;
  int lowest;
  int highest;
  std::optional<int> fallback;  // Absent: the key must be given.
  KeyValues values = KeyValues::any;
};

// The values of `keys` in `config`, in their order. Errors (invalid_argument): an unknown key, a missing one, a value out of
// range, each with what came and what was wanted.
Expected<std::vector<int>> config_values(std::string_view family, const TileConfig& config, std::span<const ConfigKey> keys);

}  // namespace octile::cuda
