// SPDX-License-Identifier: Apache-2.0
// RFC 4180 writing.
#include "octile/report/csv.h"

#include "octile/core/format.h"

#include <cmath>

namespace octile {

std::string csv_field(std::string_view value) {
  if (value.find_first_of(",\"\r\n") == std::string_view::npos) {
    return std::string(value);
  }
  std::string quoted = "\"";
  for (const char c : value) {
    quoted += c;
    if (c == '"') {
      quoted += '"';
    }
  }
  return quoted + '"';
}

std::string csv_number(std::optional<double> value) {
  // fmt's plain form is the shortest that reads back exactly.
  return value.has_value() && std::isfinite(*value) ? format("{}", *value) : "";
}

std::string csv_record(const std::vector<std::string>& fields) {
  std::string record;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    record += i == 0 ? "" : ",";
    record += csv_field(fields[i]);
  }
  return record + "\r\n";
}

}  // namespace octile
