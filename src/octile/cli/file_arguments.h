// SPDX-License-Identifier: Apache-2.0
// The files that a command line names, before anything is read or written: results must not replace what the same command
// reads, nor each other.
#pragma once

#include <octile/error.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace octile::cli {

struct FileArgument {
  std::string option;  // "--csv", or the name of a positional argument.
  std::string path;
};

struct FileArguments {
  std::vector<FileArgument> read;
  std::vector<FileArgument> written;  // "-" is standard output.
};

// An error where a file would be written twice, or is read as well. Devices and pipes may be named as often as one likes.
Expected<void> check_distinct(const FileArguments& files);

// "a:b", as --tables takes it: an error unless each part is a directory.
Expected<void> check_directories(std::string_view list);

}  // namespace octile::cli
