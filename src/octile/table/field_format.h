// SPDX-License-Identifier: Apache-2.0
// The field's table format: an object from decimal M to a Triton tile or null. See docs/tables.md.
#pragma once

#include "octile/core/json_file.h"
#include "octile/table/finding.h"
#include "octile/table/tile_table.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octile {

// The family that runs a tile of the field's format.
inline constexpr const char* kFieldKernel = "ada_mma";

// One key of a tile and what it may be.
struct FieldTileKey {
  const char* name;
  bool required;
  bool power_of_two;
  std::int64_t min_value;
  std::int64_t max_value;
};
// BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, num_warps, num_stages, then the optional ones.
const std::vector<FieldTileKey>& field_tile_keys();

// Whether `config` is a legal tile of the field's format on some device: only known keys, every required one, values in
// range. The Error names key, value and limit.
Expected<void> check_field_tile(const TileConfig& config);
// Bytes of shared memory of a tile: (BLOCK_SIZE_M + BLOCK_SIZE_N) * BLOCK_SIZE_K * max(num_stages - 1, 1), one byte an e4m3
// code. Precondition: check_field_tile().
std::int64_t field_tile_shared_bytes(const TileConfig& config) noexcept;
// check_field_tile(), and that it fits the shared memory a block may have (101,376 bytes on sm_89).
Expected<void> check_field_tile_fits(const TileConfig& config, std::int64_t shared_memory_bytes);
// One finding ("shared_memory") for each tile of a field table that does not fit.
std::vector<Finding> tiles_beyond_shared_memory(const TileTable& table, std::int64_t shared_memory_bytes);

// Parses a file's text. `key` is what the file's name says. Entries with faults are kept as places of the baseline with
// `left_out` set, so that their neighbours' tiles do not spread over them; keys that are no M are left out. Both are
// appended to `findings`, and so is what is wrong with the whole file, in which case the result is nullopt and that finding
// the last.
std::optional<TileTable> parse_field_table(const nlohmann::ordered_json& document,
                                           const std::vector<JsonDuplicate>& duplicates, const TableKey& key,
                                           const std::string& file, std::vector<Finding>& findings);
// The text of a field file. Errors (invalid_argument): an entry that the format cannot hold.
Expected<std::string> field_table_text(const TileTable& table);

// "64" -> 64. nullopt for everything that is not a positive decimal integer of at most 63 bits as a program writes it:
// signs, blanks, leading zeros, exponents.
std::optional<std::int64_t> parse_positive_decimal(std::string_view text) noexcept;

}  // namespace octile
