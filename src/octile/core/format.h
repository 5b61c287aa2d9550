// SPDX-License-Identifier: Apache-2.0
// fmt's formatting, compiled once: including <fmt/format.h> everywhere costs about a second a file, <fmt/core.h> a tenth.
#pragma once

#include <octile/error.hpp>

#include <fmt/core.h>

#include <span>
#include <string>
#include <string_view>

namespace octile {

namespace detail {
std::string vformat(fmt::string_view text, fmt::format_args args);
}

template <class... Args>
std::string format(fmt::format_string<Args...> text, Args&&... args) {
  return detail::vformat(fmt::string_view(text), fmt::make_format_args(args...));
}

// "a, b, c" of three parts and ", ".
std::string join(std::span<const std::string> parts, std::string_view separator);

// error(ErrorCode::io, "cannot open {}: {}", path, reason)
template <class... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  return Error{code, detail::vformat(fmt::string_view(text), fmt::make_format_args(args...))};
}

}  // namespace octile
