// SPDX-License-Identifier: Apache-2.0
// Octile's own table format, read with every rule checked and written so that it reads back bit for bit.
#include "octile/table/own_format.h"

#include "octile/core/date_text.h"
#include "octile/core/format.h"
#include "octile/table/device_names.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

namespace octile {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxTextBytes = 16384;  // Of one string; the longest real ones are command lines.
constexpr std::size_t kMaxNameBytes = 64;     // Of kernels and of the keys of a config.

enum class Presence { required, optional };

const Json* member(const Json& object, std::string_view name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
}

// Reads the members of one object and remembers the first thing that is wrong, as kind and message.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  void text(const char* name, Presence presence, std::string& out) {
    const Json* const value = take(name, presence);
    if (value == nullptr) {
      return;
    }
    const auto* const string = value->get_ptr<const std::string*>();
    if (string == nullptr) {
      wanted(name, "a string", *value);
    } else if (string->size() > kMaxTextBytes) {
      fail("out_of_range",
           format("{}{} has {} bytes, at most {} are accepted", where_, name, string->size(), kMaxTextBytes));
    } else {
      out = *string;
    }
  }

  void name(const char* key, std::string& out) {
    text(key, Presence::required, out);
    if (ok() && !is_name(out)) {
      fail("bad_value", format("{}{} must be a name of letters, digits, '_', '-' and '.', it is {}", where_, key,
                               quote_for_message(out)));
    }
  }

  void one_of(const char* name, std::initializer_list<std::string_view> words, std::string& out) {
    text(name, Presence::required, out);
    if (!ok() || std::find(words.begin(), words.end(), out) != words.end()) {
      return;
    }
    std::string list;
    for (const std::string_view word : words) {
      list += format("{}\"{}\"", list.empty() ? "" : ", ", word);
    }
    fail("bad_value", format("{}{} must be one of {}, it is {}", where_, name, list, quote_for_message(out)));
  }

  void boolean(const char* name, Presence presence, bool& out) {
    const Json* const value = take(name, presence);
    if (value == nullptr) {
      return;
    }
    if (!value->is_boolean()) {
      wanted(name, "true or false", *value);
    } else {
      out = value->get<bool>();
    }
  }

  template <class Integer>
  void integer(const char* name, std::int64_t min_value, Integer& out) {
    const Json* const value = take(name, Presence::required);
    if (value == nullptr) {
      return;
    }
    const std::optional<std::int64_t> number = json_integer(*value);
    if (!number) {
      wanted(name, "an integer", *value);
    } else if (*number < min_value || *number > std::numeric_limits<Integer>::max()) {
      fail("out_of_range", format("{}{} must be from {} to {}, it is {}", where_, name, min_value,
                                  std::numeric_limits<Integer>::max(), *number));
    } else {
      out = static_cast<Integer>(*number);
    }
  }

  // A finite number > 0, or >= 0 where `zero_allowed`.
  void number(const char* name, Presence presence, bool zero_allowed, std::optional<double>& out) {
    const Json* const value = take(name, presence);
    if (value == nullptr) {
      return;
    }
    if (!value->is_number()) {
      wanted(name, "a number", *value);
      return;
    }
    const double got = value->get<double>();
    if (!std::isfinite(got) || got < 0 || (got == 0 && !zero_allowed)) {
      fail("out_of_range", format("{}{} must be finite and {} 0, it is {}", where_, name, zero_allowed ? ">=" : ">", got));
      return;
    }
    out = got;
  }

  // The member as it is, or nullptr with the problem remembered where it must be there.
  const Json* take(const char* name, Presence presence) {
    known_.insert(name);
    if (!ok()) {
      return nullptr;
    }
    const Json* const value = member(object_, name);
    if (value == nullptr && presence == Presence::required) {
      fail("missing_key", format("{}{} is missing", where_, name));
    }
    return value;
  }

  // To be called last: members that nobody asked for are a problem.
  void refuse_unknown() {
    for (const auto& item : object_.get_ref<const Json::object_t&>()) {
      if (ok() && !known_.contains(item.first)) {
        fail("unknown_key", format("unknown key {}{}", where_, printable_text(item.first)));
      }
    }
  }

  void wanted(const char* name, const char* what, const Json& came) {
    fail("bad_value", format("{}{} must be {}, it is {}", where_, name, what, describe_json(came)));
  }

  void fail(const char* kind, std::string message) {
    if (ok()) {
      kind_ = kind;
      message_ = std::move(message);
    }
  }

  bool ok() const { return kind_ == nullptr; }
  Finding finding(const std::string& file, std::string key) const { return {file, std::move(key), kind_, message_}; }

 private:
  const Json& object_;
  std::string where_;  // "key.", "": stands before names in messages.
  std::set<std::string, std::less<>> known_;
  const char* kind_ = nullptr;
  std::string message_;
};

void read_key(ObjectReader& reader, const Json& object, TableKey& key) {
  reader.text("device_name", Presence::required, key.device_name);
  if (member(object, "model") != nullptr) {
    reader.text("model", Presence::required, key.model);
    reader.text("instruction_set", Presence::required, key.arch);
    reader.integer("threads", 0, key.sm_count);
  } else {
    reader.text("arch", Presence::required, key.arch);
    reader.integer("sm_count", 0, key.sm_count);
  }
  reader.integer("n", 1, key.n);
  reader.integer("k", 1, key.k);
  reader.text("scheme", Presence::required, key.scheme);
  reader.one_of("out_dtype", {"bf16", "fp16", "fp32"}, key.out_dtype);
  reader.boolean("bias", Presence::required, key.bias);
  reader.one_of("accumulate", {"fast", "precise"}, key.accumulate);
  reader.one_of("numerics", {"deterministic", "baseline"}, key.numerics);
  reader.text("weight_layout", Presence::required, key.weight_layout);
  reader.one_of("pdl", {"off", "consume", "full"}, key.pdl);
  if (member(object, "max_sms") != nullptr) {
    reader.integer("max_sms", 1, key.max_sms);
  }
  // A hard key that this version does not know is a condition that it cannot check.
  reader.refuse_unknown();
  if (reader.ok() && key.scheme != kSchemeChannelwise) {
    reader.fail("unsupported_scheme",
                format("the scheme {} is not supported, only \"{}\" is", quote_for_message(key.scheme), kSchemeChannelwise));
  }
  if (reader.ok() && !is_device_file_name(key.device_name)) {
    reader.fail("bad_value", format("key.device_name {} cannot stand in a file name", quote_for_message(key.device_name)));
  }
}

void read_interval(ObjectReader& reader, TableEntry& entry) {
  const Json* const m = reader.take("m", Presence::required);
  if (m == nullptr) {
    return;
  }
  if (!m->is_array() || m->size() != 2 || !json_integer((*m)[0]) || !json_integer((*m)[1])) {
    reader.wanted("m", "an array of two integers [lo, hi]", *m);
    return;
  }
  entry.m_lo = *json_integer((*m)[0]);
  entry.m_hi = *json_integer((*m)[1]);
  if (entry.m_lo < 1 || entry.m_hi < entry.m_lo) {
    reader.fail("out_of_range", format("m must be [lo, hi] with 1 <= lo <= hi, it is [{}, {}]", entry.m_lo, entry.m_hi));
  }
}

void read_config(ObjectReader& reader, TableEntry& entry) {
  const Json* const config = reader.take("config", Presence::optional);
  if (config == nullptr) {
    return;
  }
  if (!config->is_object()) {
    reader.wanted("config", "an object of integers", *config);
    return;
  }
  for (const auto& [name, value] : config->get_ref<const Json::object_t&>()) {
    const std::optional<std::int64_t> integer = json_integer(value);
    if (!is_name(name)) {
      reader.fail("unknown_tile_key",
                  format("config key {} is no name of letters, digits, '_', '-' and '.'", quote_for_message(name)));
    } else if (!integer) {
      reader.fail("bad_value", format("config.{} must be an integer, it is {}", name, describe_json(value)));
    } else {
      entry.config.set(name, *integer);
    }
  }
}

void read_ratio(ObjectReader& reader, TableEntry& entry) {
  const Json* const ratio = reader.take("ratio", Presence::optional);
  if (ratio == nullptr) {
    return;
  }
  if (!ratio->is_object()) {
    reader.wanted("ratio", "an object of mid, lo and hi", *ratio);
    return;
  }
  ObjectReader parts(*ratio, "ratio.");
  std::optional<double> mid, lo, hi;
  parts.number("mid", Presence::required, false, mid);
  parts.number("lo", Presence::required, false, lo);
  parts.number("hi", Presence::required, false, hi);
  parts.refuse_unknown();
  if (!parts.ok()) {
    const Finding problem = parts.finding({}, {});
    reader.fail(problem.kind == "missing_key" ? "missing_key" : "bad_value", problem.message);
    return;
  }
  if (*lo > *mid || *mid > *hi) {
    reader.fail("out_of_range", format("ratio must have lo <= mid <= hi, it is {}, {}, {}", *lo, *mid, *hi));
    return;
  }
  entry.ratio = Ratio{*mid, *lo, *hi};
}

constexpr std::string_view kDateExample = "2026-11-30T22:13:30Z";

// Merging compares dates as texts, in which "yesterday" would always win.
void read_date(ObjectReader& reader, TableEntry& entry) {
  reader.text("date", Presence::optional, entry.date);
  if (reader.ok() && !entry.date.empty() && !is_moment_or_day(entry.date)) {
    reader.fail("bad_value", format("date must be as {}, it is {}", kDateExample, quote_for_message(entry.date)));
  }
}

void read_entry(ObjectReader& reader, TableEntry& entry) {
  read_interval(reader, entry);
  reader.name("kernel", entry.kernel);
  read_config(reader, entry);
  reader.text("kernel_source_hash", Presence::optional, entry.kernel_source_hash);
  reader.text("vendor_version", Presence::optional, entry.vendor_version);
  reader.number("us", Presence::optional, false, entry.us);
  reader.number("baseline_us", Presence::optional, false, entry.baseline_us);
  reader.number("best_vendor_us", Presence::optional, false, entry.best_vendor_us);
  read_ratio(reader, entry);
  reader.number("rel_error", Presence::optional, true, entry.rel_error);
  reader.boolean("inferred", Presence::optional, entry.inferred);
  read_date(reader, entry);
  reader.refuse_unknown();
}

std::string interval_text(const TableEntry& entry) { return format("[{}, {}]", entry.m_lo, entry.m_hi); }

// Sorts by M and leaves out every entry that shares an M with another: which one is meant cannot be told.
void check_intervals(TileTable& table, std::vector<Finding>& findings) {
  const auto by_lo = [](const TableEntry& a, const TableEntry& b) { return a.m_lo < b.m_lo; };
  if (!std::is_sorted(table.entries.begin(), table.entries.end(), by_lo)) {
    findings.push_back(
        {table.file, "", "not_ascending", "the entries do not stand in ascending order of M; they were sorted"});
    std::stable_sort(table.entries.begin(), table.entries.end(), by_lo);
  }
  std::vector<bool> overlaps(table.entries.size(), false);
  std::size_t widest = 0;  // The entry so far that reaches highest.
  for (std::size_t i = 1; i < table.entries.size(); ++i) {
    // Two entries below `i` that reach it share i's m_lo, so that they were marked before: comparing with one is enough.
    if (table.entries[i].m_lo <= table.entries[widest].m_hi) {
      findings.push_back({table.file, interval_text(table.entries[i]), "overlap",
                          format("M {} overlaps M {}; both entries were left out", interval_text(table.entries[i]),
                                 interval_text(table.entries[widest]))});
      overlaps[i] = overlaps[widest] = true;
    }
    if (table.entries[i].m_hi > table.entries[widest].m_hi) {
      widest = i;
    }
  }
  std::size_t index = 0;
  std::erase_if(table.entries, [&](const TableEntry&) { return overlaps[index++]; });
}

// What stands twice: in an entry it is that entry's fault, elsewhere the file's.
struct Duplicates {
  std::set<std::size_t> entries;
  std::string file_fault;
};

Duplicates sort_duplicates(const std::vector<JsonDuplicate>& duplicates) {
  constexpr std::string_view kEntries = "/entries/";
  Duplicates result;
  for (const JsonDuplicate& duplicate : duplicates) {
    if (duplicate.parent.starts_with(kEntries)) {
      result.entries.insert(std::stoull(duplicate.parent.substr(kEntries.size())));
    } else if (duplicate.parent.empty() || duplicate.parent == "/key" || duplicate.parent == "/provenance") {
      result.file_fault = format("the key {} stands more than once in {}", quote_for_message(duplicate.key),
                                 duplicate.parent.empty() ? "the file" : duplicate.parent.substr(1));
    }
  }
  return result;
}

void read_provenance(const Json& document, TileTable& table, std::vector<Finding>& findings) {
  const Json* const provenance = member(document, "provenance");
  if (provenance == nullptr) {
    return;
  }
  if (!provenance->is_object()) {
    findings.push_back(
        {table.file, "", "bad_value", format("provenance must be an object, it is {}", describe_json(*provenance))});
    return;
  }
  for (const auto& [name, value] : provenance->get_ref<const Json::object_t&>()) {
    const auto* const text = value.get_ptr<const std::string*>();
    if (text == nullptr || text->size() > kMaxTextBytes) {
      findings.push_back({table.file, "", "bad_value",
                          format("provenance.{} must be a string of at most {} bytes, it is {}; it was left out",
                                 printable_text(name), kMaxTextBytes, describe_json(value))});
    } else if (name == "date" && !is_moment_or_day(*text)) {
      findings.push_back(
          {table.file, "", "bad_value",
           format("provenance.date must be as {}, it is {}; it was left out", kDateExample, quote_for_message(*text))});
    } else {
      table.provenance.insert_or_assign(name, *text);
    }
  }
}

// The kind and reason why the whole file is left out, found before its entries are read.
std::optional<Finding> file_fault(const Json& document, const Duplicates& duplicates, const std::string& file) {
  if (!document.is_object()) {
    return Finding{
        file, "", "bad_json",
        format("wanted an object with octile_table, key and entries, the file holds {}", describe_json(document))};
  }
  const Json* const number = member(document, "octile_table");
  if (number == nullptr || !json_integer(*number)) {
    return Finding{file, "", "unknown_format",
                   number == nullptr
                       ? std::string("the format number, octile_table, is missing")
                       : format("the format number, octile_table, must be an integer, it is {}", describe_json(*number))};
  }
  if (*json_integer(*number) != kTableFormat) {
    return Finding{
        file, "", "unknown_format",
        format("the file has format number {}, this version of Octile reads {}", *json_integer(*number), kTableFormat)};
  }
  if (!duplicates.file_fault.empty()) {
    return Finding{file, "", "duplicate_key", duplicates.file_fault};
  }
  const Json* const key = member(document, "key");
  if (key == nullptr || !key->is_object()) {
    return Finding{file, "", key == nullptr ? "missing_key" : "bad_value",
                   format("key must be an object, it is {}", key == nullptr ? "missing" : describe_json(*key))};
  }
  const Json* const entries = member(document, "entries");
  if (entries == nullptr || !entries->is_array()) {
    return Finding{file, "", entries == nullptr ? "missing_key" : "bad_value",
                   format("entries must be an array, it is {}", entries == nullptr ? "missing" : describe_json(*entries))};
  }
  const Json* const provenance = member(document, "provenance");
  const std::size_t names = document.size() + (provenance == nullptr ? 0 : provenance->size());
  if (entries->size() > kMaxTableEntries || names > kMaxTableFindings) {
    return Finding{file, "", "too_large",
                   format("{} entries and {} other keys, at most {} and {} are accepted", entries->size(), names,
                          kMaxTableEntries, kMaxTableFindings)};
  }
  return std::nullopt;
}

Json key_json(const TableKey& key) {
  Json json = Json::object();
  json["device_name"] = key.device_name;
  if (key.model.empty()) {
    json["arch"] = key.arch;
    json["sm_count"] = key.sm_count;
  } else {
    json["model"] = key.model;
    json["instruction_set"] = key.arch;
    json["threads"] = key.sm_count;
  }
  json["n"] = key.n;
  json["k"] = key.k;
  json["scheme"] = key.scheme;
  json["out_dtype"] = key.out_dtype;
  json["bias"] = key.bias;
  json["accumulate"] = key.accumulate;
  json["numerics"] = key.numerics;
  json["weight_layout"] = key.weight_layout;
  json["pdl"] = key.pdl;
  if (key.max_sms != 0) {
    json["max_sms"] = key.max_sms;
  }
  return json;
}

Json entry_json(const TableEntry& entry) {
  Json json = Json::object();
  json["m"] = {entry.m_lo, entry.m_hi};
  json["kernel"] = entry.kernel;
  json["config"] = config_object(entry.config);
  const auto put_text = [&](const char* name, const std::string& text) {
    if (!text.empty()) {
      json[name] = text;
    }
  };
  const auto put_number = [&](const char* name, const std::optional<double>& number) {
    if (number) {
      json[name] = *number;
    }
  };
  put_text("kernel_source_hash", entry.kernel_source_hash);
  put_text("vendor_version", entry.vendor_version);
  put_number("us", entry.us);
  put_number("baseline_us", entry.baseline_us);
  put_number("best_vendor_us", entry.best_vendor_us);
  if (entry.ratio) {
    json["ratio"] = {{"mid", entry.ratio->mid}, {"lo", entry.ratio->lo}, {"hi", entry.ratio->hi}};
  }
  put_number("rel_error", entry.rel_error);
  if (entry.inferred) {
    json["inferred"] = true;
  }
  put_text("date", entry.date);
  return json;
}

// On one line. Text that is no UTF-8 (a command line may hold any bytes) gets replacement characters.
std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::optional<TileTable> parse_own_table(const Json& document, const std::vector<JsonDuplicate>& duplicates,
                                         const std::string& file, std::vector<Finding>& findings) {
  const Duplicates doubled = sort_duplicates(duplicates);
  if (std::optional<Finding> fault = file_fault(document, doubled, file)) {
    findings.push_back(std::move(*fault));
    return std::nullopt;
  }
  TileTable table;
  table.file = file;
  for (const auto& item : document.get_ref<const Json::object_t&>()) {
    const std::string& name = item.first;
    if (name != "octile_table" && name != "key" && name != "provenance" && name != "entries") {
      findings.push_back({file, printable_text(name), "unknown_key", format("unknown key {}", quote_for_message(name))});
    }
  }
  const Json& key = *member(document, "key");
  ObjectReader key_reader(key, "key.");
  read_key(key_reader, key, table.key);
  if (!key_reader.ok()) {
    findings.push_back(key_reader.finding(file, ""));
    return std::nullopt;
  }
  read_provenance(document, table, findings);

  const Json& entries = *member(document, "entries");
  const std::size_t findings_before = findings.size();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (findings.size() - findings_before > kMaxTableFindings) {
      findings.push_back({file, "", "too_many_faults", format("more than {} entries are at fault", kMaxTableFindings)});
      return std::nullopt;
    }
    const Json& json = entries[i];
    const std::string place = format("entries[{}]", i);
    if (!json.is_object()) {
      findings.push_back({file, place, "bad_value", format("an entry must be an object, it is {}", describe_json(json))});
      continue;
    }
    TableEntry entry;
    ObjectReader reader(json, "");
    if (doubled.entries.contains(i)) {
      reader.fail("duplicate_key", "a key stands more than once in the entry");
    }
    read_entry(reader, entry);
    if (!reader.ok()) {
      findings.push_back(reader.finding(file, entry.m_lo > 0 ? interval_text(entry) : place));
      continue;
    }
    table.entries.push_back(std::move(entry));
  }
  check_intervals(table, findings);
  return table;
}

Expected<std::string> own_table_text(const TileTable& table) {
  if (table.field_format) {
    return make_error(ErrorCode::invalid_argument,
                      "a table in the field's format must be imported before it is written as ours");
  }
  Json provenance = Json::object();
  for (const auto& [name, value] : table.provenance) {
    provenance[name] = value;
  }
  std::string text = format("{{\n  \"octile_table\": {},\n  \"key\": {},\n  \"provenance\": {},\n  \"entries\": [",
                            kTableFormat, line_of(key_json(table.key)), line_of(provenance));
  const char* separator = "\n    ";
  for (const TableEntry& entry : table.entries) {
    text += separator + line_of(entry_json(entry));
    separator = ",\n    ";
  }
  text += table.entries.empty() ? "]\n}\n" : "\n  ]\n}\n";

  // A file that the next reader would refuse, wholly or in part, is not written: the reader's own rules decide.
  const Expected<Json> document = parse_json(text, "the table to write");
  if (!document) {
    return Error{ErrorCode::invalid_argument, document.error().message};
  }
  std::vector<Finding> findings;
  parse_own_table(*document, {}, "the table to write", findings);
  if (!findings.empty()) {
    return make_error(ErrorCode::invalid_argument, "the table breaks a rule of its format{}{}: {}",
                      findings.front().key.empty() ? "" : " at ", findings.front().key, findings.front().message);
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> hard_keys(const TableKey& key) {
  std::vector<std::pair<std::string, std::string>> result;
  const Json json = key_json(key);
  for (const auto& [name, value] : json.get_ref<const Json::object_t&>()) {
    const auto* const text = value.get_ptr<const std::string*>();
    result.emplace_back(name, text != nullptr ? *text : value.dump());
  }
  return result;
}

}  // namespace octile
