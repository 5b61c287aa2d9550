// SPDX-License-Identifier: Apache-2.0
// RFC 4180, read back by a small parser of its rules.
#include "octile/report/csv.h"

#include <charconv>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace octile {
namespace {

// The records of `text`: fields in quotes may hold anything, doubled quotes are one.
std::vector<std::vector<std::string>> parse_by_rules(const std::string& text) {
  std::vector<std::vector<std::string>> records;
  std::vector<std::string> record;
  std::string field;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted) {
      if (text[i] != '"') {
        field += text[i];
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else {
        quoted = false;
      }
    } else if (text[i] == '"') {
      quoted = true;
    } else if (text[i] == ',') {
      record.push_back(field);
      field.clear();
    } else if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') {
      ++i;
      record.push_back(field);
      records.push_back(record);
      record.clear();
      field.clear();
    } else {
      field += text[i];
    }
  }
  EXPECT_TRUE(!quoted && field.empty() && record.empty()) << "text after the last record";
  return records;
}

TEST(Csv, PlainFieldsStayPlain) { EXPECT_EQ(csv_record({"qkv", "6144", ""}), "qkv,6144,\r\n"); }

TEST(Csv, CommasQuotesAndLineBreaksAreQuoted) {
  EXPECT_EQ(csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_field("say \"hi\""), "\"say \"\"hi\"\"\"");
  EXPECT_EQ(csv_field("a\nb"), "\"a\nb\"");
  EXPECT_EQ(csv_field("a\rb"), "\"a\rb\"");
}

TEST(Csv, WhateverIsWrittenReadsBack) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string alphabet = "ab,\"\r\n ;'\xC3\xA9";
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> fields(1 + random() % 5);
    for (std::string& field : fields) {
      for (auto length = random() % 8; length > 0; --length) {
        field += alphabet[random() % alphabet.size()];
      }
    }
    const auto records = parse_by_rules(csv_record(fields) + csv_record({"next"}));
    ASSERT_EQ(records.size(), 2U);
    EXPECT_EQ(records[0], fields);
    EXPECT_EQ(records[1], std::vector<std::string>{"next"});
  }
}

TEST(Csv, NumbersReadBackExactly) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> values(0.0, 20.0);
  for (int round = 0; round < 1000; ++round) {
    const double value = values(random);
    const std::string text = csv_number(value);
    double back = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), back);
    ASSERT_EQ(parsed.ptr, text.data() + text.size()) << text;
    EXPECT_EQ(back, value) << text;
  }
}

TEST(Csv, WhatIsNoNumberIsEmpty) {
  EXPECT_EQ(csv_number(std::nullopt), "");
  EXPECT_EQ(csv_number(std::numeric_limits<double>::quiet_NaN()), "");
  EXPECT_EQ(csv_number(std::numeric_limits<double>::infinity()), "");
}

TEST(ParseCsv, ReadsWhatIsWrittenWhateverTheFields) {
  const std::vector<std::vector<std::string>> records = {{"a", "b,c", ""}, {"\"", "line\nbreak\r\n", "x\"y"}, {"", "", ""}};
  std::string text;
  for (const auto& record : records) {
    text += csv_record(record);
  }
  const auto read = parse_csv(text, "F");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, records);
}

TEST(ParseCsv, LinesMayEndAsOnUnixOrNotAtAll) {
  const std::vector<std::vector<std::string>> records = {{"a", "b"}, {"c", ""}};
  for (const char* text : {"a,b\nc,\n", "a,b\n\nc,", "a,b\r\nc,\r\n"}) {
    const auto read = parse_csv(text, "F");
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, records) << text;
  }
  EXPECT_TRUE(parse_csv("", "F").value().empty());
}

TEST(ParseCsv, StrayQuotesAreErrors) {
  EXPECT_NE(parse_csv("a,\"b", "F").error().message.find("F: the quote before \"b\" does not end"), std::string::npos);
  EXPECT_NE(parse_csv("\"a\"b", "F").error().message.find("wanted a comma"), std::string::npos);
  EXPECT_NE(parse_csv("a\"b\"", "F").error().message.find("quote in the middle"), std::string::npos);
}

}  // namespace
}  // namespace octile
