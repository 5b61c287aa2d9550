// SPDX-License-Identifier: Apache-2.0
// Errors and results of the public interface (C++17).
#pragma once

#include <octile/export.h>

#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace octile {

// What kind of failure an Error reports; the message says the rest.
enum class ErrorCode {
  invalid_argument,  // The caller passed something that can never work.
  unavailable,       // The device, instruction set or library for it is missing here.
  not_prepared,      // run() needs a prepare() that covers this M.
  io,                // A file could not be opened, read, written or replaced.
  corrupt,           // A file was read and its content is not what it must be.
  failed,            // The work was started and did not succeed.
  out_of_memory,
};

// "invalid_argument", ...: the name as the C interface and logs print it.
OCTILE_API const char* to_string(ErrorCode code) noexcept;

// A failure. `message` prints what was wanted and what came.
struct Error {
  ErrorCode code = ErrorCode::failed;
  std::string message;
};

// A value or an Error, in the manner of std::expected, which C++17 lacks.
template <class T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  // Precondition of the four accessors: has_value().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Precondition: !has_value().
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Expected<void> {
 public:
  Expected() noexcept = default;
  Expected(Error error) : error_(std::move(error)), failed_(true) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const noexcept { return !failed_; }
  explicit operator bool() const noexcept { return has_value(); }
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  Error error_;
  bool failed_ = false;
};

}  // namespace octile
