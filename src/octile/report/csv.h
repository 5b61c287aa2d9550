// SPDX-License-Identifier: Apache-2.0
// Comma-separated values by RFC 4180.
#pragma once

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

}  // namespace octile
