// SPDX-License-Identifier: Apache-2.0
// fmt ignores the locale unless asked, so a German LC_NUMERIC does not turn 1.5 into 1,5.
#include "octile/report/numbers.h"

#include "octile/core/format.h"

#include <algorithm>
#include <cmath>

namespace octile {

std::string format_fixed(std::optional<double> value, int digits) {
  return value.has_value() && std::isfinite(*value) ? format("{:.{}f}", *value, digits) : "-";
}

std::string format_us(std::optional<double> us) {
  if (!us.has_value() || !std::isfinite(*us)) {
    return "-";
  }
  const double magnitude = std::fabs(*us);
  // The bounds are where the shorter form would round up to one digit more: 9.996 is "10.0", not "10.00".
  return format_fixed(us, magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0);
}

std::string format_ratio(std::optional<double> ratio) {
  const std::string text = format_fixed(ratio, 2);
  return text == "-" ? text : text + "x";
}

std::string format_share(std::optional<double> share) {
  const std::string text = share.has_value() ? format_fixed(*share * 100.0, 0) : "-";
  return text == "-" ? text : text + " %";
}

std::string format_bytes(std::int64_t bytes) {
  if (bytes < 1024) {
    return format("{} B", bytes);
  }
  double value = static_cast<double>(bytes) / 1024.0;
  const char* unit = "KiB";
  for (const char* larger : {"MiB", "GiB", "TiB"}) {
    // 1023.95 would print as "1024.0".
    if (value < 1023.95) {
      break;
    }
    value /= 1024.0;
    unit = larger;
  }
  return format("{:.1f} {}", value, unit);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) {
    return "-";
  }
  const auto total = static_cast<std::int64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  if (total < 60) {
    return format("{} s", total);
  }
  if (total < 3600) {
    return format("{} min {:02} s", total / 60, total % 60);
  }
  return format("{} h {:02} min", total / 3600, total % 3600 / 60);
}

}  // namespace octile
