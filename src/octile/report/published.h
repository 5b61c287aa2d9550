// SPDX-License-Identifier: Apache-2.0
// Times that others measured, joined to the rows of a bench: a CSV file with columns N, K and M, one column a kernel with a
// name that ends in "_us", and any others, which are passed over.
#pragma once

#include <octile/error.hpp>

#include "octile/tune/bench.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace octile {

struct PublishedTimes {
  std::string file;
  std::vector<std::string> names;  // Of the columns, without "_us", in their order.
  // (n, k, m) -> times, in the order of the names; one that the file leaves empty is not there.
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::vector<PublishedTime>> points;
};

// Errors (corrupt) name the line and what is wrong: no such columns, no whole number, no time above 0, a point that comes
// twice.
Expected<PublishedTimes> parse_published_times(std::string_view text, std::string_view name);
// Errors (io) as well, of the file.
Expected<PublishedTimes> read_published_times(const std::string& path);

// Writes them into the rows of the same n, k and m; a note says how many points found none.
void add_published(const PublishedTimes& times, BenchResult& result);

}  // namespace octile
