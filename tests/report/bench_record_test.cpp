// SPDX-License-Identifier: Apache-2.0
// Recorded results read back: what was written, what is missing, what is broken.
#include "octile/report/bench_record.h"

#include "octile/report/json_report.h"
#include "report/rows.h"
#include "support/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace octile {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

BenchResult result_of_two_rows() {
  BenchResult result;
  result.device_name = "NVIDIA_H200";
  result.octile_version = "0.1.0";
  result.kernel_source_hash = "0123";
  result.date = "2026-01-01T00:00:00Z";
  result.protocol = "paired";
  result.rows.push_back(test::usual_row("qkv", 16));
  BenchRow bare;
  bare.shape = "o";
  bare.n = 64;
  bare.k = 32;
  bare.m = 1;
  bare.ratio = 8;
  bare.rel_error = std::numeric_limits<double>::quiet_NaN();
  result.rows.push_back(bare);
  return result;
}

BenchRecord parsed(const std::string& text) {
  auto record = parse_bench_record(text, "F");
  EXPECT_TRUE(record) << (record ? "" : record.error().message);
  return record ? *std::move(record) : BenchRecord{};
}

std::string error_of(const std::string& text) {
  const auto record = parse_bench_record(text, "F");
  EXPECT_FALSE(record) << text;
  return record ? "" : record.error().message;
}

std::string with_row(const std::string& row) { return R"({"rows": [{"n": 1, "k": 1, "m": 1}, )" + row + "]}"; }

TEST(BenchRecord, WhatBenchWritesReadsBackTheSame) {
  const BenchResult result = result_of_two_rows();
  const BenchRecord record = parsed(bench_json(result));
  // Every field is in the JSON, so equal JSON is equal fields.
  EXPECT_EQ(bench_json(record.result), bench_json(result));
  EXPECT_TRUE(std::isnan(record.result.rows[1].rel_error));
  EXPECT_DOUBLE_EQ(record.result.geomean_ratio, 4.0);
  EXPECT_EQ(record.commit, "");
  EXPECT_THAT(record.commands, ElementsAre());
  EXPECT_THAT(record.facts, ElementsAre());
}

TEST(BenchRecord, ARecordKeepsWhereItCameFrom) {
  RecordedContext context;
  context.driver = "580.1";
  context.libraries = {{"cublaslt", "13.1.0"}, {"onednn", "2.6.3"}};
  context.commit = "abc";
  context.command = "octile bench --model qwen3-8b";
  const BenchRecord record = parsed(recorded_bench_json(result_of_two_rows(), context));
  EXPECT_EQ(record.commit, "abc");
  EXPECT_THAT(record.commands, ElementsAre("octile bench --model qwen3-8b"));
  EXPECT_THAT(record.facts, ElementsAre(Pair("driver", "580.1"), Pair("libraries", "cublaslt 13.1.0, onednn 2.6.3")));
}

TEST(BenchRecord, OtherMembersAndSeveralCommandsAreKeptInTheirOrder) {
  const BenchRecord record = parsed(R"({"what": "w", "command": ["a", "b"], "cores": 2, "empty": "", "rows": []})");
  EXPECT_THAT(record.facts, ElementsAre(Pair("what", "w"), Pair("cores", "2")));
  EXPECT_THAT(record.commands, ElementsAre("a", "b"));
}

TEST(BenchRecord, EveryShippedRecordOfBenchReads) {
  for (const char* device : {"NVIDIA_H200", "AMD_EPYC-avx512bf16-2t"}) {
    const std::string path = std::string(OCTILE_TEST_SOURCE_DIR "/bench/results/") + device + "/bench_qwen3-8b.json";
    const auto record = read_bench_record(path);
    ASSERT_TRUE(record) << record.error().message;
    EXPECT_EQ(record->result.device_name, device);
    EXPECT_GE(record->result.rows.size(), 20U);
    EXPECT_GE(record->commands.size(), 2U);
  }
}

TEST(BenchRecord, ARecordOfAnotherKindIsRefused) {
  EXPECT_THAT(error_of("[]"), HasSubstr("wanted what `octile bench --json` writes"));
  EXPECT_THAT(error_of("{}"), HasSubstr("an object without one"));
  EXPECT_THAT(error_of(R"({"rows": 1})"), HasSubstr("a list \"rows\""));
  EXPECT_THAT(error_of(R"({"rows": [1]})"), HasSubstr("F: row 1: wanted an object, got the number 1"));
  EXPECT_THAT(error_of("{"), HasSubstr("F"));
  const auto other = read_bench_record(OCTILE_TEST_SOURCE_DIR "/bench/results/NVIDIA_H200/host_time.json");
  EXPECT_FALSE(other);
}

TEST(BenchRecord, AFieldOfAnotherTypeIsRefusedWithRowAndField) {
  EXPECT_THAT(error_of(with_row("{}")), HasSubstr("F: row 2: \"n\" is missing"));
  EXPECT_THAT(error_of(with_row(R"({"n": 1, "k": 1, "m": 0})")), HasSubstr("row 2: \"m\": wanted a whole number from 1 to"));
  EXPECT_THAT(error_of(with_row(R"({"n": 1.5, "k": 1, "m": 1})")), HasSubstr("\"n\": wanted a whole number"));
  EXPECT_THAT(error_of(with_row(R"({"n": 18446744073709551615, "k": 1, "m": 1})")),
              HasSubstr("\"n\": wanted a whole number"));
  EXPECT_THAT(error_of(with_row(R"({"n": 1, "k": 1, "m": 1, "chosen_us": "9"})")),
              HasSubstr("\"chosen_us\": wanted a number"));
  EXPECT_THAT(error_of(with_row(R"({"n": 1, "k": 1, "m": 1, "ratio": -1})")), HasSubstr("\"ratio\": wanted a number"));
  EXPECT_THAT(error_of(with_row(R"({"n": 1, "k": 1, "m": 1, "shape": 3})")), HasSubstr("\"shape\": wanted a string"));
  EXPECT_THAT(error_of(with_row(R"({"n": 1, "k": 1, "m": 1, "chained": 1})")),
              HasSubstr("\"chained\": wanted true or false"));
  EXPECT_THAT(error_of(with_row(R"({"n": 1, "k": 1, "m": 1, "rounds": 4294967296})")), HasSubstr("\"rounds\": wanted"));
  EXPECT_THAT(error_of(R"({"unit": "ms", "rows": []})"), HasSubstr("\"unit\": wanted \"us\", got \"ms\""));
  EXPECT_THAT(error_of(R"({"device_name": 1, "rows": []})"), HasSubstr("F: \"device_name\": wanted a string"));
}

TEST(BenchRecord, AFileThatIsNotThereIsAnErrorThatNamesIt) {
  const test::TemporaryDirectory directory;
  const auto record = read_bench_record(directory.file("none.json"));
  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().code, ErrorCode::io);
  EXPECT_THAT(record.error().message, HasSubstr(directory.file("none.json")));
}

TEST(BenchRecord, CurvesReadBackTheSame) {
  const BenchResult result = test::curve_result();
  const BenchRecord record = parsed(bench_json(result));
  EXPECT_EQ(bench_json(record.result), bench_json(result));
  EXPECT_THAT(record.facts, ElementsAre()) << "what the curves say of themselves is no fact of the machine";
}

TEST(BenchRecord, BrokenPartsOfCurvesAreNamed) {
  EXPECT_THAT(error_of(with_row(R"({"n": 1, "k": 1, "m": 1, "published": {}})")),
              HasSubstr("F: row 2: \"published\": wanted a list"));
  EXPECT_THAT(error_of(with_row(R"({"n": 1, "k": 1, "m": 1, "published": [3]})")),
              HasSubstr("F: row 2: published 1: wanted an object"));
  EXPECT_THAT(error_of(with_row(R"({"n": 1, "k": 1, "m": 1, "published": [{"name": "a", "us": -1}]})")),
              HasSubstr("F: row 2: published 1: \"us\""));
  EXPECT_THAT(error_of(R"({"rows": [], "left_out": [{"n": 1, "k": 1, "m": [1, 0]}]})"),
              HasSubstr("F: left_out 1: \"m\": wanted a list of whole numbers from 1"));
  EXPECT_THAT(error_of(R"({"rows": [], "left_out": [{"n": 1, "k": 1, "m": [18446744073709551615]}]})"),
              HasSubstr("wanted a list of whole numbers"));
  EXPECT_THAT(error_of(R"({"rows": [], "missing": [1]})"), HasSubstr("\"missing\": wanted a list of strings"));
  EXPECT_THAT(error_of(R"({"rows": [], "all_m": 1})"), HasSubstr("\"all_m\": wanted true or false"));
}

}  // namespace
}  // namespace octile
