// SPDX-License-Identifier: Apache-2.0
// open, fstat and pread with their failures told.
#include "octile/core/regular_file.h"

#include "octile/core/format.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace octile {

std::string system_reason(int error) { return std::generic_category().message(error); }

RegularFile::RegularFile(std::string path, int fd) noexcept : path_(std::move(path)), fd_(fd) {}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      modified_s_(other.modified_s_),
      modified_ns_(other.modified_ns_) {}

RegularFile& RegularFile::operator=(RegularFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(modified_s_, other.modified_s_);
  std::swap(modified_ns_, other.modified_ns_);
  return *this;
}

RegularFile::~RegularFile() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

Expected<RegularFile> RegularFile::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO that nobody writes to must not hang.
  RegularFile file(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd_ < 0) {
    return make_error(ErrorCode::io, "cannot open {}: {}", path, system_reason(errno));
  }
  struct stat status{};
  if (::fstat(file.fd_, &status) != 0) {
    return make_error(ErrorCode::io, "cannot examine {}: {}", path, system_reason(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return make_error(ErrorCode::io, "cannot read {}: it is {}, not a regular file", path,
                      S_ISDIR(status.st_mode) ? "a directory" : "a device, pipe or socket");
  }
  file.size_ = status.st_size;
  file.modified_s_ = status.st_mtim.tv_sec;
  file.modified_ns_ = status.st_mtim.tv_nsec;
  return file;
}

Expected<std::int64_t> RegularFile::read_some(std::int64_t offset, std::span<std::byte> bytes) const {
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got =
        ::pread(fd_, bytes.data() + filled, bytes.size() - filled, offset + static_cast<std::int64_t>(filled));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return make_error(ErrorCode::io, "cannot read {}: {}", path_, system_reason(errno));
    }
    if (got == 0) {
      break;
    }
    filled += static_cast<std::size_t>(got);
  }
  return static_cast<std::int64_t>(filled);
}

Expected<void> RegularFile::read(std::int64_t offset, std::span<std::byte> bytes) const {
  const auto got = read_some(offset, bytes);
  if (!got) {
    return got.error();
  }
  if (std::cmp_less(*got, bytes.size())) {
    return make_error(ErrorCode::corrupt,
                      "{}: wanted bytes {} to {}, but the file ends at byte {}; it had {} when it was opened", path_, offset,
                      offset + static_cast<std::int64_t>(bytes.size()), offset + *got, size_);
  }
  return {};
}

Expected<void> RegularFile::check_unchanged() const {
  struct stat status{};
  if (::fstat(fd_, &status) != 0) {
    return make_error(ErrorCode::io, "cannot examine {}: {}", path_, system_reason(errno));
  }
  if (status.st_size != size_) {
    return make_error(ErrorCode::io, "{} has changed since it was opened: it had {} bytes, now it has {}", path_, size_,
                      status.st_size);
  }
  if (status.st_mtim.tv_sec != modified_s_ || status.st_mtim.tv_nsec != modified_ns_) {
    return make_error(ErrorCode::io, "{} has changed since it was opened: it was written to", path_);
  }
  return {};
}

}  // namespace octile
