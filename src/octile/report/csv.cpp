// SPDX-License-Identifier: Apache-2.0
// RFC 4180, written and read.
#include "octile/report/csv.h"

#include "octile/core/format.h"
#include "octile/core/json_file.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

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

namespace {

// One field from `at` on, which is left at the separator behind it, or at the end. Error: which quote is wrong.
Expected<std::string> next_field(std::string_view text, std::size_t& at, std::string_view name) {
  std::string field;
  if (at >= text.size() || text[at] != '"') {
    const std::size_t end = std::min(text.find_first_of(",\r\n", at), text.size());
    field = text.substr(at, end - at);
    at = end;
    if (field.find('"') != std::string::npos) {
      return make_error(ErrorCode::corrupt, "{}: a field with a quote in the middle: {}", name, quote_for_message(field));
    }
    return field;
  }
  for (++at; at < text.size(); ++at) {
    if (text[at] != '"') {
      field += text[at];
    } else if (at + 1 < text.size() && text[at + 1] == '"') {
      field += text[at++];
    } else {
      ++at;
      const bool is_end = at == text.size() || text[at] == ',' || text[at] == '\r' || text[at] == '\n';
      if (!is_end) {
        return make_error(ErrorCode::corrupt, "{}: wanted a comma or the end of the line behind {}, got '{}'", name,
                          quote_for_message(field), text[at]);
      }
      return field;
    }
  }
  return make_error(ErrorCode::corrupt, "{}: the quote before {} does not end", name, quote_for_message(field));
}

}  // namespace

Expected<std::vector<std::vector<std::string>>> parse_csv(std::string_view text, std::string_view name) {
  std::vector<std::vector<std::string>> records;
  std::vector<std::string> record;
  for (std::size_t at = 0; at < text.size() || !record.empty();) {
    const bool is_empty_line = record.empty() && (text[at] == '\r' || text[at] == '\n');
    if (is_empty_line) {
      ++at;
      continue;
    }
    Expected<std::string> field = next_field(text, at, name);
    if (!field) {
      return std::move(field).error();
    }
    record.push_back(*std::move(field));
    if (at < text.size() && text[at] == ',') {
      ++at;
      continue;
    }
    records.push_back(std::exchange(record, {}));
  }
  return records;
}

}  // namespace octile
