// SPDX-License-Identifier: Apache-2.0
// Reading JSON that others wrote, and may have broken: bounded size, bounded depth, no silent duplicate keys, and errors
// that say where. Include <nlohmann/json.hpp> in the .cpp file that uses the result.
#pragma once

#include <octile/error.hpp>

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace octile {

// A table of 1000 keys is about 150 KB, a model's config.json 2 KB: 16 MiB is far beyond both.
inline constexpr std::int64_t kMaxJsonBytes = std::int64_t{16} << 20;

struct JsonLimits {
  std::int64_t max_bytes = kMaxJsonBytes;
  int max_depth = 32;                   // Of arrays and objects within each other.
  std::size_t max_key_bytes = 4096;     // Of one key.
  std::int64_t max_values = 1'000'000;  // Values in all, so that memory stays bounded (150 MB at most) whatever the text.
};

// A key that an object holds twice. `parent` is the JSON pointer of the object ("" for the outermost, "/entries/3").
struct JsonDuplicate {
  std::string parent;
  std::string key;
};

// The whole regular file. A larger one is refused before anything is read. Errors (io): the path and the system's reason,
// the size and the limit, or that it is no regular file.
Expected<std::string> read_whole_file(const std::string& path, std::int64_t max_bytes = kMaxJsonBytes);

// Parses UTF-8 text (no byte-order mark); objects keep the order of the text. `name` is what errors call it, normally the
// path. Duplicate keys are errors, or, where `duplicates` is given, appended to it, and the first value stays. Integers
// beyond 64 bits arrive as floating-point numbers. Errors (corrupt) give line and column. An object's find() is a linear
// search: iterate over objects that may be large.
Expected<nlohmann::ordered_json> parse_json(std::string_view text, std::string_view name, const JsonLimits& limits = {},
                                            std::vector<JsonDuplicate>* duplicates = nullptr);
// Both in one step.
Expected<nlohmann::ordered_json> read_json_file(const std::string& path, const JsonLimits& limits = {},
                                                std::vector<JsonDuplicate>* duplicates = nullptr);

// A whole number that 64 bits with a sign hold; nullopt: another value. One that does not fit into 64 bits arrives as a
// floating-point number, one that does not fit into 63 as an unsigned one.
std::optional<std::int64_t> json_integer(const nlohmann::ordered_json& value);

// What a value is, for messages: `the string "4"`, `the number 4.5`, `null`, `an object`. Long strings are cut.
std::string describe_json(const nlohmann::ordered_json& value);
// `text` with everything that is no printable ASCII as '?', cut to `max_bytes`; and the same in double quotes.
std::string printable_text(std::string_view text, std::size_t max_bytes = 80);
std::string quote_for_message(std::string_view text, std::size_t max_bytes = 80);

}  // namespace octile
