// SPDX-License-Identifier: Apache-2.0
// The distinct tiles of the published L40S tables, in the order they are met.
#pragma once

#include "octile/table/table_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace octile::test {

inline std::vector<TileConfig> l40s_tiles() {
  std::vector<TileConfig> tiles;
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(OCTILE_TEST_SOURCE_DIR) + "/tables/NVIDIA_L40S")) {
    if (entry.path().extension() == ".json") {
      files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  for (const auto& file : files) {
    std::vector<Finding> findings;
    const auto table = read_table(file.string(), findings);
    if (!table || !findings.empty()) {
      ADD_FAILURE() << file << (table ? ": has findings" : ": " + table.error().message);
      continue;
    }
    for (const TableEntry& entry : table->entries) {
      if (!entry.config.values.empty() && std::ranges::find(tiles, entry.config) == tiles.end()) {
        tiles.push_back(entry.config);
      }
    }
  }
  return tiles;
}

}  // namespace octile::test
