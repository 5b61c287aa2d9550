// SPDX-License-Identifier: Apache-2.0
// Strict parsing: the whole text must be the value.
#include "octile/cli/parse.h"

#include "octile/core/format.h"
#include "octile/core/json_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

namespace octile::cli {

Expected<std::int64_t> parse_positive(std::string_view text, std::int64_t limit) {
  std::int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < 1 || value > limit) {
    return make_error(ErrorCode::invalid_argument, "wanted a whole number from 1 to {}, got {}", limit,
                      quote_for_message(text));
  }
  return value;
}

Expected<std::vector<std::int64_t>> parse_m_list(std::string_view text) {
  std::vector<std::int64_t> values;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    const auto value = parse_positive(rest.substr(0, comma), kMaxM);
    if (!value) {
      return value.error();
    }
    if (values.size() == kMaxMCount) {
      return make_error(ErrorCode::invalid_argument, "wanted at most {} values of M", kMaxMCount);
    }
    values.push_back(*value);
    more = comma != std::string_view::npos;
    rest.remove_prefix(more ? comma + 1 : 0);
  }
  std::vector<std::int64_t> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    return make_error(ErrorCode::invalid_argument, "wanted each M once, got {} twice", *twice);
  }
  return values;
}

Expected<double> parse_budget_s(std::string_view text) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  double seconds = -1;
  if (status == std::errc() && std::isfinite(value)) {
    if (unit.empty() || unit == "s") {
      seconds = value;
    } else if (unit == "m" || unit == "min") {
      seconds = value * 60;
    } else if (unit == "h") {
      seconds = value * 3600;
    }
  }
  if (!(seconds > 0) || seconds > kMaxBudgetS) {
    return make_error(ErrorCode::invalid_argument,
                      "wanted a span of time such as 90s, 2m or 1h, above 0 and at most 168h, got {}",
                      quote_for_message(text));
  }
  return seconds;
}

Expected<Shard> parse_shard(std::string_view text) {
  const std::size_t slash = text.find('/');
  const auto index = parse_positive(text.substr(0, slash), kMaxShards);
  const auto count =
      parse_positive(slash == std::string_view::npos ? std::string_view() : text.substr(slash + 1), kMaxShards);
  if (!index || !count || *index > *count) {
    return make_error(ErrorCode::invalid_argument, "wanted i/n with 1 <= i <= n <= {}, such as 2/8, got {}", kMaxShards,
                      quote_for_message(text));
  }
  return Shard{static_cast<int>(*index), static_cast<int>(*count)};
}

}  // namespace octile::cli
