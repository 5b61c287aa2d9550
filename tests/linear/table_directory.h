// SPDX-License-Identifier: Apache-2.0
// Table files in a directory of their own while an object lives.
#pragma once

#include "octile/table/table_store.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>

namespace octile::test {

class TableDirectory {
 public:
  TableDirectory() {
    static std::atomic<int> made{0};
    path_ = std::filesystem::temp_directory_path() /
            ("octile-tables-" + std::to_string(::getpid()) + "-" + std::to_string(made++));
    std::filesystem::create_directories(path_);
  }
  ~TableDirectory() {
    std::filesystem::remove_all(path_);
    clear_table_cache();
  }
  TableDirectory(const TableDirectory&) = delete;
  TableDirectory& operator=(const TableDirectory&) = delete;

  void write(const TileTable& table) {
    const auto ok = write_own_table(table, (path_ / table_file_name(table.key, false)).string());
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
    clear_table_cache();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace octile::test
