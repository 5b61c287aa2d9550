// SPDX-License-Identifier: Apache-2.0
// The way back from a name to what to_string() gives it: of options and keys that were checked before.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace octile {

// That of `values` whose name it is, else `otherwise`.
template <class Value>
Value value_named(std::string_view name, std::initializer_list<Value> values, Value otherwise) {
  const auto* const found = std::ranges::find_if(values, [&](Value value) { return name == to_string(value); });
  return found == values.end() ? otherwise : *found;
}

}  // namespace octile
