// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file, checked; its tensors read or mapped.
#include "octile/model/safetensors.h"

#include "octile/core/format.h"
#include "octile/core/json_file.h"

#include <nlohmann/json.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <limits>
#include <numeric>
#include <utility>

namespace octile {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian and are read in place");

struct TypeName {
  const char* name;
  StoredType type;
  int bits;
};
constexpr TypeName kTypes[] = {
    {"BOOL", StoredType::boolean, 8},
    {"F4", StoredType::f4, 4},
    {"F6_E2M3", StoredType::f6_e2m3, 6},
    {"F6_E3M2", StoredType::f6_e3m2, 6},
    {"U8", StoredType::u8, 8},
    {"I8", StoredType::i8, 8},
    {"F8_E5M2", StoredType::f8_e5m2, 8},
    {"F8_E4M3", StoredType::f8_e4m3, 8},
    {"F8_E8M0", StoredType::f8_e8m0, 8},
    {"F8_E4M3FNUZ", StoredType::f8_e4m3fnuz, 8},
    {"F8_E5M2FNUZ", StoredType::f8_e5m2fnuz, 8},
    {"I16", StoredType::i16, 16},
    {"U16", StoredType::u16, 16},
    {"F16", StoredType::f16, 16},
    {"BF16", StoredType::bf16, 16},
    {"I32", StoredType::i32, 32},
    {"U32", StoredType::u32, 32},
    {"F32", StoredType::f32, 32},
    {"C64", StoredType::c64, 64},
    {"F64", StoredType::f64, 64},
    {"I64", StoredType::i64, 64},
    {"U64", StoredType::u64, 64},
};

const TypeName& type_name(StoredType type) noexcept {
  return *std::find_if(std::begin(kTypes), std::end(kTypes), [type](const TypeName& known) { return known.type == type; });
}

std::string known_types() {
  std::string names;
  for (const TypeName& type : kTypes) {
    names += names.empty() ? "" : ", ";
    names += type.name;
  }
  return names;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) {
    text += text.size() == 1 ? "" : ", ";
    text += std::to_string(size);
  }
  return text + "]";
}

// Reads one tensor's entry; errors say what is wrong with it and leave its name to the caller.
class EntryReader {
 public:
  EntryReader(const Json& entry, std::int64_t data_bytes) : entry_(entry), data_bytes_(data_bytes) {}

  Expected<void> read(StoredTensor& tensor) const {
    if (!entry_.is_object()) {
      return make_error(ErrorCode::corrupt, "wanted an object with dtype, shape and data_offsets, got {}",
                        describe_json(entry_));
    }
    for (const auto& [key, value] : entry_.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        return make_error(ErrorCode::corrupt, "wanted the keys dtype, shape and data_offsets, got {} as well",
                          quote_for_message(key));
      }
    }
    if (auto ok = read_type(tensor); !ok) {
      return ok;
    }
    if (auto ok = read_shape(tensor); !ok) {
      return ok;
    }
    return read_place(tensor);
  }

 private:
  Expected<const Json*> member(const char* key) const {
    const auto found = entry_.find(key);
    if (found == entry_.end()) {
      return make_error(ErrorCode::corrupt, "{} is missing", key);
    }
    return &*found;
  }

  Expected<void> read_type(StoredTensor& tensor) const {
    const auto value = member("dtype");
    if (!value) {
      return value.error();
    }
    const Json& dtype = **value;
    const auto* known = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeName& type) {
      return dtype.is_string() && dtype.get_ref<const std::string&>() == type.name;
    });
    if (known == std::end(kTypes)) {
      return make_error(ErrorCode::corrupt, "dtype: wanted one of {}, got {}", known_types(), describe_json(dtype));
    }
    tensor.type = known->type;
    return {};
  }

  // An array of integers >= 0.
  Expected<std::vector<std::int64_t>> read_integers(const char* key) const {
    const auto value = member(key);
    if (!value) {
      return value.error();
    }
    if (!(*value)->is_array()) {
      return make_error(ErrorCode::corrupt, "{}: wanted an array of integers, got {}", key, describe_json(**value));
    }
    std::vector<std::int64_t> integers;
    for (const Json& item : **value) {
      if (!item.is_number_unsigned() ||
          item.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return make_error(ErrorCode::corrupt, "{}: wanted integers from 0 to {}, got {}", key,
                          std::numeric_limits<std::int64_t>::max(), describe_json(item));
      }
      integers.push_back(item.get<std::int64_t>());
    }
    return integers;
  }

  Expected<void> read_shape(StoredTensor& tensor) const {
    auto shape = read_integers("shape");
    if (!shape) {
      return std::move(shape).error();
    }
    tensor.shape = *std::move(shape);
    std::int64_t bits = bits_of(tensor.type);
    for (const std::int64_t size : tensor.shape) {
      if (__builtin_mul_overflow(bits, size, &bits)) {
        return make_error(ErrorCode::corrupt, "the size of {} does not fit 64 bits", describe(tensor));
      }
    }
    if (bits % 8 != 0) {
      return make_error(ErrorCode::corrupt, "{}: wanted a whole number of bytes, got {} bits", describe(tensor), bits);
    }
    tensor.bytes = bits / 8;
    return {};
  }

  Expected<void> read_place(StoredTensor& tensor) const {
    const auto offsets = read_integers("data_offsets");
    if (!offsets) {
      return offsets.error();
    }
    if (offsets->size() != 2) {
      return make_error(ErrorCode::corrupt, "data_offsets: wanted [begin, end], got {} numbers", offsets->size());
    }
    const std::int64_t begin = offsets->front();
    const std::int64_t end = offsets->back();
    if (begin > end || end > data_bytes_) {
      return make_error(ErrorCode::corrupt,
                        "data_offsets: wanted begin <= end <= {}, the bytes behind the header, got [{}, {}]", data_bytes_,
                        begin, end);
    }
    if (end - begin != tensor.bytes) {
      return make_error(ErrorCode::corrupt, "{} takes {} bytes, but data_offsets [{}, {}] hold {}", describe(tensor),
                        tensor.bytes, begin, end, end - begin);
    }
    tensor.begin = begin;
    return {};
  }

  const Json& entry_;
  std::int64_t data_bytes_;
};

Expected<void> check_metadata(const Json& metadata) {
  if (!metadata.is_object()) {
    return make_error(ErrorCode::corrupt, "__metadata__: wanted an object of strings, got {}", describe_json(metadata));
  }
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) {
      return make_error(ErrorCode::corrupt, "__metadata__: {}: wanted a string, got {}", quote_for_message(key),
                        describe_json(value));
    }
  }
  return {};
}

// Tensors, sorted by place, must fill the bytes behind the header: each starts where the last one ended.
Expected<void> check_places(std::span<const StoredTensor> tensors, std::int64_t data_bytes) {
  std::int64_t end = 0;
  const StoredTensor* last = nullptr;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin < end) {
      return make_error(ErrorCode::corrupt, "tensors {} and {} overlap: one ends at byte {}, the other begins at {}",
                        quote_for_message(last->name), quote_for_message(tensor.name), end, tensor.begin);
    }
    if (tensor.begin > end) {
      return make_error(ErrorCode::corrupt, "no tensor holds the bytes from {} to {}, before {}", end, tensor.begin,
                        quote_for_message(tensor.name));
    }
    end = tensor.begin + tensor.bytes;
    last = &tensor;
  }
  if (end != data_bytes) {
    return make_error(ErrorCode::corrupt, "the tensors end at byte {}, but {} bytes stand behind the header", end,
                      data_bytes);
  }
  return {};
}

Expected<std::vector<StoredTensor>> read_entries(const Json& header, std::int64_t data_bytes) {
  if (!header.is_object()) {
    return make_error(ErrorCode::corrupt, "wanted a JSON object, got {}", describe_json(header));
  }
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (auto ok = check_metadata(entry); !ok) {
        return std::move(ok).error();
      }
      continue;
    }
    StoredTensor tensor;
    tensor.name = name;
    if (auto ok = EntryReader(entry, data_bytes).read(tensor); !ok) {
      return make_error(ErrorCode::corrupt, "tensor {}: {}", quote_for_message(name), ok.error().message);
    }
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    // An empty tensor stands before the one that begins at the same byte.
    return std::pair(a.begin, a.bytes) < std::pair(b.begin, b.bytes);
  });
  if (auto ok = check_places(tensors, data_bytes); !ok) {
    return std::move(ok).error();
  }
  return tensors;
}

// A mapping of a whole file, undone with the object.
class Mapping {
 public:
  Mapping(void* address, std::size_t bytes) noexcept : address_(address), bytes_(bytes) {}
  ~Mapping() { ::munmap(address_, bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  const std::byte* bytes() const noexcept { return static_cast<const std::byte*>(address_); }

 private:
  void* address_;
  std::size_t bytes_;
};

}  // namespace

const char* to_string(StoredType type) noexcept { return type_name(type).name; }
int bits_of(StoredType type) noexcept { return type_name(type).bits; }

std::string describe(const StoredTensor& tensor) {
  return format("{} {}", to_string(tensor.type), shape_text(tensor.shape));
}

SafetensorsFile::SafetensorsFile(RegularFile file) noexcept : file_(std::move(file)) {}

Expected<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  auto file = RegularFile::open(path);
  if (!file) {
    return std::move(file).error();
  }
  SafetensorsFile opened(*std::move(file));
  if (auto ok = opened.read_header(); !ok) {
    return std::move(ok).error();
  }
  return opened;
}

Expected<void> SafetensorsFile::read_header() {
  constexpr std::int64_t kLengthBytes = 8;
  std::array<std::byte, kLengthBytes> length_bytes{};
  if (file_.size() < kLengthBytes) {
    return make_error(ErrorCode::corrupt, "{}: wanted a safetensors file, 8 bytes of header length and more, got {} bytes",
                      path(), file_.size());
  }
  if (auto ok = file_.read(0, length_bytes); !ok) {
    return ok;
  }
  const auto length = std::bit_cast<std::uint64_t>(length_bytes);
  if (length > static_cast<std::uint64_t>(kMaxHeaderBytes)) {
    return make_error(ErrorCode::corrupt,
                      "{}: wanted a header of at most {} bytes, its length says {}: is this a safetensors file?", path(),
                      kMaxHeaderBytes, length);
  }
  const auto header_bytes = static_cast<std::int64_t>(length);
  if (header_bytes > file_.size() - kLengthBytes) {
    return make_error(ErrorCode::corrupt,
                      "{}: the header's length says {} bytes, but {} follow: the file is cut or no safetensors file", path(),
                      header_bytes, file_.size() - kLengthBytes);
  }
  std::string text(length, '\0');
  if (auto ok = file_.read(kLengthBytes, std::as_writable_bytes(std::span(text))); !ok) {
    return ok;
  }
  if (!text.starts_with('{')) {
    return make_error(ErrorCode::corrupt, "{}: header: wanted a JSON object that begins with '{{', got {}", path(),
                      text.empty() ? "nothing" : quote_for_message(text.substr(0, 1)));
  }
  // The header, a tensor's entry, its shape: nothing lies deeper.
  const auto header = parse_json(text, path() + ": header", {.max_bytes = kMaxHeaderBytes, .max_depth = 3});
  if (!header) {
    return header.error();
  }
  data_begin_ = kLengthBytes + header_bytes;
  auto tensors = read_entries(*header, file_.size() - data_begin_);
  if (!tensors) {
    return make_error(ErrorCode::corrupt, "{}: header: {}", path(), tensors.error().message);
  }
  tensors_ = *std::move(tensors);
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [this](std::size_t a, std::size_t b) { return tensors_[a].name < tensors_[b].name; });
  return {};
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [this](std::size_t index, std::string_view key) { return tensors_[index].name < key; });
  return found == by_name_.end() || tensors_[*found].name != name ? nullptr : &tensors_[*found];
}

Expected<void> SafetensorsFile::read(const StoredTensor& tensor, std::int64_t offset, std::span<std::byte> into) const {
  auto ok = file_.read(data_begin_ + tensor.begin + offset, into);
  if (!ok) {
    return Error{ok.error().code, format("tensor {}: {}", quote_for_message(tensor.name), ok.error().message)};
  }
  return {};
}

Expected<std::shared_ptr<const std::byte>> SafetensorsFile::map() const {
  const auto bytes = static_cast<std::size_t>(file_.size());
  void* const address = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file_.fd(), 0);
  if (address == MAP_FAILED) {
    return make_error(ErrorCode::io, "cannot map {}: {}; it can be read without", path(), system_reason(errno));
  }
  const auto mapping = std::make_shared<const Mapping>(address, bytes);
  return std::shared_ptr<const std::byte>(mapping, mapping->bytes() + data_begin_);
}

}  // namespace octile
