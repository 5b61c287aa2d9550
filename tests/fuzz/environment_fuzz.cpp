// SPDX-License-Identifier: Apache-2.0
// Values of environment variables: each parses, or its error names the variable.
#include "fuzz/fuzz.h"
#include "octile/core/env.h"
#include "octile/table/table_store.h"

#include <string>

using namespace octile;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const auto variables = env::variables();
  const env::Variable& variable = variables[data[0] % variables.size()];
  const std::string text(fuzz::as_text(data + 1, size - 1));
  const env::ScopedOverride override_(variable.name, text.substr(0, text.find('\0')));
  const Expected<env::Value> value = env::value_of(variable.name);
  fuzz::require(value.has_value() == env::check_all().has_value(), "one bad value is a bad environment");
  if (!value) {
    fuzz::require(value.error().message.find(variable.name) != std::string::npos, "an error names the variable");
    return 0;
  }
  switch (variable.type) {
    case env::Type::boolean:
      fuzz::require(env::get_bool(variable.name).has_value(), "a boolean that was checked");
      break;
    case env::Type::integer: {
      const auto number = env::get_int(variable.name);
      fuzz::require(number && *number >= variable.min_value && *number <= variable.max_value, "an integer in its range");
      break;
    }
    case env::Type::choice:
    case env::Type::text:
    case env::Type::path_list:
      fuzz::require(env::get_text(variable.name).has_value(), "a text that was checked");
  }
  static_cast<void>(table_search_path({}));
  return 0;
}
