// SPDX-License-Identifier: Apache-2.0
// What a counter of DeviceConditions grew by between two moments.
#pragma once

#include <optional>

namespace octile {

// Not known where one of the two is not.
template <class T>
std::optional<T> grown_by(const std::optional<T>& before, const std::optional<T>& after) {
  return before && after ? std::optional<T>(*after - *before) : std::nullopt;
}

}  // namespace octile
