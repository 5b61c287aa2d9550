// SPDX-License-Identifier: Apache-2.0
// Atomic replacement of files, and locks between processes.
#include "octile/core/atomic_file.h"

#include "octile/core/format.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

namespace octile {

namespace {

namespace fs = std::filesystem;

Error io_error(std::string_view step, const fs::path& path, int error) {
  return make_error(ErrorCode::io, "cannot {} {}: {}", step, path.string(), std::generic_category().message(error));
}

Expected<void> make_parent(const fs::path& path, NewFileAccess access = NewFileAccess::by_umask) {
  const fs::path parent = path.parent_path();
  if (parent.empty()) {
    return {};
  }
  std::error_code error;
  if (access == NewFileAccess::user_only) {
    fs::create_directories(parent.parent_path(), error);
    // Where it is there already, it stays as it is; what else is wrong shows below.
    static_cast<void>(::mkdir(parent.c_str(), S_IRWXU) == 0);
    error.clear();
  }
  fs::create_directories(parent, error);
  if (error) {
    return io_error("make the directory", parent, error.value());
  }
  return {};
}

// Where `path` leads through symbolic links, also where nothing is there yet: a link stays what it is.
Expected<fs::path> behind_links(const fs::path& path) {
  // As many as Linux itself follows.
  constexpr int kMostLinks = 40;
  std::error_code error;
  fs::path target = fs::canonical(path, error);
  if (!error) {
    return target;
  }
  target = path;
  for (int followed = 0; fs::is_symlink(fs::symlink_status(target, error)); ++followed) {
    const fs::path next = fs::read_symlink(target, error);
    if (error || followed == kMostLinks) {
      return io_error("follow", path, error ? error.value() : ELOOP);
    }
    target = target.parent_path() / next;
  }
  return target;
}

// A file being written; removed again unless it was renamed over its target.
class TemporaryFile {
 public:
  TemporaryFile(fs::path path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~TemporaryFile() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
    if (!path_.empty()) {
      ::unlink(path_.c_str());
    }
  }
  TemporaryFile(TemporaryFile&& other) noexcept
      : path_(std::exchange(other.path_, fs::path())), fd_(std::exchange(other.fd_, -1)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  TemporaryFile& operator=(TemporaryFile&&) = delete;

  Expected<void> write(std::string_view content) const {
    while (!content.empty()) {
      const ssize_t wrote = ::write(fd_, content.data(), content.size());
      if (wrote < 0 && errno != EINTR) {
        return io_error("write", path_, errno);
      }
      content.remove_prefix(static_cast<std::size_t>(wrote < 0 ? 0 : wrote));
    }
    if (::fsync(fd_) != 0) {
      return io_error("flush", path_, errno);
    }
    return {};
  }

  Expected<void> rename_to(const fs::path& target) {
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) {
      return io_error("close", path_, errno);
    }
    if (::rename(path_.c_str(), target.c_str()) != 0) {
      return io_error("replace", target, errno);
    }
    path_.clear();
    return {};
  }

 private:
  fs::path path_;
  int fd_;
};

Expected<void> sync_directory(const fs::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return io_error("open the directory", directory, errno);
  }
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some network file systems cannot flush a directory and say EINVAL; the rename is then as durable as they make it.
  if (result != 0 && error != EINVAL) {
    return io_error("flush the directory", directory, error);
  }
  return {};
}

// The temporary file beside its target, with the target's permissions.
struct Replacement {
  fs::path target;
  TemporaryFile temporary;
};

Expected<Replacement> begin_replacement(const std::string& path, NewFileAccess access) {
  Expected<fs::path> resolved = behind_links(path);
  if (!resolved) {
    return resolved.error();
  }
  fs::path target = *std::move(resolved);
  if (Expected<void> made = make_parent(target, access); !made) {
    return made.error();
  }
  struct stat old{};
  const bool exists = ::stat(target.c_str(), &old) == 0;
  if (exists && !S_ISREG(old.st_mode)) {
    return make_error(ErrorCode::io, "cannot replace {}: it is no regular file", target.string());
  }
  // Hidden, and with an ending that no reader of the directory looks for.
  static std::atomic<unsigned> counter{0};
  const std::string name = format(".{}.{}.{}.tmp", target.filename().string(), ::getpid(), counter.fetch_add(1));
  const fs::path temporary_path = target.parent_path() / name;
  const mode_t mode = access == NewFileAccess::user_only ? S_IRUSR | S_IWUSR : 0666;
  const int fd = ::open(temporary_path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) {
    return io_error("make", temporary_path, errno);
  }
  Replacement replacement{std::move(target), TemporaryFile(temporary_path, fd)};
  if (exists && ::fchmod(fd, old.st_mode & 07777) != 0) {
    return io_error("set the permissions of", temporary_path, errno);
  }
  return replacement;
}

}  // namespace

Expected<void> write_file_atomically(const std::string& path, std::string_view content, NewFileAccess access) {
  Expected<Replacement> replacement = begin_replacement(path, access);
  if (!replacement) {
    return replacement.error();
  }
  const fs::path& target = replacement->target;
  if (Expected<void> wrote = replacement->temporary.write(content); !wrote) {
    return wrote;
  }
  if (Expected<void> renamed = replacement->temporary.rename_to(target); !renamed) {
    return renamed;
  }
  return sync_directory(target.has_parent_path() ? target.parent_path() : fs::path("."));
}

Expected<void> check_writable(const std::string& path) {
  const Expected<Replacement> replacement = begin_replacement(path, NewFileAccess::by_umask);
  return replacement ? Expected<void>() : Expected<void>(replacement.error());
}

Expected<FileLock> FileLock::acquire(const std::string& path, std::chrono::milliseconds timeout) {
  if (Expected<void> made = make_parent(path); !made) {
    return made.error();
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) {
    return io_error("open the lock file", path, errno);
  }
  FileLock lock(fd);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return io_error("lock", path, errno);
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return make_error(ErrorCode::failed, "cannot lock {} within {} ms: another process holds it", path, timeout.count());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileLock::~FileLock() {
  if (fd_ >= 0) {
    ::close(fd_);  // Releases the lock.
  }
}

}  // namespace octile
