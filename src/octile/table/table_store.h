// SPDX-License-Identifier: Apache-2.0
// Finds, reads and caches table files along the search path. Files are read once per process and (N, K), validated whole.
#pragma once

#include <octile/error.hpp>

#include "octile/table/finding.h"
#include "octile/table/tile_table.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octile {

// Reads one file of either format (told apart by its name, then by its content). What is wrong with the file as a whole is
// the Error; entries left out are appended to `findings` and the rest serves.
Expected<TileTable> read_table(const std::string& path, std::vector<Finding>& findings);
// The same with every fault, also the whole file's, as a finding; nullopt: the file is left out and the last one says why.
std::optional<TileTable> load_table(const std::string& path, std::vector<Finding>& findings);

// Writes by temporary file, fsync and atomic rename. Refuses to replace a file that it does not understand, and a table that
// breaks a rule of its format. Not safe against another writer between reading and writing: use update_own_table().
Expected<void> write_own_table(const TileTable& table, const std::string& path);
Expected<void> write_field_table(const TileTable& table, const std::string& path);

// Reads the table at `path` (nullptr where there is none), lets `change` make the new one, and writes it, all under a lock
// that excludes other processes and threads: two tuners on one directory lose nothing. Usual use: merge_tables({*current,
// mine}). Refuses a file that it does not understand. The lock file is ".octile.lock" in the file's directory.
Expected<void> update_own_table(const std::string& path,
                                const std::function<Expected<TileTable>(const TileTable* current)>& change);

// --tables (":"-separated), OCTILE_TABLE_PATH, the user's data directory, the tables shipped with the library; in this
// order.
std::vector<std::string> table_search_path(std::string_view tables_option);
// Where `octile tune` writes without --tables.
std::string user_table_directory();

struct TableLookup {
  std::shared_ptr<const TileTable> table;  // nullptr: none found.
  std::vector<Finding> findings;           // Of every file looked at.
  std::vector<std::string> searched;       // Directories, in order.
  std::string alias;                       // OCTILE_DEVICE_NAME_ALIAS's name where it was looked up instead; else empty.
  std::string near_device;                 // A device whose name is close and that has a table for this (N, K); never used.
};

// The table for (device_name, n, k, scheme): in each directory the own format first, then the field's; flat or in
// <device_name>/. Thread-safe; logs each file once, when first used, and each file's findings once (rank 0 only).
TableLookup find_table(std::string_view tables_option, const std::string& device_name, std::int64_t n, std::int64_t k,
                       const std::string& scheme = kSchemeChannelwise);
// Forgets what was read, for tests and for a tuner that has just written.
void clear_table_cache();

}  // namespace octile
