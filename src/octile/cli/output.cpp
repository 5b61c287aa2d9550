// SPDX-License-Identifier: Apache-2.0
// write(2) directly: stdio would hide errors until exit, or lose them.
#include "octile/cli/output.h"

#include "octile/cli/exit_status.h"
#include "octile/core/atomic_file.h"
#include "octile/core/format.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace octile::cli {
namespace {

Expected<void> write_all(int fd, std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return make_error(ErrorCode::io, "cannot write to {}: {}", name, std::strerror(errno));
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

// A device or a pipe, /dev/stdout among them: renaming a file over it would destroy it.
bool is_written_in_place(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

}  // namespace

std::optional<int> named_descriptor(std::string_view path) {
  if (path == "/dev/stdout") {
    return STDOUT_FILENO;
  }
  if (path == "/dev/stderr") {
    return STDERR_FILENO;
  }
  for (const std::string_view directory : {std::string_view("/dev/fd/"), std::string_view("/proc/self/fd/")}) {
    if (path.starts_with(directory)) {
      const std::string_view digits = path.substr(directory.size());
      int fd = 0;
      const auto [rest, status] = std::from_chars(digits.data(), digits.data() + digits.size(), fd);
      return status == std::errc() && rest == digits.data() + digits.size() && fd >= 0 ? std::optional(fd) : std::nullopt;
    }
  }
  return std::nullopt;
}

int fail(const Error& error) {
  const std::string line = format("octile: error: {}\n", error.message);
  // Nothing can be done where stderr does not take it either; the exit status still tells.
  std::fwrite(line.data(), 1, line.size(), stderr);
  return error.code == ErrorCode::invalid_argument ? kWrongUsage : kFailed;
}

void prepare_standard_streams() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
      // open() takes the lowest free number, which is `fd`. Standard output is opened for reading, so that writing to it
      // still fails; a closed standard error swallows messages.
      const int opened = ::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
      if (opened != fd && opened != -1) {
        ::close(opened);
      }
    }
  }
}

Expected<void> write_stdout(std::string_view text) { return write_all(STDOUT_FILENO, text, "standard output"); }

Expected<void> write_output_file(const std::string& path, std::string_view text) {
  if (const std::optional<int> descriptor = named_descriptor(path)) {
    return write_all(*descriptor, text, path);
  }
  if (!is_written_in_place(path)) {
    return write_file_atomically(path, text);
  }
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) {
    return make_error(ErrorCode::io, "cannot open {}: {}", path, std::strerror(errno));
  }
  auto written = write_all(fd, text, path);
  ::close(fd);
  return written;
}

Expected<void> check_output_files(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (path.empty() || path == "-") {
      continue;
    }
    if (const std::optional<int> descriptor = named_descriptor(path)) {
      const int mode = ::fcntl(*descriptor, F_GETFL);
      if (mode == -1 || (mode & O_ACCMODE) == O_RDONLY) {
        return make_error(ErrorCode::io, "cannot write to {}: {}", path, std::strerror(EBADF));
      }
    } else if (!is_written_in_place(path)) {
      if (auto writable = check_writable(path); !writable) {
        return writable;
      }
    } else if (::access(path.c_str(), W_OK) != 0) {
      return make_error(ErrorCode::io, "cannot write to {}: {}", path, std::strerror(errno));
    }
  }
  return {};
}

Expected<void> write_result(std::string_view text, const JsonTarget& target, const std::function<std::string()>& json) {
  if (!target.has_value()) {
    return write_stdout(text);
  }
  if (*target == "-") {
    return write_stdout(json());
  }
  // The file first: a reader of stdout that went away must not cost the result.
  if (auto written = write_output_file(*target, json()); !written) {
    return written;
  }
  return write_stdout(text);
}

}  // namespace octile::cli
