// SPDX-License-Identifier: Apache-2.0
// The guarded JSON reader: nlohmann's SAX parser with limits, duplicate keys seen, and a document that keeps the text's
// order.
#include "octile/core/json_file.h"

#include "octile/core/format.h"
#include "octile/core/regular_file.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <deque>
#include <limits>
#include <span>
#include <unordered_set>
#include <utility>

namespace octile {

namespace {

using Json = nlohmann::ordered_json;

// A file with more duplicate keys than this is no table with a slip in it; the list of them must not outgrow the file.
constexpr std::size_t kMaxDuplicates = 100;

// "line 3, column 7" of byte `position` (1-based, as nlohmann counts).
std::string place_of(std::string_view text, std::size_t position) {
  const std::string_view before = text.substr(0, std::min(position == 0 ? 0 : position - 1, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t last_break = before.rfind('\n');
  const std::size_t column = before.size() - (last_break == std::string_view::npos ? 0 : last_break + 1) + 1;
  return format("line {}, column {}", line, column);
}

// nlohmann's "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...; last read: '...'" without
// what is said elsewhere. The last token may be as long as the file.
std::string reason_of(std::string_view what) {
  if (const std::size_t bracket = what.find("] "); bracket != std::string_view::npos) {
    what.remove_prefix(bracket + 2);
  }
  if (what.starts_with("parse error at ")) {
    if (const std::size_t colon = what.find(": "); colon != std::string_view::npos) {
      what.remove_prefix(colon + 2);
    }
  }
  return printable_text(what, 160);
}

class DocumentBuilder {
 public:
  using number_integer_t = Json::number_integer_t;
  using number_unsigned_t = Json::number_unsigned_t;
  using number_float_t = Json::number_float_t;
  using string_t = Json::string_t;
  using binary_t = Json::binary_t;

  DocumentBuilder(std::string_view text, const JsonLimits& limits, std::vector<JsonDuplicate>* duplicates)
      : text_(text), limits_(limits), duplicates_(duplicates) {}

  bool null() { return add(nullptr) != nullptr; }
  bool boolean(bool value) { return add(value) != nullptr; }
  bool number_integer(number_integer_t value) { return add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) { return add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t& /*text*/) { return add(value) != nullptr; }
  bool string(string_t& value) { return add(std::move(value)) != nullptr; }
  bool binary(binary_t& /*value*/) { return fail("binary data"); }
  bool start_object(std::size_t /*size*/) { return open(Json::value_t::object); }
  bool start_array(std::size_t /*size*/) { return open(Json::value_t::array); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(string_t& text) {
    if (text.size() > limits_.max_key_bytes) {
      return fail(format("a key of {} bytes in {}, at most {} are accepted", text.size(), quote_for_message(pointer()),
                         limits_.max_key_bytes));
    }
    Frame& frame = frames_.back();
    frame.key = std::move(text);
    frame.duplicate = !frame.seen.insert(frame.key).second;
    if (!frame.duplicate) {
      return true;
    }
    if (duplicates_ == nullptr) {
      return fail(format("the key {} stands twice in the same object", quote_for_message(frame.key)));
    }
    if (duplicates_->size() == kMaxDuplicates) {
      return fail(format("more than {} duplicate keys", kMaxDuplicates));
    }
    duplicates_->push_back({pointer(), frame.key});
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*last_token*/, const nlohmann::detail::exception& error) {
    problem_ = format("{}: {}", place_of(text_, position), reason_of(error.what()));
    return false;
  }

  Json& document() { return document_; }
  const std::string& problem() const { return problem_; }

 private:
  struct Frame {
    Json* value;                           // The open array or object.
    std::string key;                       // Of the member being read.
    bool duplicate = false;                // That member's key was there before: its value goes to `discarded_`.
    std::unordered_set<std::string> seen;  // Keys so far.
  };

  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  // JSON pointer of the innermost open array or object.
  std::string pointer() const {
    std::string path;
    for (std::size_t i = 0; i + 1 < frames_.size(); ++i) {
      const Frame& frame = frames_[i];
      path += '/';
      if (frame.value->is_array()) {
        path += std::to_string(frame.value->size() - 1);
        continue;
      }
      for (const char c : frame.key) {
        path += c == '~' ? std::string("~0") : c == '/' ? std::string("~1") : std::string(1, c);
      }
    }
    return path;
  }

  template <class Value>
  Json* add(Value&& value) {
    if (++values_ > limits_.max_values) {
      fail(format("more than {} values", limits_.max_values));
      return nullptr;
    }
    if (frames_.empty()) {
      document_ = Json(std::forward<Value>(value));
      return &document_;
    }
    Frame& frame = frames_.back();
    if (frame.value->is_array()) {
      auto& items = frame.value->get_ref<Json::array_t&>();
      return &items.emplace_back(std::forward<Value>(value));
    }
    if (frame.duplicate) {
      // Frames that point into an older discarded value are closed by now, except those of the value being discarded, which
      // keep it alive: a fresh slot each time.
      return &discarded_.emplace_back(std::forward<Value>(value));
    }
    // The map's own insertion searches for the key first, which would make large objects quadratic; `seen` has done it.
    auto& members = frame.value->get_ref<Json::object_t&>();
    return &members.emplace_back(frame.key, Json(std::forward<Value>(value))).second;
  }

  bool open(Json::value_t type) {
    if (std::cmp_greater_equal(frames_.size(), limits_.max_depth)) {
      return fail(format("arrays and objects nested deeper than {}", limits_.max_depth));
    }
    Json* const value = add(type);
    if (value == nullptr) {
      return false;
    }
    frames_.push_back({value, {}, false, {}});
    return true;
  }

  bool close() {
    frames_.pop_back();
    return true;
  }

  std::string_view text_;
  const JsonLimits& limits_;
  std::vector<JsonDuplicate>* duplicates_;
  Json document_;
  std::deque<Json> discarded_;
  std::vector<Frame> frames_;
  std::int64_t values_ = 0;
  std::string problem_;
};

// Why `text` is not even UTF-8 text, or "".
std::string encoding_problem(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) {
    return "line 1, column 1: the file is empty";
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    return "line 1, column 1: a UTF-8 byte-order mark (EF BB BF); save the file without it";
  }
  if (text.size() >= 2 && ((byte(0) == 0xFF && byte(1) == 0xFE) || (byte(0) == 0xFE && byte(1) == 0xFF))) {
    return format("line 1, column 1: UTF-16 text (byte-order mark {:02X} {:02X}); save the file as UTF-8", byte(0), byte(1));
  }
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    const bool utf16 = zero < 2;
    return format("{}: a zero byte; {}", place_of(text, zero + 1),
                  utf16 ? "this looks like UTF-16 text; save the file as UTF-8" : "this is binary data, or a damaged file");
  }
  return {};
}

}  // namespace

Expected<std::string> read_whole_file(const std::string& path, std::int64_t max_bytes) {
  const auto file = RegularFile::open(path);
  if (!file) {
    return file.error();
  }
  if (file->size() > max_bytes) {
    return make_error(ErrorCode::io, "{} has {} bytes, at most {} are read", path, file->size(), max_bytes);
  }
  // Files of /proc state no size, and a file may grow meanwhile: read until nothing more comes.
  constexpr std::size_t kStep = 4096;
  std::string text;
  std::size_t filled = 0;
  std::size_t wanted = static_cast<std::size_t>(file->size()) + kStep;
  while (true) {
    text.resize(wanted);
    const auto room = std::as_writable_bytes(std::span(text)).subspan(filled);
    const auto got = file->read_some(static_cast<std::int64_t>(filled), room);
    if (!got) {
      return got.error();
    }
    filled += static_cast<std::size_t>(*got);
    if (std::cmp_greater(filled, max_bytes)) {
      return make_error(ErrorCode::io, "{} has more than {} bytes, at most {} are read", path, filled, max_bytes);
    }
    if (filled < wanted) {
      break;
    }
    wanted += kStep;
  }
  text.resize(filled);
  return text;
}

Expected<nlohmann::ordered_json> parse_json(std::string_view text, std::string_view name, const JsonLimits& limits,
                                            std::vector<JsonDuplicate>* duplicates) {
  if (std::cmp_greater(text.size(), limits.max_bytes)) {
    return make_error(ErrorCode::corrupt, "{}: {} bytes of JSON, at most {} are accepted", name, text.size(),
                      limits.max_bytes);
  }
  if (const std::string problem = encoding_problem(text); !problem.empty()) {
    return make_error(ErrorCode::corrupt, "{}: no JSON: {}", name, problem);
  }
  DocumentBuilder builder(text, limits, duplicates);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return make_error(ErrorCode::corrupt, "{}: bad JSON: {}", name, builder.problem());
  }
  return std::move(builder.document());
}

Expected<nlohmann::ordered_json> read_json_file(const std::string& path, const JsonLimits& limits,
                                                std::vector<JsonDuplicate>* duplicates) {
  const Expected<std::string> text = read_whole_file(path, limits.max_bytes);
  if (!text) {
    return text.error();
  }
  return parse_json(*text, path, limits, duplicates);
}

std::string printable_text(std::string_view text, std::size_t max_bytes) {
  std::string out;
  for (const char c : text.substr(0, max_bytes)) {
    out += c >= ' ' && c <= '~' ? c : '?';
  }
  if (text.size() > max_bytes) {
    out += "...";
  }
  return out;
}

std::string quote_for_message(std::string_view text, std::size_t max_bytes) {
  return '"' + printable_text(text, max_bytes) + '"';
}

std::optional<std::int64_t> json_integer(const nlohmann::ordered_json& value) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > kMost)) {
    return std::nullopt;
  }
  return value.get<std::int64_t>();
}

std::string describe_json(const nlohmann::ordered_json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float:
      return "the number " + value.dump();
    case Json::value_t::string:
      return "the string " + quote_for_message(value.get_ref<const std::string&>());
    case Json::value_t::array:
      return format("an array of {} values", value.size());
    case Json::value_t::object:
      return format("an object of {} keys", value.size());
    case Json::value_t::binary:
    case Json::value_t::discarded:
      break;
  }
  return "no value";
}

}  // namespace octile
