// SPDX-License-Identifier: Apache-2.0
// A regular file open for reading: what is no regular file is refused without waiting, and reads say what is missing.
#pragma once

#include <octile/error.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace octile {

// What errno means, as text.
std::string system_reason(int error);

// Move-only; the descriptor is closed with the object. Reads may be made by several threads at once.
class RegularFile {
 public:
  // Errors (io): the path and the system's reason, or what the path is instead of a regular file.
  static Expected<RegularFile> open(const std::string& path);
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) noexcept;
  ~RegularFile();

  const std::string& path() const noexcept { return path_; }
  int fd() const noexcept { return fd_; }
  std::int64_t size() const noexcept { return size_; }  // When it was opened. Files of /proc state 0.

  // Reads up to bytes.size() bytes from `offset` on; fewer only where the file ends. Errors: io.
  Expected<std::int64_t> read_some(std::int64_t offset, std::span<std::byte> bytes) const;
  // Reads bytes.size() bytes; a file that ends before is an error (corrupt).
  Expected<void> read(std::int64_t offset, std::span<std::byte> bytes) const;
  // Whether size and time of modification are still those of open(). Errors (io): what has changed.
  Expected<void> check_unchanged() const;

 private:
  RegularFile(std::string path, int fd) noexcept;

  std::string path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
  std::int64_t modified_s_ = 0;
  std::int64_t modified_ns_ = 0;
};

}  // namespace octile
