// SPDX-License-Identifier: Apache-2.0
// Text of others (names from a config.json, command lines, messages) as part of an HTML page, where it must stay text.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace octile {

// For text and for attribute values in quotes. What is no UTF-8, a control character, or a mark that reverses the direction
// of writing (and can make a command line read as another) becomes U+FFFD.
std::string html_escape(std::string_view text);
// The same, but line breaks stay.
std::string html_escape_lines(std::string_view text);

// JSON (ASCII only) as the content of a <script> element: no '<', '>' or '&' is left, so nothing can close or open a tag.
std::string json_for_script(std::string_view json);

// `frame` with every {{name}} replaced by its value, in one pass: what a value holds is never looked at again. A name
// without a value is replaced by nothing.
std::string fill_frame(std::string_view frame, const std::map<std::string, std::string, std::less<>>& values);

}  // namespace octile
