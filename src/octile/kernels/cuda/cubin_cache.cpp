// SPDX-License-Identifier: Apache-2.0
// Machine code on disk: one file an entry, checked when read, replaced atomically, shared by any number of processes.
#include "octile/kernels/cuda/cubin_cache.h"

#include "octile/core/env.h"
#include "octile/core/format.h"
#include "octile/core/json_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace octile::cuda {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMagic = "OCTCUBIN";
constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kChecksumBytes = 16;
// A kernel's cubin is 10 to 200 KB; a file beyond this is not ours.
constexpr std::int64_t kMaxEntryBytes = std::int64_t{256} << 20;

std::string checksum_of(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text.push_back(static_cast<char>(byte));
  }
  return text;
}

void append_block(std::string& file, std::string_view block) {
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    file.push_back(static_cast<char>(block.size() >> (8 * i) & 0xFF));
  }
  file += block;
}

// Takes one block off the front of `rest`.
std::optional<std::string_view> take_block(std::string_view& rest) {
  if (rest.size() < kLengthBytes) {
    return std::nullopt;
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::uint64_t{static_cast<unsigned char>(rest[i])} << (8 * i);
  }
  rest.remove_prefix(kLengthBytes);
  if (length > rest.size()) {
    return std::nullopt;
  }
  const std::string_view block = rest.substr(0, length);
  rest.remove_prefix(length);
  return block;
}

}  // namespace

std::string digest_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char byte : checksum_of(bytes)) {
    text.push_back(kDigits[static_cast<unsigned char>(byte) >> 4]);
    text.push_back(kDigits[static_cast<unsigned char>(byte) & 0xF]);
  }
  return text;
}

CubinKey make_cubin_key(std::string text) {
  std::string digest = digest_of(text);
  return {std::move(text), std::move(digest)};
}

std::string encode_entry(const CubinKey& key, const CubinEntry& entry) {
  std::string file(kMagic);
  append_block(file, key.text);
  append_block(file, entry.log);
  append_block(file, entry.cubin);
  file += checksum_of(file);
  return file;
}

Expected<CubinEntry> decode_entry(std::string_view file, const CubinKey& key) {
  if (file.size() < kMagic.size() + kChecksumBytes || !file.starts_with(kMagic)) {
    return make_error(ErrorCode::corrupt, "no cubin cache entry: {} bytes that do not begin with {}", file.size(), kMagic);
  }
  const std::string_view content = file.substr(0, file.size() - kChecksumBytes);
  if (checksum_of(content) != file.substr(content.size())) {
    return make_error(ErrorCode::corrupt, "the checksum of {} bytes does not match: truncated or altered", file.size());
  }
  std::string_view rest = content.substr(kMagic.size());
  const auto stored_key = take_block(rest);
  const auto log = take_block(rest);
  const auto cubin = take_block(rest);
  if (!stored_key || !log || !cubin || !rest.empty()) {
    return make_error(ErrorCode::corrupt, "the lengths stored do not add up to {} bytes", file.size());
  }
  if (*stored_key != key.text) {
    return make_error(ErrorCode::corrupt, "the entry was compiled from something else than its name says");
  }
  if (cubin->empty()) {
    return make_error(ErrorCode::corrupt, "the entry holds no machine code");
  }
  return CubinEntry{std::string(*cubin), std::string(*log)};
}

std::string cubin_cache_directory() {
  if (const auto own = env::get_text("OCTILE_CACHE_DIR"); own && !own->empty()) {
    return (fs::path(*own) / "cubin").string();
  }
  // Both must be absolute to count, as the XDG specification says.
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && fs::path(xdg).is_absolute()) {
    return (fs::path(xdg) / "octile" / "cubin").string();
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && fs::path(home).is_absolute()) {
    return (fs::path(home) / ".cache" / "octile" / "cubin").string();
  }
  return {};
}

std::string entry_path(const std::string& directory, const CubinKey& key) {
  return (fs::path(directory) / (key.digest + ".cubin")).string();
}

Expected<std::optional<CubinEntry>> read_entry(const std::string& directory, const CubinKey& key) {
  const std::string path = entry_path(directory, key);
  std::error_code error;
  // Only "not there" is silence: a directory that cannot be searched is reported by the read below.
  if (fs::status(path, error).type() == fs::file_type::not_found) {
    return std::optional<CubinEntry>();
  }
  auto file = read_whole_file(path, kMaxEntryBytes);
  if (!file) {
    // Another process may have removed it meanwhile, to keep within the limit.
    return fs::status(path, error).type() == fs::file_type::not_found
               ? Expected<std::optional<CubinEntry>>(std::optional<CubinEntry>())
               : file.error();
  }
  auto entry = decode_entry(*file, key);
  if (!entry) {
    return make_error(entry.error().code, "{}: {}", path, entry.error().message);
  }
  return std::optional(std::move(*entry));
}

Expected<void> write_entry(const std::string& directory, const CubinKey& key, const CubinEntry& entry,
                           NewFileAccess access) {
  return write_file_atomically(entry_path(directory, key), encode_entry(key, entry), access);
}

}  // namespace octile::cuda
