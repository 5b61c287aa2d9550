// SPDX-License-Identifier: Apache-2.0
// Where table files are looked for: the option, the environment, the user's data directory, the shipped tables.
#include "octile/table/search_path.h"

#include "octile/core/env.h"
#include "octile/core/format.h"
#include "octile/core/log.h"
#include "octile/table/table_store.h"

#include <dlfcn.h>
#include <link.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace octile {

namespace {

namespace fs = std::filesystem;

// The file that this code was loaded from: the shared library, or the program it is linked into.
std::string module_path() {
  static const char anchor = 0;
  Dl_info info{};
  void* extra = nullptr;
  if (::dladdr1(&anchor, &info, &extra, RTLD_DL_LINKMAP) == 0 || extra == nullptr) {
    return {};
  }
  // The main program's name is empty here; dli_fname would be argv[0], which need not be a path.
  const char* const name = static_cast<const link_map*>(extra)->l_name;
  std::error_code error;
  const fs::path path = fs::canonical(*name == '\0' ? fs::path("/proc/self/exe") : fs::path(name), error);
  return error ? std::string() : path.string();
}

bool has_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::string home_directory() {
  if (const char* const home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return home;
  }
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr &&
      found->pw_dir != nullptr && *found->pw_dir == '/') {
    return found->pw_dir;
  }
  return {};
}

// A directory that was named and is not there would leave every linear untuned without a word.
void warn_unless_directory(const std::string& directory, std::string_view named_by) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (!fs::is_directory(status)) {
    log_once(LogLevel::warning, format("no table directory {}", directory),
             format("{} names {} for tables: {}", named_by, directory,
                    fs::exists(status) ? "it is no directory" : error.message()));
  }
}

}  // namespace

std::string shipped_table_directory(const ShippedTables& places) {
  const fs::path folder = fs::path(places.module_path).parent_path();
  // <prefix>/bin or <prefix>/lib, and <prefix>/lib/<architecture>.
  for (const fs::path& prefix : {folder.parent_path(), folder.parent_path().parent_path()}) {
    const fs::path candidate = prefix / "share" / "octile" / "tables";
    if (candidate.is_absolute() && has_directory(candidate)) {
      return candidate.string();
    }
  }
  return has_directory(places.source) ? places.source : places.installed;
}

std::string shipped_table_directory() {
  return shipped_table_directory({module_path(), OCTILE_SOURCE_TABLES, OCTILE_INSTALLED_TABLES});
}

std::vector<std::string> split_path_list(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const std::size_t colon = std::min(list.find(':'), list.size());
    if (colon > 0) {
      parts.emplace_back(list.substr(0, colon));
    }
    list.remove_prefix(std::min(colon + 1, list.size()));
  }
  return parts;
}

std::string user_table_directory() {
  // The XDG base directory specification tells programs to ignore a relative path here.
  const char* const data_home = std::getenv("XDG_DATA_HOME");
  if (data_home != nullptr && *data_home == '/') {
    return (fs::path(data_home) / "octile" / "tables").string();
  }
  const std::string home = home_directory();
  return home.empty() ? home : (fs::path(home) / ".local" / "share" / "octile" / "tables").string();
}

std::vector<std::string> table_search_path(std::string_view tables_option) {
  std::vector<std::string> directories = split_path_list(tables_option);
  for (const std::string& directory : directories) {
    warn_unless_directory(directory, "the option");
  }
  if (const Expected<std::string> path = env::get_text("OCTILE_TABLE_PATH"); !path) {
    log_once(LogLevel::warning, "OCTILE_TABLE_PATH", path.error().message);
  } else {
    for (std::string& directory : split_path_list(*path)) {
      warn_unless_directory(directory, "OCTILE_TABLE_PATH");
      directories.push_back(std::move(directory));
    }
  }
  directories.push_back(user_table_directory());
  directories.push_back(shipped_table_directory());

  std::vector<std::string> distinct;
  for (std::string& directory : directories) {
    if (!directory.empty() && std::find(distinct.begin(), distinct.end(), directory) == distinct.end()) {
      distinct.push_back(std::move(directory));
    }
  }
  return distinct;
}

}  // namespace octile
