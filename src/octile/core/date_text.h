// SPDX-License-Identifier: Apache-2.0
// Dates as tables and records hold them: such texts order as the moments do.
#pragma once

#include <algorithm>
#include <string_view>

namespace octile {

inline constexpr std::string_view kDateForm = "0000-00-00T00:00:00Z";

// A digit wherever `form` has one, elsewhere what stands there.
constexpr bool has_form(std::string_view text, std::string_view form) {
  return std::ranges::equal(
      text, form, [](char came, char wanted) { return wanted == '0' ? '0' <= came && came <= '9' : came == wanted; });
}

// "2026-11-30T18:44:34Z".
constexpr bool is_moment(std::string_view text) { return has_form(text, kDateForm); }
// The same, or its day alone.
constexpr bool is_moment_or_day(std::string_view text) {
  return is_moment(text) || has_form(text, kDateForm.substr(0, kDateForm.find('T')));
}

}  // namespace octile
