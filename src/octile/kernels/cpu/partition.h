// SPDX-License-Identifier: Apache-2.0
// Cuts a range into parts as even as they can be: 13 rows in parts of at most 6 are 5, 4 and 4.
#pragma once

#include <algorithm>
#include <cstdint>

namespace octile::cpu {

struct Partition {
  std::int64_t total = 0;
  std::int64_t parts = 0;

  // The fewest parts of at most `largest` elements each.
  static constexpr Partition with_largest(std::int64_t total, std::int64_t largest) noexcept {
    return {total, (total + largest - 1) / largest};
  }
  constexpr std::int64_t begin(std::int64_t part) const noexcept {
    return part * (total / parts) + std::min(part, total % parts);
  }
  constexpr std::int64_t size(std::int64_t part) const noexcept { return total / parts + (part < total % parts ? 1 : 0); }
  constexpr std::int64_t part_of(std::int64_t element) const noexcept {
    const std::int64_t small = total / parts;
    const std::int64_t in_large = (total % parts) * (small + 1);
    return element < in_large ? element / (small + 1) : total % parts + (element - in_large) / small;
  }
};

}  // namespace octile::cpu
