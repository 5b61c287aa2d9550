// SPDX-License-Identifier: Apache-2.0
// Reads, writes, finds and caches table files.
#include "octile/table/table_store.h"

#include "octile/core/atomic_file.h"
#include "octile/core/json_file.h"
#include "octile/core/log.h"
#include "octile/table/device_names.h"
#include "octile/table/field_format.h"
#include "octile/table/own_format.h"

#include <nlohmann/json.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <mutex>
#include <system_error>
#include <tuple>
#include <utility>

namespace octile {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFindingsInWarning = 5;

// Whether something is there to be opened; a path that cannot be examined counts, so that its fault is reported.
bool something_at(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

// "key n: 4096, the file's name says 6144" for the first of the parts that a file's name states which `key` contradicts.
std::string contradiction(const TableKey& name, const TableKey& key) {
  const auto say = [](std::string_view what, const auto& in_key, const auto& in_name) {
    return format("key {} is {}, the file's name says {}", what, in_key, in_name);
  };
  if (name.n != key.n) {
    return say("n", key.n, name.n);
  }
  if (name.k != key.k) {
    return say("k", key.k, name.k);
  }
  if (name.device_name != key.device_name) {
    return say("device_name", key.device_name, name.device_name);
  }
  return name.scheme == key.scheme ? std::string() : say("scheme", key.scheme, name.scheme);
}

const std::string& name_pattern() {
  static const std::string pattern =
      "N=<N>,K=<K>,device_name=<NAME>,dtype=" + std::string(kSchemeChannelwise) + ".json (or .octile.json)";
  return pattern;
}

// Errors where the file at `path` must not be replaced. A file of which only entries are at fault may be: they are named.
Expected<void> check_replaceable(const std::string& path) {
  if (!something_at(path)) {
    return {};
  }
  std::vector<Finding> findings;
  if (!load_table(path, findings)) {
    return make_error(ErrorCode::failed, "{} is not replaced, since it is not understood: {}; move it away first", path,
                      findings.back().message);
  }
  for (const Finding& finding : findings) {
    log_warning("{}: {} {} is lost when the file is replaced: {}", path, finding.kind, finding.key, finding.message);
  }
  return {};
}

Expected<void> check_target_name(const TileTable& table, const std::string& path, bool field_format) {
  const std::optional<TableFileName> name = parse_table_file_name(path);
  if (!name) {
    if (!field_format) {
      return {};
    }
    return make_error(ErrorCode::invalid_argument, "{}: a field table's file must be named {}", path, name_pattern());
  }
  if (name->field_format != field_format) {
    return make_error(ErrorCode::invalid_argument, "{}: the name is that of a table in {} format", path,
                      name->field_format ? "the field's" : "Octile's own");
  }
  if (const std::string problem = contradiction(name->key, table.key); !problem.empty()) {
    return make_error(ErrorCode::invalid_argument, "{}: {}", path, problem);
  }
  return {};
}

Expected<void> write_table(const TileTable& table, const std::string& path, bool field_format) {
  if (Expected<void> named = check_target_name(table, path, field_format); !named) {
    return named;
  }
  const Expected<std::string> text = field_format ? field_table_text(table) : own_table_text(table);
  if (!text) {
    return make_error(text.error().code, "{}: {}", path, text.error().message);
  }
  if (Expected<void> replaceable = check_replaceable(path); !replaceable) {
    return replaceable;
  }
  return write_file_atomically(path, *text);
}

struct LoadedFile {
  std::shared_ptr<const TileTable> table;  // nullptr: left out.
  std::vector<Finding> findings;
};

struct Cache {
  std::mutex mutex;
  std::map<std::string, LoadedFile, std::less<>> files;
  // Search path, device name as asked, name looked up, N, K, scheme.
  using Key = std::tuple<std::vector<std::string>, std::string, std::string, std::int64_t, std::int64_t, std::string>;
  std::map<Key, TableLookup> lookups;
};

Cache& cache() {
  static Cache instance;
  return instance;
}

void warn_of(const std::string& path, const LoadedFile& file) {
  if (file.findings.empty() || !is_rank_zero()) {
    return;
  }
  std::string message;
  if (file.table == nullptr) {
    message = format("tile table {} is left out: {}", path, file.findings.back().message);
  } else {
    message = format("tile table {}: left out", path);
    for (std::size_t i = 0; i < std::min(file.findings.size(), kFindingsInWarning); ++i) {
      const Finding& finding = file.findings[i];
      message += format("{} {}{}{}", i == 0 ? ":" : ";", finding.key, finding.key.empty() ? "" : ": ", finding.message);
    }
    if (file.findings.size() > kFindingsInWarning) {
      message += format("; and {} more (see octile table lint)", file.findings.size() - kFindingsInWarning);
    }
  }
  // The message is part of the key: a file that was replaced and is still at fault is named again.
  log_once(LogLevel::warning, message, message);
}

// The file at `path`, read once. Call with the cache locked.
const LoadedFile& load_cached(Cache& store, const std::string& path) {
  const auto [place, is_new] = store.files.try_emplace(path);
  if (is_new) {
    std::optional<TileTable> table = load_table(path, place->second.findings);
    if (table) {
      place->second.table = std::make_shared<const TileTable>(std::move(*table));
    }
    warn_of(path, place->second);
  }
  return place->second;
}

// Whether links lead from `path` out of `directory`. Where that cannot be told, reading says why.
bool leads_out(const std::string& directory, const std::string& path) {
  std::error_code error;
  const fs::path root = fs::canonical(directory, error);
  const fs::path file = error ? fs::path() : fs::canonical(path, error);
  return !error && std::ranges::mismatch(root, file).in1 != root.end();
}

// The same for a file that is not read, since it lies elsewhere. Call with the cache locked.
const LoadedFile& refuse_cached(Cache& store, const std::string& path, const std::string& directory) {
  const auto [place, is_new] = store.files.try_emplace(path);
  if (is_new) {
    place->second.findings.push_back(
        {path, "", "link", format("it is a link out of {}; copy the file, or name the directory it is in", directory)});
    warn_of(path, place->second);
  }
  return place->second;
}

// The four places of a directory where the table of `key` may be, in order.
std::vector<std::string> candidates(const std::string& directory, const TableKey& key) {
  std::vector<std::string> paths;
  for (const bool field_format : {false, true}) {
    const std::string name = table_file_name(key, field_format);
    paths.push_back((fs::path(directory) / name).string());
    paths.push_back((fs::path(directory) / key.device_name / name).string());
  }
  return paths;
}

// Device names of the files directly in `directory` that hold a table for `wanted`'s n, k and scheme; its folders' names are
// appended to `folders`.
void collect_devices(const fs::path& directory, const TableKey& wanted, std::vector<std::string>& names,
                     std::vector<fs::path>* folders) {
  std::error_code error;
  for (fs::directory_iterator item(directory, error), end; !error && item != end; item.increment(error)) {
    std::error_code ignored;
    if (item->is_directory(ignored)) {
      if (folders != nullptr) {
        folders->push_back(item->path());
      }
      continue;
    }
    const std::optional<TableFileName> name = parse_table_file_name(item->path().filename().string());
    if (name && name->key.n == wanted.n && name->key.k == wanted.k && name->key.scheme == wanted.scheme) {
      names.push_back(name->key.device_name);
    }
  }
}

std::string find_near_device(const std::vector<std::string>& directories, const TableKey& wanted) {
  std::vector<std::string> names;
  for (const std::string& directory : directories) {
    std::vector<fs::path> folders;
    collect_devices(directory, wanted, names, &folders);
    for (const fs::path& folder : folders) {
      collect_devices(folder, wanted, names, nullptr);
    }
  }
  return nearest_device_name(wanted.device_name, names);
}

// Call with the cache locked.
TableLookup look_up(Cache& store, std::vector<std::string> directories, const TableKey& wanted) {
  TableLookup result;
  result.searched = std::move(directories);
  for (const std::string& directory : result.searched) {
    for (const std::string& path : candidates(directory, wanted)) {
      if (!something_at(path)) {
        continue;
      }
      const LoadedFile& file = leads_out(directory, path) ? refuse_cached(store, path, directory) : load_cached(store, path);
      result.findings.insert(result.findings.end(), file.findings.begin(), file.findings.end());
      if (file.table != nullptr) {
        result.table = file.table;
        return result;
      }
    }
  }
  result.near_device = find_near_device(result.searched, wanted);
  return result;
}

}  // namespace

std::optional<TileTable> load_table(const std::string& path, std::vector<Finding>& findings) {
  const auto leave_out = [&](const char* kind, std::string message) {
    findings.push_back({path, "", kind, std::move(message)});
    return std::nullopt;
  };
  const std::optional<TableFileName> name = parse_table_file_name(path);
  if (name && name->key.scheme != kSchemeChannelwise) {
    return leave_out("unsupported_scheme", format("the scheme \"{}\" of the file's name is not supported, only \"{}\" is",
                                                  printable_text(name->key.scheme), kSchemeChannelwise));
  }
  std::vector<JsonDuplicate> duplicates;
  const Expected<nlohmann::ordered_json> document = read_json_file(path, {}, &duplicates);
  if (!document) {
    return leave_out(document.error().code == ErrorCode::io ? "io" : "bad_json", document.error().message);
  }
  const bool own_content = document->is_object() && document->contains("octile_table");
  if (!name && !own_content) {
    return leave_out("bad_name", "a field table's file must be named " + name_pattern());
  }
  if (name && name->field_format) {
    if (own_content) {
      return leave_out("bad_name",
                       "the file holds Octile's own format, whose files end in .octile.json, so that other loaders "
                       "do not take them for theirs");
    }
    return parse_field_table(*document, duplicates, name->key, path, findings);
  }
  std::optional<TileTable> table = parse_own_table(*document, duplicates, path, findings);
  if (table && name) {
    if (std::string problem = contradiction(name->key, table->key); !problem.empty()) {
      return leave_out("name_mismatch", std::move(problem));
    }
  }
  return table;
}

Expected<TileTable> read_table(const std::string& path, std::vector<Finding>& findings) {
  std::vector<Finding> found;
  std::optional<TileTable> table = load_table(path, found);
  if (table) {
    findings.insert(findings.end(), found.begin(), found.end());
    return std::move(*table);
  }
  const Finding& fault = found.back();
  const ErrorCode code = fault.kind == "io"                   ? ErrorCode::io
                         : fault.kind == "unsupported_scheme" ? ErrorCode::unavailable
                                                              : ErrorCode::corrupt;
  const bool names_file = fault.message.find(path) != std::string::npos;
  return Error{code, names_file ? fault.message : path + ": " + fault.message};
}

Expected<void> write_own_table(const TileTable& table, const std::string& path) { return write_table(table, path, false); }

Expected<void> write_field_table(const TileTable& table, const std::string& path) { return write_table(table, path, true); }

Expected<void> update_own_table(const std::string& path,
                                const std::function<Expected<TileTable>(const TileTable* current)>& change) {
  const fs::path directory = fs::path(path).parent_path();
  const Expected<FileLock> lock = FileLock::acquire((directory / ".octile.lock").string());
  if (!lock) {
    return lock.error();
  }
  std::optional<TileTable> current;
  if (something_at(path)) {
    std::vector<Finding> findings;
    Expected<TileTable> read = read_table(path, findings);
    if (!read) {
      return make_error(read.error().code, "{}; the file is not replaced, move it away first", read.error().message);
    }
    current = std::move(*read);
  }
  const Expected<TileTable> changed = change(current ? &*current : nullptr);
  if (!changed) {
    return changed.error();
  }
  return write_own_table(*changed, path);
}

TableLookup find_table(std::string_view tables_option, const std::string& device_name, std::int64_t n, std::int64_t k,
                       const std::string& scheme) {
  std::vector<std::string> directories = table_search_path(tables_option);
  std::vector<Finding> problems;
  TableKey wanted;
  wanted.n = n;
  wanted.k = k;
  wanted.scheme = scheme;
  // A driver's name with blanks is taken too.
  const std::string own_name = device_file_name(device_name);
  wanted.device_name = own_name;
  if (Expected<std::string> alias = aliased_device_name(own_name); alias) {
    wanted.device_name = std::move(*alias);
  } else {
    problems.push_back({"OCTILE_DEVICE_NAME_ALIAS", "", "bad_alias", alias.error().message});
    log_once(LogLevel::warning, alias.error().message, alias.error().message);
  }
  if (!is_device_file_name(wanted.device_name)) {
    problems.push_back({"", "", "bad_device_name", format("{} is no device name", quote_for_message(device_name))});
    TableLookup nothing;
    nothing.findings = std::move(problems);
    nothing.searched = std::move(directories);
    return nothing;
  }

  TableLookup result;
  {
    Cache& store = cache();
    const std::lock_guard lock(store.mutex);
    Cache::Key key{directories, own_name, wanted.device_name, n, k, scheme};
    auto found = store.lookups.find(key);
    if (found == store.lookups.end()) {
      found = store.lookups.emplace(std::move(key), look_up(store, std::move(directories), wanted)).first;
    }
    result = found->second;
  }
  if (wanted.device_name != own_name) {
    result.alias = wanted.device_name;
  }
  result.findings.insert(result.findings.end(), problems.begin(), problems.end());
  if (result.table != nullptr) {
    log_once(LogLevel::info, "table " + result.table->file,
             format("using tile table {}{}", result.table->file,
                    result.alias.empty() ? std::string() : format(" (alias of {})", own_name)));
  }
  return result;
}

void clear_table_cache() {
  Cache& store = cache();
  const std::lock_guard lock(store.mutex);
  store.files.clear();
  store.lookups.clear();
}

}  // namespace octile
