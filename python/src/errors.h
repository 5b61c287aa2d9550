// SPDX-License-Identifier: Apache-2.0
// How the library's errors become Python's: ValueError for what the caller passed, RuntimeError for the rest.
#pragma once

#include <octile/error.hpp>

#include <nanobind/nanobind.h>

#include <stdexcept>
#include <utility>

namespace octile::python {

// Needs no GIL: the Python exception is made of it once the call is back under the GIL.
[[noreturn]] inline void raise(const Error& error) {
  if (error.code == ErrorCode::invalid_argument) {
    throw nanobind::value_error(error.message.c_str());
  }
  throw std::runtime_error(error.message);
}

template <class T>
T value_or_raise(Expected<T> result) {
  if (!result) {
    raise(result.error());
  }
  if constexpr (!std::is_void_v<T>) {
    return *std::move(result);
  }
}

}  // namespace octile::python
