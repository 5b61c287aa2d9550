// SPDX-License-Identifier: Apache-2.0
// The registry of environment variables: each is declared once in env.cpp, and `octile env` and docs/environment.md come
// from it.
#pragma once

#include <octile/error.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octile::env {

enum class Type { boolean, integer, text, choice, path_list };
const char* to_string(Type type) noexcept;

struct Variable {
  const char* name;
  Type type;
  const char* default_text;    // As a user would write it; "" for none.
  const char* section;         // "Dispatch", "Tables", "CPU", "Logging", ...
  const char* sentence;        // What it does, in one sentence.
  const char* fallback;        // Another variable honoured where this one is unset; "" for none.
  std::int64_t min_value = 0;  // For integers.
  std::int64_t max_value = 0;
  const char* words = "";  // For choices: the accepted words, '|' between them; any case.
};

std::span<const Variable> variables();

// The value in force and where it came from ("default", "environment", "environment (FALLBACK_NAME)", "override").
struct Value {
  std::string text;
  std::string source;
};

// Empty counts as unset. Errors (invalid_argument) name the variable, the value and the words accepted.
Expected<Value> value_of(std::string_view name);
Expected<bool> get_bool(std::string_view name);
Expected<std::int64_t> get_int(std::string_view name);
// Text, path lists and choices (a choice in lower case).
Expected<std::string> get_text(std::string_view name);
// Every variable parsed, and none misspelt: the first error, if any. The command calls it before it does anything.
Expected<void> check_all();

// Names in the environment that are no variable of Octile and nearly one: what they were to switch keeps its default.
struct Misspelt {
  std::string name;
  std::string meant;
};
std::vector<Misspelt> misspelt();
// "OCTILE_X: there is no such variable, did you mean OCTILE_Y?"
std::string to_string(const Misspelt& found);
// Says each once a process: where linears are made, a foreign program's variable must not be an error.
void warn_of_misspelt();

// Parses one of on/off, true/false, 1/0, yes/no in any case.
std::optional<bool> parse_bool(std::string_view text) noexcept;

// Overrides one variable for the life of the object, also when an exception passes; nestable. nullopt: as if unset.
class ScopedOverride {
 public:
  ScopedOverride(std::string_view name, std::optional<std::string> value);
  ~ScopedOverride();
  ScopedOverride(const ScopedOverride&) = delete;
  ScopedOverride& operator=(const ScopedOverride&) = delete;

 private:
  std::string name_;
  bool had_previous_ = false;
  std::optional<std::string> previous_;
};

}  // namespace octile::env
