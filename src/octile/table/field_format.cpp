// SPDX-License-Identifier: Apache-2.0
// The field's table format, read with every rule checked and written as published.
#include "octile/table/field_format.h"

#include "octile/core/format.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace octile {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSwapKey = "SWAP_AB";

// Why something is left out: the finding's kind and its message.
struct Fault {
  const char* kind;
  std::string message;
};

const FieldTileKey* tile_key(std::string_view name) {
  for (const FieldTileKey& key : field_tile_keys()) {
    if (key.name == name) {
      return &key;
    }
  }
  return nullptr;
}

std::string known_tile_keys() {
  std::string names;
  for (const FieldTileKey& key : field_tile_keys()) {
    names += names.empty() ? "" : ", ";
    names += key.name;
  }
  return names;
}

bool is_power_of_two(std::int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

std::optional<Fault> value_fault(const FieldTileKey& key, std::int64_t value) {
  const bool legal = value >= key.min_value && value <= key.max_value && (!key.power_of_two || is_power_of_two(value));
  if (legal) {
    return std::nullopt;
  }
  return Fault{"out_of_range",
               format("{} must be {} from {} to {}, it is {}", key.name, key.power_of_two ? "a power of two" : "an integer",
                      key.min_value, key.max_value, value)};
}

Fault unknown_key_fault(std::string_view name) {
  return {"unknown_tile_key", format("unknown tile key {}: known are {}", quote_for_message(name), known_tile_keys())};
}

std::optional<Fault> config_fault(const TileConfig& config) {
  for (const auto& [name, value] : config.values) {
    const FieldTileKey* const key = tile_key(name);
    if (key == nullptr) {
      return unknown_key_fault(name);
    }
    if (auto fault = value_fault(*key, value)) {
      return fault;
    }
  }
  for (const FieldTileKey& key : field_tile_keys()) {
    if (key.required && !config.find(key.name)) {
      return Fault{"missing_tile_key", format("the tile key {} is missing", key.name)};
    }
  }
  return std::nullopt;
}

// The integer that a JSON value of a tile holds. Nothing is converted: neither "4" nor 4.0 is 4.
std::optional<std::int64_t> tile_integer(const Json& value, std::string_view name) {
  if (value.is_boolean() && name == kSwapKey) {
    return value.get<bool>() ? 1 : 0;
  }
  return json_integer(value);
}

std::optional<Fault> read_tile(const Json& tile, TileConfig& config) {
  for (const auto& [name, value] : tile.get_ref<const Json::object_t&>()) {
    if (tile_key(name) == nullptr) {
      return unknown_key_fault(name);
    }
    const std::optional<std::int64_t> integer = tile_integer(value, name);
    if (!integer) {
      return Fault{"bad_value", format("{} must be an integer, it is {}", name, describe_json(value))};
    }
    config.set(name, *integer);
  }
  return config_fault(config);
}

// Duplicates of M keys, and of keys within the tile of an M key: M key -> the fault.
std::unordered_map<std::string, Fault> duplicate_faults(const std::vector<JsonDuplicate>& duplicates) {
  std::unordered_map<std::string, Fault> faults;
  for (const JsonDuplicate& duplicate : duplicates) {
    if (duplicate.parent.empty()) {
      faults.insert_or_assign(duplicate.key, Fault{"duplicate_key", "the key stands more than once in the file"});
      continue;
    }
    // "/64" is the tile of M = 64; an M key has no '/' or '~' that the pointer would have to escape.
    faults.try_emplace(duplicate.parent.substr(1), Fault{"duplicate_key", format("the tile key {} stands more than once",
                                                                                 quote_for_message(duplicate.key))});
  }
  return faults;
}

}  // namespace

const std::vector<FieldTileKey>& field_tile_keys() {
  // A block of the tensor cores' e4m3 product is 16 x 8 x 32 and Triton asks for 16 x 16 x 32 at least. 1024 threads a block
  // are 32 warps. The upper ends leave room beyond every published table (largest there: 256 x 256 x 1024, 8 stages) and
  // keep products within 64 bits.
  static const std::vector<FieldTileKey> keys = {
      {"BLOCK_SIZE_M", true, true, 16, 1024}, {"BLOCK_SIZE_N", true, true, 16, 1024},
      {"BLOCK_SIZE_K", true, true, 32, 4096}, {"num_warps", true, true, 1, 32},
      {"num_stages", true, false, 1, 16},     {"GROUP_SIZE_M", false, false, 1, 1024},
      {"SPLIT_K", false, false, 1, 256},      {"SWAP_AB", false, false, 0, 1},
  };
  return keys;
}

Expected<void> check_field_tile(const TileConfig& config) {
  if (auto fault = config_fault(config)) {
    return Error{ErrorCode::invalid_argument, std::move(fault->message)};
  }
  return {};
}

std::int64_t field_tile_shared_bytes(const TileConfig& config) noexcept {
  const std::int64_t buffers = std::max(config.get("num_stages", 1) - 1, std::int64_t{1});
  return (config.get("BLOCK_SIZE_M", 0) + config.get("BLOCK_SIZE_N", 0)) * config.get("BLOCK_SIZE_K", 0) * buffers;
}

Expected<void> check_field_tile_fits(const TileConfig& config, std::int64_t shared_memory_bytes) {
  if (Expected<void> legal = check_field_tile(config); !legal) {
    return legal;
  }
  const std::int64_t bytes = field_tile_shared_bytes(config);
  if (bytes > shared_memory_bytes) {
    return make_error(ErrorCode::invalid_argument, "the tile {} needs {} bytes of shared memory, a block here may have {}",
                      config.to_json(), bytes, shared_memory_bytes);
  }
  return {};
}

std::vector<Finding> tiles_beyond_shared_memory(const TileTable& table, std::int64_t shared_memory_bytes) {
  std::vector<Finding> findings;
  for (const TableEntry& entry : table.entries) {
    if (entry.kernel != kFieldKernel) {
      continue;
    }
    if (const Expected<void> fits = check_field_tile_fits(entry.config, shared_memory_bytes); !fits) {
      findings.push_back({table.file, std::to_string(entry.m_lo), "shared_memory", fits.error().message});
    }
  }
  return findings;
}

std::optional<TileTable> parse_field_table(const Json& document, const std::vector<JsonDuplicate>& duplicates,
                                           const TableKey& key, const std::string& file, std::vector<Finding>& findings) {
  if (!document.is_object()) {
    findings.push_back({file, "", "bad_json",
                        format("wanted an object from M to a tile or null, the file holds {}", describe_json(document))});
    return std::nullopt;
  }
  TileTable table;
  table.key = key;
  table.field_format = true;
  table.file = file;
  const std::unordered_map<std::string, Fault> doubled = duplicate_faults(duplicates);
  if (document.size() > kMaxTableEntries) {
    findings.push_back(
        {file, "", "too_large", format("{} keys, at most {} are accepted", document.size(), kMaxTableEntries)});
    return std::nullopt;
  }
  const std::size_t findings_before = findings.size();
  for (const auto& [name, value] : document.get_ref<const Json::object_t&>()) {
    if (findings.size() - findings_before > kMaxTableFindings) {
      findings.push_back({file, "", "too_many_faults", format("more than {} keys are at fault", kMaxTableFindings)});
      return std::nullopt;
    }
    const std::optional<std::int64_t> m = parse_positive_decimal(name);
    if (!m) {
      findings.push_back({file, printable_text(name), "bad_key",
                          format("the key {} is no positive decimal integer and was left out", quote_for_message(name))});
      continue;
    }
    TableEntry entry;
    entry.m_lo = entry.m_hi = *m;
    entry.kernel = kBaselineKernel;
    std::optional<Fault> fault;
    TileConfig tile;
    if (const auto found = doubled.find(name); found != doubled.end()) {
      fault = found->second;
    } else if (value.is_object()) {
      fault = read_tile(value, tile);
    } else if (!value.is_null()) {
      fault = Fault{"bad_tile", format("wanted a tile or null, it is {}", describe_json(value))};
    }
    if (fault) {
      entry.left_out = fault->message;
      findings.push_back({file, name, fault->kind, std::move(fault->message)});
    } else if (value.is_object()) {
      entry.kernel = kFieldKernel;
      entry.config = std::move(tile);
    }
    table.entries.push_back(std::move(entry));
  }
  if (table.entries.empty()) {
    findings.push_back({file, "", "empty", "the file has no key that is an M"});
    return std::nullopt;
  }
  return table;
}

Expected<std::string> field_table_text(const TileTable& table) {
  std::unordered_set<std::int64_t> seen;
  std::string text = "{";
  for (const TableEntry& entry : table.entries) {
    if (entry.m_lo < 1 || entry.m_lo != entry.m_hi) {
      return make_error(ErrorCode::invalid_argument, "the field's format holds single positive M, not [{}, {}]", entry.m_lo,
                        entry.m_hi);
    }
    if (!seen.insert(entry.m_lo).second) {
      return make_error(ErrorCode::invalid_argument, "M = {} stands twice in the table", entry.m_lo);
    }
    text += format("{}\n    \"{}\": ", text.size() == 1 ? "" : ",", entry.m_lo);
    if (entry.kernel == kBaselineKernel) {
      text += "null";
      continue;
    }
    if (entry.kernel != kFieldKernel) {
      return make_error(ErrorCode::invalid_argument, "M = {}: the field's format cannot name the kernel \"{}\"", entry.m_lo,
                        entry.kernel);
    }
    if (const Expected<void> legal = check_field_tile(entry.config); !legal) {
      return make_error(ErrorCode::invalid_argument, "M = {}: {}", entry.m_lo, legal.error().message);
    }
    text += '{';
    const char* separator = "";
    for (const auto& [name, value] : entry.config.values) {
      const std::string number = name == kSwapKey ? (value != 0 ? "true" : "false") : std::to_string(value);
      text += format("{}\n        \"{}\": {}", separator, name, number);
      separator = ",";
    }
    text += "\n    }";
  }
  if (table.entries.empty()) {
    return make_error(ErrorCode::invalid_argument, "a table without entries is not written");
  }
  return text + "\n}\n";
}

std::optional<std::int64_t> parse_positive_decimal(std::string_view text) noexcept {
  // from_chars takes "-1" and "007" too, and stops at what it does not understand.
  if (text.empty() || text.front() < '1' || text.front() > '9') {
    return std::nullopt;
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace octile
