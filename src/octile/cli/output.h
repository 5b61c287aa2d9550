// SPDX-License-Identifier: Apache-2.0
// Results on stdout and in files, with every failure to write noticed: a full disk or a closed pipe is exit status 1.
#pragma once

#include <octile/error.hpp>

#include "octile/cli/args.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octile::cli {

// Call first. Ignores SIGPIPE and SIGXFSZ, so that a closed pipe or a limit on files becomes an error message, and opens
// what is closed among descriptors 0 to 2, so that no file that is opened later becomes "stdout".
void prepare_standard_streams();

// Writes all of `text` to stdout.
Expected<void> write_stdout(std::string_view text);

// Of "/dev/stdout", "/dev/fd/3" and the like: what is behind it may be a file that is being appended to, and is not
// replaced.
std::optional<int> named_descriptor(std::string_view path);

// Replaces a regular file atomically; writes into a device, a pipe or a descriptor ("/dev/stdout") as it is.
Expected<void> write_output_file(const std::string& path, std::string_view text);

// Whether write_output_file() could write to each of `paths` now; for what must not fail behind hours of measuring. Empty
// paths and "-" are passed over.
Expected<void> check_output_files(const std::vector<std::string>& paths);

// The text to stdout, unless JSON goes there; the JSON to where it was asked for. `json` is made only if it was asked for.
Expected<void> write_result(std::string_view text, const JsonTarget& target, const std::function<std::string()>& json);

}  // namespace octile::cli
