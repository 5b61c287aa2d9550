// SPDX-License-Identifier: Apache-2.0
// Escaping, byte by byte for ASCII and code point by code point beyond it.
#include "octile/report/html_escape.h"

#include <cstddef>
#include <cstdint>

namespace octile {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD.

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;  // 0: no UTF-8 starts here.
};

// Overlong forms, surrogates and what lies beyond U+10FFFF are no UTF-8.
CodePoint code_point_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t bytes = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (bytes <= 1) {
    return {lead, bytes};
  }
  if (text.size() < bytes) {
    return {};
  }
  std::uint32_t value = lead & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) {
      return {};
    }
    value = value << 6 | (byte(i) & 0x3FU);
  }
  const bool is_overlong = value < (bytes == 3 ? 0x800U : bytes == 4 ? 0x10000U : 0x80U);
  const bool is_surrogate = value >= 0xD800 && value <= 0xDFFF;
  return is_overlong || is_surrogate || value > 0x10FFFF ? CodePoint{} : CodePoint{value, bytes};
}

bool is_steering(std::uint32_t value) {
  return value < 0x20 || (value >= 0x7F && value < 0xA0) || value == 0x061C || value == 0x200E || value == 0x200F ||
         (value >= 0x2028 && value <= 0x202E) || (value >= 0x2066 && value <= 0x2069) || value == 0xFEFF;
}

}  // namespace

std::string html_escape(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const CodePoint point = code_point_at(text);
    if (point.bytes == 0 || is_steering(point.value)) {
      escaped += kReplacement;
    } else if (point.value == '&') {
      escaped += "&amp;";
    } else if (point.value == '<') {
      escaped += "&lt;";
    } else if (point.value == '>') {
      escaped += "&gt;";
    } else if (point.value == '"') {
      escaped += "&quot;";
    } else if (point.value == '\'') {
      escaped += "&#39;";
    } else {
      escaped += text.substr(0, point.bytes);
    }
    text.remove_prefix(point.bytes == 0 ? 1 : point.bytes);
  }
  return escaped;
}

std::string html_escape_lines(std::string_view text) {
  std::string escaped;
  for (;;) {
    const std::size_t end = text.find('\n');
    escaped += html_escape(text.substr(0, end));
    if (end == std::string_view::npos) {
      return escaped;
    }
    escaped += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string json_for_script(std::string_view json) {
  std::string escaped;
  for (const char c : json) {
    // Outside of strings JSON has none of them, and within strings the escaped form means the same.
    if (c == '<') {
      escaped += "\\u003c";
    } else if (c == '>') {
      escaped += "\\u003e";
    } else if (c == '&') {
      escaped += "\\u0026";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string fill_frame(std::string_view frame, const std::map<std::string, std::string, std::less<>>& values) {
  std::string filled;
  for (;;) {
    const std::size_t open = frame.find("{{");
    const std::size_t close = open == std::string_view::npos ? open : frame.find("}}", open);
    filled += frame.substr(0, close == std::string_view::npos ? close : open);
    if (close == std::string_view::npos) {
      return filled;
    }
    if (const auto value = values.find(frame.substr(open + 2, close - open - 2)); value != values.end()) {
      filled += value->second;
    }
    frame.remove_prefix(close + 2);
  }
}

}  // namespace octile
