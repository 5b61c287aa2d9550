// SPDX-License-Identifier: Apache-2.0
// The guarded JSON reader: limits, order, duplicates, and where errors point.
#include "octile/core/json_file.h"

#include "support/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sys/stat.h>

#include <filesystem>

namespace octile {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string problem_of(std::string_view text, const JsonLimits& limits = {}) {
  const auto parsed = parse_json(text, "input", limits);
  return parsed ? "parsed as " + parsed->dump() : parsed.error().message;
}

TEST(JsonFile, ObjectsKeepTheOrderOfTheText) {
  const auto parsed = parse_json(R"({"64": 1, "8": 2, "512": {"z": 0, "a": [1, "x", null, true, -2, 0.5]}})", "input");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->dump(), R"({"64":1,"8":2,"512":{"z":0,"a":[1,"x",null,true,-2,0.5]}})");
}

TEST(JsonFile, ADuplicateKeyIsAnErrorThatNamesIt) {
  EXPECT_THAT(problem_of(R"({"a": 1, "b": {"a": 1}, "a": 2})"), AllOf(HasSubstr("\"a\""), HasSubstr("twice")));
  EXPECT_THAT(problem_of(R"({"x": [{"k": 1, "k": 1}]})"), HasSubstr("\"k\""));
}

TEST(JsonFile, DuplicatesAreReportedWithTheirPlaceAndTheFirstValueStays) {
  std::vector<JsonDuplicate> duplicates;
  const auto parsed = parse_json(
      R"({"a": {"x": 1, "x": {"y": [1, {"z": 0, "z": 1}]}, "w/v": {"k": 0, "k": 0}}, "b": [0, {"q": 1, "q": 2}], "b": 3})",
      "input", {}, &duplicates);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->dump(), R"({"a":{"x":1,"w/v":{"k":0}},"b":[0,{"q":1}]})");
  std::string said;
  for (const JsonDuplicate& duplicate : duplicates) {
    said += duplicate.parent + " " + duplicate.key + "; ";
  }
  EXPECT_EQ(said, "/a x; /a/x/y/1 z; /a/w~1v k; /b/1 q;  b; ");
}

TEST(JsonFile, ErrorsGiveLineAndColumn) {
  EXPECT_THAT(problem_of("{\n  \"a\": 1,\n  \"b\": x\n}"), HasSubstr("line 3, column 8"));
  EXPECT_THAT(problem_of(R"({"a": )"), HasSubstr("unexpected end of input"));
  EXPECT_THAT(problem_of("{} {}"), HasSubstr("line 1, column 4"));
  EXPECT_THAT(problem_of(R"({"a": 1e999})"), HasSubstr("1e999"));
}

TEST(JsonFile, EncodingsOtherThanUtf8AreNamed) {
  using std::string_literals::operator""s;
  EXPECT_THAT(problem_of("\xFF\xFE{\0}\0"s), HasSubstr("UTF-16"));
  EXPECT_THAT(problem_of("\xFE\xFF\0{\0}"s), HasSubstr("UTF-16"));
  EXPECT_THAT(problem_of("{\0}\0"s), AllOf(HasSubstr("UTF-16"), HasSubstr("line 1, column 2")));
  EXPECT_THAT(problem_of("\xEF\xBB\xBF{}"), AllOf(HasSubstr("byte-order mark"), HasSubstr("line 1, column 1")));
  EXPECT_THAT(problem_of("{\"a\": 1,\n \0 \"b\": 2}"s), AllOf(HasSubstr("zero byte"), HasSubstr("line 2, column 2")));
  EXPECT_THAT(problem_of("{\"a\": \"\xC3\x28\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(problem_of(""), HasSubstr("empty"));
  EXPECT_THAT(problem_of("\x7F"
                         "ELF\x02\x01\x01"),
              HasSubstr("line 1, column 1"));
}

TEST(JsonFile, DepthIsBounded) {
  JsonLimits limits;
  limits.max_depth = 3;
  EXPECT_EQ(problem_of("[[[1]]]", limits), "parsed as [[[1]]]");
  EXPECT_THAT(problem_of("[[[[1]]]]", limits), HasSubstr("nested deeper than 3"));
  // A million brackets: refused at the 33rd.
  EXPECT_THAT(problem_of(std::string(1'000'000, '[')), HasSubstr("nested deeper than 32"));
}

TEST(JsonFile, TheNumberOfValuesIsBounded) {
  JsonLimits limits;
  limits.max_values = 4;
  EXPECT_EQ(problem_of("[1,2,3]", limits), "parsed as [1,2,3]");
  EXPECT_THAT(problem_of("[1,2,3,4]", limits), HasSubstr("more than 4 values"));
}

TEST(JsonFile, ALargeObjectIsReadInLinearTime) {
  // 200,000 keys: with a search at each insertion these would be 2e10 comparisons, and the test would run into its time
  // limit.
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) {
    text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":null";
  }
  const auto parsed = parse_json(text + "}", "input");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->size(), 200'000U);
}

TEST(JsonFile, MessagesAreShortAndPrintableWhateverTheInput) {
  const std::string message = problem_of("\"" + std::string(3'000'000, '\x1b'));
  EXPECT_LT(message.size(), 400U);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_THAT(problem_of("{\"" + std::string(100'000, 'k') + "\": 1}"), HasSubstr("a key of 100000 bytes"));
}

TEST(JsonFile, ThousandsOfDuplicatesAreRefused) {
  std::string text = "{\"a\": 0";
  for (int i = 0; i < 1000; ++i) {
    text += ", \"a\": 0";
  }
  std::vector<JsonDuplicate> duplicates;
  const auto parsed = parse_json(text + "}", "input", {}, &duplicates);
  ASSERT_FALSE(parsed);
  EXPECT_THAT(parsed.error().message, HasSubstr("duplicate keys"));
}

TEST(JsonFile, AHugeFileIsRefusedBeforeItIsRead) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.write("huge.json", "{");
  std::filesystem::resize_file(path, 200'000'000);
  const auto text = read_whole_file(path);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::io);
  EXPECT_THAT(text.error().message, AllOf(HasSubstr(path), HasSubstr("200000000"), HasSubstr("16777216")));
}

TEST(JsonFile, AFileOfExactlyTheLimitIsRead) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.write("five.json", "12345");
  const auto text = read_whole_file(path, 5);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, "12345");
  EXPECT_FALSE(read_whole_file(path, 4));
}

TEST(JsonFile, WhatIsNoRegularFileIsRefusedWithoutWaiting) {
  const test::TemporaryDirectory directory;
  const std::string fifo = directory.file("fifo.json");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(read_whole_file(fifo).error().message, HasSubstr("not a regular file"));
  EXPECT_THAT(read_whole_file(directory.path()).error().message, HasSubstr("a directory"));
  EXPECT_THAT(read_whole_file(directory.file("none.json")).error().message, HasSubstr("No such file"));
}

TEST(JsonFile, FilesThatStateNoSizeAreReadWhole) {
  const auto text = read_whole_file("/proc/self/status");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_THAT(*text, HasSubstr("VmSize"));
}

TEST(JsonFile, ValuesAreDescribedForMessages) {
  const auto say = [](std::string_view text) { return describe_json(*parse_json(text, "input")); };
  EXPECT_EQ(say("null"), "null");
  EXPECT_EQ(say("\"4\""), "the string \"4\"");
  EXPECT_EQ(say("4.5"), "the number 4.5");
  EXPECT_EQ(say("true"), "true");
  EXPECT_EQ(say("[1,2]"), "an array of 2 values");
  EXPECT_EQ(say("{\"a\":1}"), "an object of 1 keys");
}

}  // namespace
}  // namespace octile
