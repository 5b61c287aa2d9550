// SPDX-License-Identifier: Apache-2.0
// Sizes and ages of cache entries by their files: the time of a file is that of its last use.
#include "octile/kernels/cuda/cubin_cache_limit.h"

#include "octile/core/env.h"
#include "octile/core/format.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace octile::cuda {
namespace fs = std::filesystem;
namespace {

// A use within so many seconds of the last is not written down: a process that starts reads tens of entries.
constexpr std::int64_t kUseResolutionS = 60;
// No write takes this long.
constexpr std::int64_t kAbandonedS = 3600;

struct CacheFile {
  std::string path;
  std::int64_t bytes = 0;
  std::int64_t used_s = 0;
  std::int64_t used_ns = 0;
};

struct CacheFiles {
  std::vector<CacheFile> entries;
  std::vector<CacheFile> temporary;
};

bool is_entry(std::string_view name) {
  constexpr std::string_view kEnding = ".cubin";
  constexpr std::size_t kDigits = 32;
  return name.size() == kDigits + kEnding.size() && name.ends_with(kEnding) &&
         name.find_first_not_of("0123456789abcdef") == kDigits;
}

bool is_temporary(std::string_view name) {
  return name.starts_with('.') && name.ends_with(".tmp") && name.find(".cubin.") != std::string_view::npos;
}

Error cannot(std::string_view step, const std::string& path, int reason) {
  return make_error(ErrorCode::io, "cannot {} {}: {}", step, path, std::generic_category().message(reason));
}

Expected<CacheFiles> files_of(const std::string& directory) {
  CacheFiles files;
  std::error_code failed;
  for (fs::directory_iterator file(directory, failed), end; !failed && file != end; file.increment(failed)) {
    const std::string name = file->path().filename().string();
    const bool entry = is_entry(name);
    struct stat status{};
    // Links are not followed, and what another process has just removed is not there.
    if ((!entry && !is_temporary(name)) || ::lstat(file->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
      continue;
    }
    (entry ? files.entries : files.temporary)
        .push_back({file->path().string(), status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec});
  }
  if (failed && failed != std::errc::no_such_file_or_directory) {
    return cannot("read the directory", directory, failed.value());
  }
  return files;
}

}  // namespace

Expected<std::int64_t> cache_limit_bytes() {
  const auto megabytes = env::get_int("OCTILE_CACHE_LIMIT_MB");
  return megabytes ? Expected<std::int64_t>(*megabytes * 1'000'000) : megabytes;
}

Expected<CacheUse> cache_use(const std::string& directory) {
  const auto files = files_of(directory);
  if (!files) {
    return files.error();
  }
  CacheUse use;
  for (const CacheFile& file : files->entries) {
    ++use.entries;
    use.bytes += file.bytes;
    use.oldest_use_s = use.entries == 1 ? file.used_s : std::min(use.oldest_use_s, file.used_s);
  }
  return use;
}

void note_use(const std::string& path) noexcept {
  struct stat status{};
  const std::int64_t now = std::time(nullptr);
  // Also where the clock has jumped back: else the entry would stay the newest.
  if (::stat(path.c_str(), &status) == 0 &&
      (status.st_mtim.tv_sec < now - kUseResolutionS || status.st_mtim.tv_sec > now + kUseResolutionS)) {
    static_cast<void>(::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) == 0);
  }
}

Expected<CacheRemoval> trim_cache(const std::string& directory, std::int64_t limit_bytes) {
  auto files = files_of(directory);
  if (!files) {
    return files.error();
  }
  std::ranges::sort(files->entries, [](const CacheFile& a, const CacheFile& b) {
    return a.used_s != b.used_s ? a.used_s < b.used_s : a.used_ns < b.used_ns;
  });
  std::int64_t left = 0;
  for (const CacheFile& file : files->entries) {
    left += file.bytes;
  }
  CacheRemoval removed;
  for (const CacheFile& file : files->entries) {
    if (left <= limit_bytes) {
      break;
    }
    left -= file.bytes;
    if (::unlink(file.path.c_str()) == 0) {
      ++removed.entries;
      removed.bytes += file.bytes;
    } else if (errno != ENOENT) {  // Another process may have been faster.
      return cannot("remove", file.path, errno);
    }
  }
  const std::int64_t now = std::time(nullptr);
  for (const CacheFile& file : files->temporary) {
    if (file.used_s < now - kAbandonedS && ::unlink(file.path.c_str()) != 0 && errno != ENOENT) {
      return cannot("remove", file.path, errno);
    }
  }
  return removed;
}

}  // namespace octile::cuda
