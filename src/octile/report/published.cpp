// SPDX-License-Identifier: Apache-2.0
// Reading and joining published times; see published.h.
#include "octile/report/published.h"

#include "octile/core/format.h"
#include "octile/core/json_file.h"
#include "octile/report/csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <system_error>
#include <utility>

namespace octile {
namespace {

constexpr std::string_view kUnit = "_us";

template <class Number>
std::optional<Number> number_of(const std::string& text) {
  Number value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

struct Columns {
  std::array<std::size_t, 3> key{};  // N, K, M.
  std::vector<std::pair<std::size_t, std::string>> times;
};

Expected<Columns> columns_of(const std::vector<std::string>& header, std::string_view name) {
  constexpr std::array<std::string_view, 3> kKeys{"N", "K", "M"};
  Columns columns;
  for (std::size_t i = 0; i < kKeys.size(); ++i) {
    const auto found = std::ranges::find(header, kKeys[i]);
    if (found == header.end()) {
      return make_error(ErrorCode::corrupt, "{}: wanted columns N, K and M in its first line, got no {}", name, kKeys[i]);
    }
    columns.key[i] = static_cast<std::size_t>(found - header.begin());
  }
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (header[i].size() > kUnit.size() && header[i].ends_with(kUnit)) {
      columns.times.emplace_back(i, header[i].substr(0, header[i].size() - kUnit.size()));
    }
  }
  if (columns.times.empty()) {
    return make_error(ErrorCode::corrupt, "{}: wanted columns of times, with names that end in \"{}\", got none", name,
                      kUnit);
  }
  return columns;
}

}  // namespace

Expected<PublishedTimes> parse_published_times(std::string_view text, std::string_view name) {
  const Expected<std::vector<std::vector<std::string>>> records = parse_csv(text, name);
  if (!records) {
    return records.error();
  }
  if (records->empty()) {
    return make_error(ErrorCode::corrupt, "{}: wanted a line with the names of columns, got an empty file", name);
  }
  const Expected<Columns> columns = columns_of(records->front(), name);
  if (!columns) {
    return columns.error();
  }
  PublishedTimes result;
  result.file = name;
  for (const auto& [index, time] : columns->times) {
    result.names.push_back(time);
  }
  for (std::size_t i = 1; i < records->size(); ++i) {
    const std::vector<std::string>& record = (*records)[i];
    const std::string place = format("{}: record {}", name, i + 1);
    if (record.size() != records->front().size()) {
      return make_error(ErrorCode::corrupt, "{}: wanted {} fields as in the first line, got {}", place,
                        records->front().size(), record.size());
    }
    std::array<std::int64_t, 3> key{};
    for (std::size_t j = 0; j < key.size(); ++j) {
      const std::string& field = record[columns->key[j]];
      const auto value = number_of<std::int64_t>(field);
      if (!value || *value < 1) {
        return make_error(ErrorCode::corrupt, "{}: {}: wanted a whole number from 1, got {}", place,
                          records->front()[columns->key[j]], quote_for_message(field));
      }
      key[j] = *value;
    }
    std::vector<PublishedTime> times;
    for (const auto& [index, time] : columns->times) {
      const std::string& field = record[index];
      if (field.empty()) {
        continue;
      }
      const auto us = number_of<double>(field);
      if (!us || !std::isfinite(*us) || *us <= 0) {
        return make_error(ErrorCode::corrupt, "{}: {}{}: wanted microseconds above 0 or nothing, got {}", place, time, kUnit,
                          quote_for_message(field));
      }
      times.push_back({time, *us});
    }
    if (!result.points.emplace(std::tuple(key[0], key[1], key[2]), std::move(times)).second) {
      return make_error(ErrorCode::corrupt, "{}: N = {}, K = {}, M = {} comes twice", place, key[0], key[1], key[2]);
    }
  }
  return result;
}

Expected<PublishedTimes> read_published_times(const std::string& path) {
  const Expected<std::string> text = read_whole_file(path);
  if (!text) {
    return text.error();
  }
  return parse_published_times(*text, path);
}

void add_published(const PublishedTimes& times, BenchResult& result) {
  result.published_from = times.file;
  std::size_t joined = 0;
  for (BenchRow& row : result.rows) {
    const auto found = times.points.find(std::tuple(row.n, row.k, row.m));
    if (found != times.points.end()) {
      row.published = found->second;
      ++joined;
    }
  }
  result.notes.push_back(format("{} of {} rows have published times of the {} points of {}, of another run", joined,
                                result.rows.size(), times.points.size(), times.file));
}

}  // namespace octile
