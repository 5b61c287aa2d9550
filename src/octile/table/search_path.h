// SPDX-License-Identifier: Apache-2.0
// Where table files are looked for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octile {

// Which directory holds the tables shipped with the library: share/octile/tables beside the running library or program (an
// installed or moved copy), else the tree's (a build that was not installed), else the installation prefix. Parts of the
// answer are arguments so that tests can ask about other places.
struct ShippedTables {
  std::string module_path;  // The running library or program.
  std::string source;       // The source tree's tables.
  std::string installed;    // Those under the configured prefix.
};
std::string shipped_table_directory(const ShippedTables& places);
// The same for this process.
std::string shipped_table_directory();

// The parts between ':', empty ones left out.
std::vector<std::string> split_path_list(std::string_view list);

}  // namespace octile
