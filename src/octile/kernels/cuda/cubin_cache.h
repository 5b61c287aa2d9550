// SPDX-License-Identifier: Apache-2.0
// Machine code on disk: one file an entry, checked when read, replaced atomically, shared by any number of processes.
#pragma once

#include <octile/error.hpp>

#include "octile/core/atomic_file.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace octile::cuda {

// Everything that the machine code depends on, as text, and its XXH3-128 as 32 hexadecimal digits: the entry's file name.
// The text is stored in the entry and compared, so two keys with one digest cannot be confused.
struct CubinKey {
  std::string text;
  std::string digest;
};
CubinKey make_cubin_key(std::string text);
// XXH3-128 of `bytes`, 32 hexadecimal digits.
std::string digest_of(std::string_view bytes);

struct CubinEntry {
  std::string cubin;
  std::string log;
};

// The bytes of an entry's file, and back. Layout: "OCTCUBIN", then key, log and cubin, each behind its length (64 bits,
// little endian), then XXH3-128 of all before. Errors (corrupt) of decode say what does not fit.
std::string encode_entry(const CubinKey& key, const CubinEntry& entry);
Expected<CubinEntry> decode_entry(std::string_view file, const CubinKey& key);

// Where entries are kept: OCTILE_CACHE_DIR, $XDG_CACHE_HOME/octile or ~/.cache/octile, and "cubin" below it. "" where none
// of these is set: then nothing is cached.
std::string cubin_cache_directory();

// "<directory>/<digest>.cubin".
std::string entry_path(const std::string& directory, const CubinKey& key);
// nullopt where there is none. Errors: corrupt for an entry that is not what was written, io where it cannot be read.
Expected<std::optional<CubinEntry>> read_entry(const std::string& directory, const CubinKey& key);
// Replaces atomically; makes the directory. Both are the user's alone by default: whoever may write machine code there may
// run it as the user.
Expected<void> write_entry(const std::string& directory, const CubinKey& key, const CubinEntry& entry,
                           NewFileAccess access = NewFileAccess::user_only);

}  // namespace octile::cuda
