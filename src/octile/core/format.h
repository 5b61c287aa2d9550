// SPDX-License-Identifier: Apache-2.0
// fmt's formatting, compiled once: including <fmt/format.h> everywhere costs about a second a file, <fmt/core.h> a tenth.
#pragma once

#include <octile/error.hpp>

#include <fmt/core.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

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

// The same for memory that has run out, in two words where even the message finds none.
template <class... Args>
Error out_of_memory(fmt::format_string<Args...> text, Args&&... args) noexcept {
  try {
    return make_error(ErrorCode::out_of_memory, text, std::forward<Args>(args)...);
  } catch (...) {
    return Error{ErrorCode::out_of_memory, "out of memory"};  // So few bytes lie in the string itself.
  }
}

}  // namespace octile
