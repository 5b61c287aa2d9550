// SPDX-License-Identifier: Apache-2.0
// How large the cache of compiled kernels may grow: what was used least recently goes first. Any number of processes may
// read, write and trim one directory at once: a file that is removed while it is read is read to its end, and one that is
// gone is compiled anew.
#pragma once

#include <octile/error.hpp>

#include <cstdint>
#include <string>

namespace octile::cuda {

// What a cache directory holds.
struct CacheUse {
  std::int64_t entries = 0;
  std::int64_t bytes = 0;
  std::int64_t oldest_use_s = 0;  // Seconds since 1970 of the entry that would go first; 0 where there is none.
};

// What was taken away.
struct CacheRemoval {
  std::int64_t entries = 0;
  std::int64_t bytes = 0;
};

// OCTILE_CACHE_LIMIT_MB in bytes; 0: no limit. Error: the variable's.
Expected<std::int64_t> cache_limit_bytes();

// A directory that is not there holds nothing. Error (io): it cannot be read.
Expected<CacheUse> cache_use(const std::string& directory);

// Notes that the entry at `path` was used now, to the minute; nothing where that cannot be written.
void note_use(const std::string& path) noexcept;

// Removes the least recently used entries until at most `limit_bytes` are left, and what processes that were killed left
// behind an hour ago or earlier. Touches nothing but entries and their temporary files. Error (io): the directory cannot be
// read, or a file cannot be removed.
Expected<CacheRemoval> trim_cache(const std::string& directory, std::int64_t limit_bytes);

}  // namespace octile::cuda
