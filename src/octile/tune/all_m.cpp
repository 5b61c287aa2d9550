// SPDX-License-Identifier: Apache-2.0
// The M of a curve and their order; see all_m.h.
#include "octile/tune/all_m.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace octile {

namespace {

constexpr std::int64_t kEveryMUpTo = 512;
constexpr std::int64_t kStepAbove = 16;

}  // namespace

std::vector<std::int64_t> curve_ms(std::int64_t largest) {
  std::vector<std::int64_t> ms;
  for (std::int64_t m = 1; m <= largest; m += m < kEveryMUpTo ? 1 : kStepAbove) {
    ms.push_back(m);
  }
  return ms;
}

std::int64_t scattered(std::int64_t value, std::int64_t range) noexcept {
  std::int64_t rest = value;
  std::int64_t reversed = 0;
  for (std::int64_t bits = range; bits > 0; bits /= 2) {
    reversed = 2 * reversed + rest % 2;
    rest /= 2;
  }
  return reversed;
}

std::vector<std::int64_t> coarse_to_fine(const std::vector<std::int64_t>& ms, const std::vector<std::int64_t>& coarse) {
  const auto last = static_cast<std::int64_t>(ms.size()) - 1;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranked;
  for (std::size_t i = 0; i < ms.size(); ++i) {
    const bool is_first = std::ranges::find(coarse, ms[i]) != coarse.end();
    ranked.emplace_back(is_first ? -1 : scattered(static_cast<std::int64_t>(i), last), ms[i]);
  }
  std::ranges::sort(ranked);
  std::vector<std::int64_t> ordered;
  for (const auto& [rank, m] : ranked) {
    ordered.push_back(m);
  }
  return ordered;
}

}  // namespace octile
