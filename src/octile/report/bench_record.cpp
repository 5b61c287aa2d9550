// SPDX-License-Identifier: Apache-2.0
// Field by field, checked: a file may be of another kind, or broken.
#include "octile/report/bench_record.h"

#include "octile/core/format.h"
#include "octile/core/json_file.h"
#include "octile/tune/sweep.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

namespace octile {
namespace {

using Json = nlohmann::ordered_json;

// Reads the members of one object; remembers the first thing that is wrong.
class Reader {
 public:
  Reader(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

  const std::optional<Error>& error() const { return error_; }

  void text(const char* field, std::string& target) {
    const Json* value = find(field);
    if (value != nullptr && !value->is_string()) {
      wrong(field, "a string", *value);
    } else if (value != nullptr) {
      target = value->get<std::string>();
    }
  }
  void flag(const char* field, bool& target) {
    const Json* value = find(field);
    if (value != nullptr && !value->is_boolean()) {
      wrong(field, "true or false", *value);
    } else if (value != nullptr) {
      target = value->get<bool>();
    }
  }
  // Times, ratios, rates: null stands for what was not measured, and so does 0 here.
  void measured(const char* field, double& target) {
    const Json* value = find(field);
    if (value == nullptr) {
      return;
    }
    const double number = value->is_number() ? value->get<double>() : -1;
    if (!std::isfinite(number) || number < 0) {
      wrong(field, "a number of at least 0 or null", *value);
      return;
    }
    target = number;
  }
  template <class Integer>
  void count(const char* field, Integer& target, Integer least) {
    const Json* value = find(field);
    if (value == nullptr) {
      return;
    }
    constexpr Integer kMost = std::numeric_limits<Integer>::max();
    const std::int64_t number = json_integer(*value).value_or(-1);
    if (number < least || number > kMost) {
      wrong(field, format("a whole number from {} to {}", least, kMost), *value);
      return;
    }
    target = static_cast<Integer>(number);
  }
  void config(const char* field, TileConfig& target) {
    const Json* value = find(field);
    if (value == nullptr) {
      return;
    }
    const auto is_integer = [](const Json& element) { return json_integer(element).has_value(); };
    if (!value->is_object() || !std::ranges::all_of(*value, is_integer)) {
      wrong(field, "an object of whole numbers", *value);
      return;
    }
    for (const auto& [name, element] : value->items()) {
      target.set(name, *json_integer(element));
    }
  }
  void texts(const char* field, std::vector<std::string>& target) {
    list(field, target, "a list of strings", [](const Json& element) { return element.is_string(); });
  }
  void counts(const char* field, std::vector<std::int64_t>& target) {
    list(field, target, "a list of whole numbers from 1",
         [](const Json& element) { return json_integer(element).value_or(0) > 0; });
  }
  void required_count(const char* field, std::int64_t& target) {
    if (find(field) == nullptr && !error_) {
      error_ = make_error(ErrorCode::corrupt, "{}: \"{}\" is missing", place_, field);
    }
    count(field, target, std::int64_t{1});
  }

 private:
  template <class T, class IsRight>
  void list(const char* field, std::vector<T>& target, const char* wanted, IsRight is_right) {
    const Json* value = find(field);
    if (value == nullptr) {
      return;
    }
    if (!value->is_array() || !std::ranges::all_of(*value, is_right)) {
      wrong(field, wanted, *value);
      return;
    }
    for (const Json& element : *value) {
      target.push_back(element.get<T>());
    }
  }
  const Json* find(const char* field) const {
    const auto found = object_.find(field);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  void wrong(const char* field, std::string_view wanted, const Json& came) {
    if (!error_) {
      error_ = make_error(ErrorCode::corrupt, "{}: \"{}\": wanted {}, got {}", place_, field, wanted, describe_json(came));
    }
  }

  const Json& object_;
  std::string place_;
  std::optional<Error> error_;
};

// Reads each object of the list `field`; a missing list is an empty one.
template <class Read>
Expected<void> for_each(const Json& json, const char* field, const std::string& place, Read read) {
  const auto list = json.find(field);
  if (list == json.end() || list->is_null()) {
    return {};
  }
  if (!list->is_array()) {
    return make_error(ErrorCode::corrupt, "{}: \"{}\": wanted a list, got {}", place, field, describe_json(*list));
  }
  std::size_t index = 0;
  for (const Json& element : *list) {
    const std::string where = format("{}: {} {}", place, field, ++index);
    if (!element.is_object()) {
      return make_error(ErrorCode::corrupt, "{}: wanted an object, got {}", where, describe_json(element));
    }
    Reader reader(element, where);
    read(reader);
    if (reader.error()) {
      return *reader.error();
    }
  }
  return {};
}

Expected<BenchRow> row_of(const Json& json, const std::string& place) {
  if (!json.is_object()) {
    return make_error(ErrorCode::corrupt, "{}: wanted an object, got {}", place, describe_json(json));
  }
  BenchRow row;
  row.rel_error = std::numeric_limits<double>::quiet_NaN();
  Reader reader(json, place);
  reader.text("shape", row.shape);
  reader.required_count("n", row.n);
  reader.required_count("k", row.k);
  reader.required_count("m", row.m);
  reader.text("scope", row.scope);
  reader.flag("chained", row.chained);
  reader.text("layout", row.layout);
  reader.text("accumulate", row.accumulate);
  reader.text("out_dtype", row.out_dtype);
  reader.measured("baseline_us", row.baseline_us);
  reader.text("baseline_kernel", row.baseline_kernel);
  reader.measured("best_vendor_us", row.best_vendor_us);
  reader.text("best_vendor_kernel", row.best_vendor_kernel);
  reader.measured("chosen_us", row.chosen_us);
  reader.text("chosen_kernel", row.chosen_kernel);
  reader.text("choice", row.choice);
  reader.measured("ratio", row.ratio);
  reader.measured("ratio_lo", row.ratio_lo);
  reader.measured("ratio_hi", row.ratio_hi);
  reader.count("rounds", row.rounds, 0);
  reader.measured("vs_vendor", row.vs_vendor);
  reader.measured("vs_vendor_lo", row.vs_vendor_lo);
  reader.measured("vs_vendor_hi", row.vs_vendor_hi);
  reader.measured("floor_us", row.floor_us);
  reader.measured("floor_share", row.floor_share);
  reader.measured("tflops", row.tflops);
  reader.measured("gbps", row.gbps);
  reader.measured("rel_error", row.rel_error);
  reader.count("max_sms", row.max_sms, 0);
  reader.config("chosen_config", row.chosen_config);
  reader.config("best_vendor_config", row.best_vendor_config);
  reader.text("best_vendor_source_hash", row.best_vendor_source_hash);
  reader.text("best_vendor_version", row.best_vendor_version);
  reader.measured("best_vendor_rel_error", row.best_vendor_rel_error);
  reader.measured("own_us", row.own_us);
  reader.text("own_kernel", row.own_kernel);
  reader.measured("own_ratio", row.own_ratio);
  reader.measured("own_ratio_lo", row.own_ratio_lo);
  reader.measured("own_ratio_hi", row.own_ratio_hi);
  reader.measured("own_vs_vendor", row.own_vs_vendor);
  reader.measured("own_vs_vendor_lo", row.own_vs_vendor_lo);
  reader.measured("own_vs_vendor_hi", row.own_vs_vendor_hi);
  if (reader.error()) {
    return *reader.error();
  }
  Expected<void> read = for_each(json, "published", place, [&](Reader& time) {
    PublishedTime& published = row.published.emplace_back();
    time.text("name", published.name);
    time.measured("us", published.us);
  });
  if (!read) {
    return std::move(read).error();
  }
  return row;
}

// What curves did not measure, and what the run had to say.
Expected<void> read_curves(const Json& json, const std::string& name, BenchResult& result) {
  Reader reader(json, name);
  reader.flag("all_m", result.all_m);
  reader.texts("missing", result.missing);
  reader.texts("notes", result.notes);
  reader.text("published_from", result.published_from);
  if (reader.error()) {
    return *reader.error();
  }
  return for_each(json, "left_out", name, [&](Reader& part) {
    LeftOut& left_out = result.left_out.emplace_back();
    part.text("shape", left_out.shape);
    part.required_count("n", left_out.n);
    part.required_count("k", left_out.k);
    part.counts("m", left_out.m);
    part.text("reason", left_out.reason);
  });
}

// "libraries": {"cublaslt": "13.1.0", "nvrtc": "13.0"} becomes "cublaslt 13.1.0, nvrtc 13.0".
std::string on_one_line(const Json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (!value.is_structured()) {
    return value.dump();
  }
  std::string line;
  for (const auto& [key, element] : value.items()) {
    const std::string text = on_one_line(element);
    line += line.empty() ? "" : ", ";
    line += value.is_object() ? format("{} {}", key, text) : text;
  }
  return line;
}

void add_commands(const Json& value, std::vector<std::string>& commands) {
  if (value.is_array()) {
    for (const Json& element : value) {
      commands.push_back(on_one_line(element));
    }
  } else if (const std::string line = on_one_line(value); !line.empty()) {
    commands.push_back(line);
  }
}

bool is_result_field(std::string_view field) {
  for (const std::string_view known : {"device_name", "octile_version", "kernel_source_hash", "date", "unit", "protocol",
                                       "rows", "all_m", "cliffs", "left_out", "missing", "notes", "published_from"}) {
    if (field == known) {
      return true;
    }
  }
  return false;
}

}  // namespace

Expected<BenchRecord> parse_bench_record(std::string_view text, std::string_view name) {
  const Expected<Json> json = parse_json(text, name);
  if (!json) {
    return json.error();
  }
  const auto rows = json->is_object() ? json->find("rows") : json->end();
  if (!json->is_object() || rows == json->end() || !rows->is_array()) {
    return make_error(ErrorCode::corrupt,
                      "{}: wanted what `octile bench --json` writes, an object with a list \"rows\", got {}", name,
                      json->is_object() ? "an object without one" : describe_json(*json));
  }
  BenchRecord record;
  BenchResult& result = record.result;
  Reader reader(*json, std::string(name));
  reader.text("device_name", result.device_name);
  reader.text("octile_version", result.octile_version);
  reader.text("kernel_source_hash", result.kernel_source_hash);
  reader.text("date", result.date);
  reader.text("protocol", result.protocol);
  reader.text("commit", record.commit);
  std::string unit = "us";
  reader.text("unit", unit);
  if (!reader.error() && unit != "us") {
    return make_error(ErrorCode::corrupt, "{}: \"unit\": wanted \"us\", got {}", name, quote_for_message(unit));
  }
  if (reader.error()) {
    return *reader.error();
  }
  if (Expected<void> read = read_curves(*json, std::string(name), result); !read) {
    return std::move(read).error();
  }
  for (const Json& json_row : *rows) {
    Expected<BenchRow> row = row_of(json_row, format("{}: row {}", name, result.rows.size() + 1));
    if (!row) {
      return row.error();
    }
    result.rows.push_back(*std::move(row));
  }
  std::vector<double> ratios;
  for (const BenchRow& row : result.rows) {
    if (row.ratio > 0) {
      ratios.push_back(row.ratio);
    }
  }
  result.geomean_ratio = geometric_mean(ratios);
  for (const auto& [field, value] : json->items()) {
    if (field == "command") {
      add_commands(value, record.commands);
    } else if (!is_result_field(field) && field != "commit") {
      if (std::string line = on_one_line(value); !line.empty()) {
        record.facts.emplace_back(field, std::move(line));
      }
    }
  }
  return record;
}

Expected<BenchRecord> read_bench_record(const std::string& path) {
  const Expected<std::string> text = read_whole_file(path);
  if (!text) {
    return text.error();
  }
  return parse_bench_record(*text, path);
}

}  // namespace octile
