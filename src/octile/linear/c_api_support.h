// SPDX-License-Identifier: Apache-2.0
// What the functions of the C interface share: statuses, the thread's last message, and readers of the caller's structures.
#pragma once

#include "octile/core/format.h"

#include <octile/octile.h>
#include <octile/octile.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <utility>

namespace octile::c_api {

octile_status status_of(ErrorCode code) noexcept;
// Keeps the message for octile_last_error() of this thread.
octile_status fail(Error&& error) noexcept;
octile_status out_of_memory() noexcept;
octile_status unknown_failure() noexcept;
const char* last_message() noexcept;

// Runs `body`, which returns Expected<void>. Nothing that it throws leaves the library.
template <class Body>
octile_status guarded(const Body& body) noexcept {
  try {
    Expected<void> result = body();
    return result ? OCTILE_OK : fail(std::move(result).error());
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& exception) {
    try {
      return fail(Error{ErrorCode::failed, exception.what()});
    } catch (...) {
      return out_of_memory();
    }
  } catch (...) {
    return unknown_failure();
  }
}

Error null_argument(const char* name);

// A copy of a caller's structure. `first_size` is the structure's size in its first version: a caller's older and smaller
// structure leaves the later fields zero, their default.
template <class T>
Expected<T> copied(const char* name, const T* from, std::size_t first_size = sizeof(T)) {
  if (from == nullptr) {
    return null_argument(name);
  }
  std::size_t size = 0;
  std::memcpy(&size, from, sizeof(size));
  if (size < first_size || size > sizeof(T)) {
    return make_error(ErrorCode::invalid_argument, "{}.struct_size: want {} to {} bytes, got {}", name, first_size,
                      sizeof(T), size);
  }
  T copy{};
  std::memcpy(&copy, from, size);
  return copy;
}

// `value` as an element type; 0 as `fallback` where there is one.
Expected<DType> dtype_of(const char* field, std::int32_t value, std::optional<DType> fallback);
int dtype_to_c(DType dtype) noexcept;

// The enumerator of `Enum` with that value; the C enumerators have the values of the C++ ones, 0 to `last`.
template <class Enum>
Expected<Enum> enum_of(const char* field, std::int32_t value, Enum last) {
  if (value < 0 || value > static_cast<std::int32_t>(last)) {
    return make_error(ErrorCode::invalid_argument, "{}: want 0 to {}, got {}", field, static_cast<std::int32_t>(last),
                      value);
  }
  return static_cast<Enum>(value);
}

Expected<Pdl> pdl_of(const char* field, std::int32_t value);
Expected<bool> bool_of(const char* field, std::int32_t value);

// Reads the fields of one structure and keeps the first error.
class Reader {
 public:
  template <class T>
  void take(T& target, Expected<T> value) {
    if (value) {
      target = *std::move(value);
    } else if (!error_) {
      error_ = std::move(value).error();
    }
  }
  // `result`, or the first error.
  template <class T>
  Expected<T> finish(T result) {
    if (error_) {
      return *std::move(error_);
    }
    return result;
  }

 private:
  std::optional<Error> error_;
};

Expected<QuantizeOptions> quantize_options_of(const octile_quantize_options* from);  // nullptr: the defaults.

template <class View, class CMatrix>
Expected<View> to_view(const char* name, const CMatrix* from) {
  Reader reader;
  CMatrix c{};
  reader.take(c, copied(name, from));
  View view;
  view.data = c.data;
  view.rows = c.rows;
  view.cols = c.cols;
  view.row_stride = c.row_stride == 0 ? c.cols : c.row_stride;
  reader.take(view.dtype, dtype_of("dtype of a matrix", c.dtype, std::nullopt));
  return reader.finish(view);
}

}  // namespace octile::c_api
