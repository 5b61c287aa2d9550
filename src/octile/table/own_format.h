// SPDX-License-Identifier: Apache-2.0
// Octile's own table format: intervals of M, verified at both ends, with the proof of each. See docs/tables.md.
#pragma once

#include "octile/core/json_file.h"
#include "octile/table/finding.h"
#include "octile/table/tile_table.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace octile {

// Parses a file. Entries with faults are left out and appended to `findings`; where the whole file is at fault, the result
// is nullopt and the last finding says why. A format number other than kTableFormat is such a fault (kind "unknown_format").
std::optional<TileTable> parse_own_table(const nlohmann::ordered_json& document,
                                         const std::vector<JsonDuplicate>& duplicates, const std::string& file,
                                         std::vector<Finding>& findings);
// The text of a file that parse_own_table() reads back without a finding and bit for bit. Errors (invalid_argument): a table
// that breaks a rule of the format, with the rule.
Expected<std::string> own_table_text(const TileTable& table);

// One hard key as text, by its name in the file, in the file's order; to compare and print keys.
std::vector<std::pair<std::string, std::string>> hard_keys(const TableKey& key);

}  // namespace octile
