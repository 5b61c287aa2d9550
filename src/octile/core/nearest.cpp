// SPDX-License-Identifier: Apache-2.0
// Edit distance, by the two-row dynamic programme.
#include "octile/core/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace octile {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> previous(b.size() + 1);
  std::vector<std::size_t> current(b.size() + 1);
  std::iota(previous.begin(), previous.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    current[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replace = previous[j] + (a[i] == b[j] ? 0 : 1);
      current[j + 1] = std::min({replace, previous[j + 1] + 1, current[j] + 1});
    }
    previous.swap(current);
  }
  return previous[b.size()];
}

std::string nearest_name(std::string_view wanted, std::span<const std::string> known) {
  // Comparing costs wanted x known, and no name is anywhere near 256 characters.
  if (wanted.size() > 256) {
    return {};
  }
  std::string nearest;
  std::size_t least = std::max<std::size_t>(2, wanted.size() / 3) + 1;
  for (const std::string& name : known) {
    const std::size_t distance = edit_distance(wanted, name);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace octile
