// SPDX-License-Identifier: Apache-2.0
// What `octile bench --json` and `--record` write, read back: a recorded result can be shown again without measuring.
#pragma once

#include <octile/error.hpp>

#include "octile/tune/bench.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octile {

struct BenchRecord {
  BenchResult result;
  std::string commit;
  std::vector<std::string> commands;  // That made the result, in order.
  // What else the file says: driver, libraries, the machine, ..., in its order; nested values on one line.
  std::vector<std::pair<std::string, std::string>> facts;
};

// `name` is what errors call the text. Errors (corrupt) name the row and the field, with what was wanted and what came.
// Fields of a row that are missing or null count as not measured; the shape, n, k, m and a list of rows must be there.
Expected<BenchRecord> parse_bench_record(std::string_view text, std::string_view name);
// Errors (io) as well, of the file.
Expected<BenchRecord> read_bench_record(const std::string& path);

}  // namespace octile
