// SPDX-License-Identifier: Apache-2.0
// One thing wrong with a table file, as `octile table lint --json` and `verify --json` print it.
#pragma once

#include <string>

namespace octile {

struct Finding {
  std::string file;
  std::string key;      // The entry's key or interval; empty for the whole file.
  std::string kind;     // "bad_json", "bad_key", "duplicate_key", "overlap", "unknown_tile_key", "out_of_range", ...
  std::string message;  // What was wanted and what came.
};

}  // namespace octile
