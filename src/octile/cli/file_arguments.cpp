// SPDX-License-Identifier: Apache-2.0
// Files are compared by where their paths lead, so that "a.json", "./a.json" and a link to it are one.
#include "octile/cli/file_arguments.h"

#include "octile/cli/output.h"
#include "octile/core/format.h"
#include "octile/table/search_path.h"

#include <filesystem>
#include <optional>
#include <system_error>

namespace octile::cli {
namespace {

namespace fs = std::filesystem;

// Where the file of a result is or would be; nothing for what is no regular file and is not replaced.
std::optional<fs::path> written_file(const std::string& path) {
  if (path == "-" || named_descriptor(path)) {
    return std::nullopt;
  }
  std::error_code error;
  if (const fs::file_status status = fs::status(path, error); fs::exists(status) && !fs::is_regular_file(status)) {
    return std::nullopt;
  }
  fs::path file = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? std::nullopt : std::optional(std::move(file));
}

// The file that is read; nothing where there is none, as where --model is a preset.
std::optional<fs::path> read_file(const std::string& path) {
  std::error_code error;
  // A model may be the directory of a checkpoint.
  fs::path file = fs::is_directory(path, error) ? fs::path(path) / "config.json" : fs::path(path);
  if (!fs::is_regular_file(file, error)) {
    return std::nullopt;
  }
  file = fs::canonical(file, error);
  return error ? std::nullopt : std::optional(std::move(file));
}

}  // namespace

Expected<void> check_distinct(const FileArguments& files) {
  for (std::size_t i = 0; i < files.written.size(); ++i) {
    const FileArgument& result = files.written[i];
    const std::optional<fs::path> target = written_file(result.path);
    if (!target.has_value()) {
      continue;
    }
    for (const FileArgument& source : files.read) {
      if (read_file(source.path) == target) {
        return make_error(ErrorCode::invalid_argument, "{} would replace {}, which {} reads: want another file",
                          result.option, result.path, source.option);
      }
    }
    for (std::size_t other = 0; other < i; ++other) {
      if (written_file(files.written[other].path) == target) {
        return make_error(ErrorCode::invalid_argument, "{} and {} would both write {}: want a file for each",
                          files.written[other].option, result.option, result.path);
      }
    }
  }
  return {};
}

Expected<void> check_directories(std::string_view list) {
  for (const std::string& directory : split_path_list(list)) {
    std::error_code error;
    const fs::file_status status = fs::status(directory, error);
    // Where it cannot be told, as when the disk fails, reading the tables says so.
    if (fs::status_known(status) && !fs::is_directory(status)) {
      return make_error(ErrorCode::invalid_argument, "wanted directories, got \"{}\": {}", directory,
                        fs::exists(status) ? "it is none" : error.message());
    }
  }
  return {};
}

}  // namespace octile::cli
