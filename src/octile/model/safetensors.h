// SPDX-License-Identifier: Apache-2.0
// One safetensors file: 8 bytes of header length, a JSON header of names, types, shapes and places, then the tensors' bytes,
// all little-endian. The header is checked in full before anything of it is handed out, so that every tensor lies inside of
// the file, apart from the others, and is as long as its shape says.
#pragma once

#include "octile/core/regular_file.h"

#include <octile/error.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octile {

// Element types by the format's names. E4M3 is OCP's (FN), which the format calls F8_E4M3.
enum class StoredType {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};

// "F8_E4M3", ...: as headers spell it.
const char* to_string(StoredType type) noexcept;
// Bits of one element.
int bits_of(StoredType type) noexcept;

struct StoredTensor {
  std::string name;
  StoredType type = StoredType::u8;
  std::vector<std::int64_t> shape;  // Empty: a scalar.
  std::int64_t begin = 0;           // First byte, counted from the end of the header.
  std::int64_t bytes = 0;
};

// "F8_E4M3 [4096, 1]", for messages.
std::string describe(const StoredTensor& tensor);

// Move-only. Several threads may read at once.
class SafetensorsFile {
 public:
  // Longest header that is read, as in the format's own library.
  static constexpr std::int64_t kMaxHeaderBytes = 100'000'000;

  // Reads and checks the header, and no tensor. Errors: io where the file cannot be read, corrupt where its content breaks
  // the format; they name the file, the tensor, what was wanted and what came.
  static Expected<SafetensorsFile> open(const std::string& path);

  const std::string& path() const noexcept { return file_.path(); }
  // In the order of their bytes.
  std::span<const StoredTensor> tensors() const noexcept { return tensors_; }
  // nullptr where there is none of this name.
  const StoredTensor* find(std::string_view name) const;

  // Copies bytes of `tensor`, from its byte `offset` on. A file that has become shorter is an error (corrupt), never a
  // crash. Precondition: 0 <= offset and offset + into.size() <= tensor.bytes.
  Expected<void> read(const StoredTensor& tensor, std::int64_t offset, std::span<std::byte> into) const;

  // The file mapped read-only, for use without a copy: the address of the tensors' first byte, kept by the pointer beyond
  // the life of this object. Whoever touches it after another process has cut the file is killed by SIGBUS;
  // check_unchanged() narrows that to a cut between the check and the touch. read() is free of it.
  Expected<std::shared_ptr<const std::byte>> map() const;
  // Whether the file is as long as it was, and was not written to since it was opened. Errors: io.
  Expected<void> check_unchanged() const { return file_.check_unchanged(); }

 private:
  explicit SafetensorsFile(RegularFile file) noexcept;
  Expected<void> read_header();

  RegularFile file_;
  std::int64_t data_begin_ = 0;        // First byte behind the header.
  std::vector<StoredTensor> tensors_;  // By place.
  std::vector<std::size_t> by_name_;   // Indices into tensors_, by name.
};

}  // namespace octile
