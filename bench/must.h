// SPDX-License-Identifier: Apache-2.0
// How the measuring programs end where something fails: with its message and status 1, whoever says it.
#pragma once

#include <octile/error.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

namespace octile {

[[noreturn]] inline void fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}
template <class T>
T must(Expected<T> result) {
  if (!result) {
    fail(result.error().message);
  }
  return *std::move(result);
}
inline void must(const Expected<void>& result) {
  if (!result) {
    fail(result.error().message);
  }
}
// `run`'s status, or 1 with the standard library's words: a full disk, no memory.
template <class Run>
int status_of(const Run& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace octile
