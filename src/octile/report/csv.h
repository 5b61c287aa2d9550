// SPDX-License-Identifier: Apache-2.0
// Comma-separated values by RFC 4180.
#pragma once

#include <octile/error.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octile {

// A field with a comma, a quote or a line break goes in quotes, its quotes doubled.
std::string csv_field(std::string_view value);
// A number that reads back as the same double; empty for NaN, infinities and nullopt.
std::string csv_number(std::optional<double> value);
// One record, ended by CR LF. The fields are quoted here.
std::string csv_record(const std::vector<std::string>& fields);

// The records of a text in that form; lines may also end in "\n" alone, empty ones are passed over. Errors (corrupt): a
// quote that does not end, or in the middle of a field.
Expected<std::vector<std::vector<std::string>>> parse_csv(std::string_view text, std::string_view name);

}  // namespace octile
