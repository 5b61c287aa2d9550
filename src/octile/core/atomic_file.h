// SPDX-License-Identifier: Apache-2.0
// Replacing a file so that a reader, or a kill at any moment, finds the old content or the new, never half of one; and a
// lock between processes.
#pragma once

#include <octile/error.hpp>

#include <chrono>
#include <string>
#include <string_view>

namespace octile {

// Writes a temporary file in the same directory, fsyncs it, renames it over `path` and fsyncs the directory. Makes missing
// directories. An existing file keeps its permissions; a symbolic link stays, and what it points at is replaced. Errors (io)
// name the path, the step and the system's reason; the old content is then still there.
// `access` is that of a new file: what the process' umask leaves of rw-rw-rw-, or nobody's but the user's, which then also
// holds for the file's directory where it is made.
enum class NewFileAccess { by_umask, user_only };
Expected<void> write_file_atomically(const std::string& path, std::string_view content,
                                     NewFileAccess access = NewFileAccess::by_umask);
// Whether write_file_atomically() could write there now, found out by making the temporary file and removing it: for those
// who would rather know before long work than behind it. Makes missing directories. The same errors.
Expected<void> check_writable(const std::string& path);

// An exclusive lock on a lock file, held by this object and released with it, also when the process dies. Excludes other
// processes and other threads alike. The lock file stays, empty: removing it would let two holders in.
class FileLock {
 public:
  // Makes missing directories and the file. Waits up to `timeout`; the Error (failed) then names the file.
  static Expected<FileLock> acquire(const std::string& path, std::chrono::milliseconds timeout = std::chrono::seconds(60));
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(int fd) noexcept : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace octile
