// SPDX-License-Identifier: Apache-2.0
// The known name that a mistyped one probably means.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace octile {

// Single-character insertions, deletions and replacements that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `known` (the first of equals), or "" where none is within a third of the wanted name's length, at least 2.
std::string nearest_name(std::string_view wanted, std::span<const std::string> known);

}  // namespace octile
