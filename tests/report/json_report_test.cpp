// SPDX-License-Identifier: Apache-2.0
// Machine-readable output: exact fields, and values that JSON has no words for.
#include "octile/report/json_report.h"

#include "octile/report/text_report.h"
#include "report/rows.h"
#include "support/row_fields.h"

#include <nlohmann/json.hpp>

#include <limits>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile {
namespace {

using Json = nlohmann::ordered_json;

Json parsed(const std::string& text) {
  EXPECT_TRUE(text.ends_with("\n"));
  Json json = Json::parse(text, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << text;
  return json;
}

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) {
    keys.push_back(key);
  }
  return keys;
}

BenchResult one_row() {
  BenchResult result;
  result.device_name = "X";
  result.octile_version = "0.1.0";
  result.date = "2026-01-01T00:00:00Z";
  BenchRow row;
  row.shape = "qkv";
  row.n = 6144;
  row.k = 4096;
  row.m = 16;
  row.layout = "cpu_packed";
  row.accumulate = "precise";
  row.baseline_us = 20;
  row.baseline_kernel = "onednn";
  row.chosen_us = 10;
  row.chosen_kernel = "avx512";
  row.choice = "tile";
  row.ratio = 2;
  row.ratio_lo = 1.9;
  row.ratio_hi = 2.1;
  row.rounds = 12;
  row.floor_us = 8;
  row.floor_share = 0.8;
  row.rel_error = 0.001;
  result.rows.push_back(row);
  return result;
}

using test::kRowFields;

TEST(JsonReport, BenchHasExactlyTheDocumentedFields) {
  const Json json = parsed(bench_json(one_row()));
  EXPECT_EQ(keys_of(json), (std::vector<std::string>{"device_name", "octile_version", "kernel_source_hash", "date", "unit",
                                                     "protocol", "rows"}));
  ASSERT_EQ(json["rows"].size(), 1U);
  EXPECT_EQ(keys_of(json["rows"][0]), kRowFields);
  EXPECT_EQ(json["rows"][0]["ratio_hi"], 2.1);
}

TEST(JsonReport, ConditionsThatAreNotKnownAreNull) {
  BenchResult result = one_row();
  result.rows[0].conditions.passes = 30;
  result.rows[0].conditions.repeated = 2;
  result.rows[0].conditions.sm_clock_lo_mhz = 1755;
  const Json conditions = parsed(bench_json(result))["rows"][0]["conditions"];
  EXPECT_EQ(conditions["passes"], 30);
  EXPECT_EQ(conditions["repeated"], 2);
  EXPECT_EQ(conditions["sm_clock_lo_mhz"], 1755);
  EXPECT_TRUE(conditions["throttle_reasons"].is_null());
  EXPECT_TRUE(conditions["preemptions"].is_null());
}

TEST(JsonReport, ARecordedResultSaysWhereItCameFrom) {
  const Json json = parsed(recorded_bench_json(one_row(), {"580.1", {{"onednn", "2.6.3"}}, "abc", "octile bench"}));
  EXPECT_EQ(json["driver"], "580.1");
  EXPECT_EQ(json["libraries"]["onednn"], "2.6.3");
  EXPECT_EQ(json["commit"], "abc");
  EXPECT_EQ(json["command"], "octile bench");
  EXPECT_EQ(json["rows"], parsed(bench_json(one_row()))["rows"]);
}

TEST(JsonReport, WhatIsNotFiniteOrNotMeasuredIsNull) {
  BenchResult result = one_row();
  result.rows[0].gbps = std::numeric_limits<double>::infinity();
  result.rows[0].rel_error = std::numeric_limits<double>::quiet_NaN();
  const Json row = parsed(bench_json(result))["rows"][0];
  for (const char* field : {"best_vendor_us", "vs_vendor", "vs_vendor_lo", "vs_vendor_hi", "tflops", "gbps", "rel_error"}) {
    EXPECT_TRUE(row[field].is_null()) << field;
  }
}

TEST(JsonReport, BytesThatAreNoUtf8AreReplaced) {
  const Finding finding{"a\xFF.json", "", "io", "quote \" and line\nbreak"};
  const Json json = parsed(findings_json(false, std::vector{finding}));
  EXPECT_EQ(json["findings"][0]["file"], "a\xEF\xBF\xBD.json");
  EXPECT_EQ(json["findings"][0]["message"], finding.message);
}

TEST(JsonReport, EmptyListsAreLists) {
  EXPECT_EQ(parsed(findings_json(true, {})), (Json{{"ok", true}, {"findings", Json::array()}}));
  EXPECT_EQ(parsed(explanations_json({})), Json::array());
}

TEST(JsonReport, AnExplanationHasExactlyTheDocumentedFields) {
  Explanation explanation;
  explanation.config = R"({"BLOCK_SIZE_M": 16})";
  explanation.measured = "null";
  const Json json = parsed(explanation_json(explanation));
  EXPECT_EQ(keys_of(json), (std::vector<std::string>{"device_name", "n", "k", "m", "choice", "kernel", "config",
                                                     "table_file", "table_key", "reason", "measured", "stale", "bytes"}));
  EXPECT_EQ(json["config"]["BLOCK_SIZE_M"], 16);
  EXPECT_TRUE(json["measured"].is_null());
  EXPECT_EQ(parsed(explanations_json(std::vector{explanation, explanation})), (Json::array({json, json})));
}

TEST(MeasureReport, CsvHasTheColumnsOfAJsonRowUpToItsError) {
  std::istringstream csv(bench_csv(one_row()));
  std::string header;
  std::getline(csv, header);
  std::string wanted;
  for (const std::string& field : kRowFields) {
    wanted += wanted.empty() ? "" : ",";
    wanted += field;
    if (field == "rel_error") {
      break;  // What follows says how it was measured, and what `table adopt` needs.
    }
  }
  EXPECT_EQ(header, wanted + "\r");
  std::string row;
  std::getline(csv, row);
  EXPECT_EQ(
      row,
      "qkv,6144,4096,16,linear,false,cpu_packed,precise,bf16,20,onednn,,,10,avx512,tile,2,1.9,2.1,12,,,,8,0.8,,,0.001\r");
}

TEST(MeasureReport, BenchTextShowsRatiosWithTheirIntervalAndDashesForWhatIsMissing) {
  BenchResult result = one_row();
  result.missing = {"gate_up m=1024: no time left"};
  result.geomean_ratio = 2;
  const std::string text = bench_text(result);
  EXPECT_THAT(text, testing::HasSubstr("2.00x [1.90, 2.10]"));
  EXPECT_THAT(text, testing::HasSubstr("tile: avx512"));
  EXPECT_THAT(text, testing::HasSubstr("80 %"));
  EXPECT_THAT(text, testing::HasSubstr("not measured: gate_up m=1024: no time left"));
  EXPECT_THAT(text, testing::HasSubstr("geometric mean of baseline / choice: 2.00x"));
}

TEST(MeasureReport, TuneTextSaysTheFailureFirst) {
  TuneSummary summary;
  summary.failure = "avx512 failed at every candidate";
  EXPECT_THAT(tune_text(summary), testing::StartsWith("FAILED: avx512 failed at every candidate\n"));
}

TEST(MeasureReport, TuneTextListsWhatDidNotFitTheBudgetAndWhatFailed) {
  TuneSummary summary;
  TunePoint point;
  point.shape = {"qkv", 6144, 4096};
  point.m = 1024;
  point.status = PointStatus::no_budget;
  summary.points.push_back(point);
  summary.failed.push_back({"qkv", 16, "avx2", {}, "wrong", "relative error 1.0, at most 0.003 was wanted"});
  summary.files = {"/tables/a.octile.json"};
  const std::string text = tune_text(summary);
  EXPECT_THAT(text, testing::HasSubstr("1 points did not fit the time budget"));
  EXPECT_THAT(text, testing::HasSubstr("qkv M=16 avx2 {}: wrong: relative error 1.0"));
  EXPECT_THAT(text, testing::HasSubstr("wrote /tables/a.octile.json"));
}

TEST(MeasureReport, TuneTextSortsPointsThatWereAddedInBetween) {
  TuneSummary summary;
  for (const auto& [shape, m] : {std::pair{"qkv", 1}, {"qkv", 16}, {"o", 1}, {"o", 16}, {"qkv", 4}, {"o", 2}}) {
    TunePoint point;
    point.shape.name = shape;
    point.m = m;
    point.undecided = m == 4;
    point.reason = m == 4 ? "no winner after 10 rounds" : "";
    summary.points.push_back(point);
  }
  std::istringstream text(tune_text(summary));
  std::vector<std::string> order;
  for (std::string line; std::getline(text, line) && !line.empty();) {
    std::istringstream words(line);
    std::string shape;
    std::string n;
    std::string k;
    std::string m;
    words >> shape >> n >> k >> m;
    order.push_back(shape + m);
  }
  order.erase(order.begin(), order.begin() + 2);
  EXPECT_THAT(order, testing::ElementsAre("qkv1", "qkv4", "qkv16", "o1", "o2", "o16"));
  EXPECT_THAT(tune_text(summary), testing::HasSubstr("\nqkv M=4: no winner after 10 rounds\n"));
}

TEST(MeasureReport, VerifyTextKeepsFindingsAndAdviceApart) {
  VerifyResult result;
  result.findings = {{"a.json", "[1, 4]", "wrong", "relative error 1"}};
  result.advice = {{"b.json", "", "driver", "differs"}};
  const std::string text = verify_text(result);
  EXPECT_THAT(text, testing::HasSubstr("Wrong:\na.json, key [1, 4]: wrong: relative error 1\n"));
  EXPECT_THAT(text, testing::HasSubstr("To know:\nb.json: driver: differs\n"));
}

TEST(TextReport, MarkdownOfVariablesEscapesBars) {
  const std::vector<VariableReport> variables = {
      {"A", "Section", "one of a|b", "a", "b", "environment", "", "Does | things."}};
  const std::string page = env_markdown(variables);
  EXPECT_THAT(page, testing::HasSubstr("## Section"));
  EXPECT_THAT(page, testing::HasSubstr("| `A` | one of a\\|b | `a` | Does \\| things. |"));
}

TEST(JsonReport, CurvesHaveOurFamiliesAloneCliffsAndWhatWasLeftOut) {
  const Json json = parsed(bench_json(test::curve_result()));
  EXPECT_EQ(keys_of(json),
            (std::vector<std::string>{"device_name", "octile_version", "kernel_source_hash", "date", "unit", "protocol",
                                      "rows", "published_from", "all_m", "cliffs", "left_out", "missing", "notes"}));
  std::vector<std::string> fields = kRowFields;
  for (const char* field : {"own_us", "own_kernel", "own_ratio", "own_ratio_lo", "own_ratio_hi", "own_vs_vendor",
                            "own_vs_vendor_lo", "own_vs_vendor_hi", "published"}) {
    fields.emplace_back(field);
  }
  for (const Json& row : json["rows"]) {
    EXPECT_EQ(keys_of(row), fields);
  }
  EXPECT_EQ(json["rows"][1]["own_us"], 15);
  EXPECT_EQ(json["rows"][1]["published"], Json::parse(R"([{"name": "their_ladder", "us": 11.5}])"));
  ASSERT_EQ(json["cliffs"].size(), 2U);
  EXPECT_EQ(keys_of(json["cliffs"][0]), (std::vector<std::string>{"shape", "n", "k", "curve", "kind", "from_m", "from_us",
                                                                  "from_kernel", "to_m", "to_us", "to_kernel", "ratio"}));
  EXPECT_EQ(json["cliffs"][0]["curve"], "choice");
  EXPECT_EQ(json["cliffs"][0]["from_m"], 2);
  EXPECT_EQ(json["cliffs"][1]["curve"], "own");
  EXPECT_EQ(json["cliffs"][1]["to_m"], 2);
  EXPECT_EQ(json["cliffs"][1]["to_kernel"], "hopper_wgmma");
  EXPECT_EQ(json["left_out"][0]["m"], (Json{4, 6}));
  EXPECT_EQ(json["left_out"][0]["reason"], "it did not fit the time budget");
  EXPECT_EQ(json["missing"], (Json{"qkv m=5: own wrong"}));
}

TEST(JsonReport, CurvesWithoutACliffHaveAnEmptyList) {
  BenchResult result = test::curve_result();
  result.rows.clear();
  result.left_out.clear();
  const Json json = parsed(bench_json(result));
  EXPECT_EQ(json["cliffs"], Json::array());
  EXPECT_EQ(json["left_out"], Json::array());
}

TEST(JsonReport, AVerificationOfEveryMHasItsListsAlsoWhereNothingWasTimed) {
  VerifyResult result;
  result.all_m = true;
  const Json json = parsed(verify_json(result));
  EXPECT_EQ(keys_of(json), (std::vector<std::string>{"ok", "findings", "advice", "cliffs", "files"}));
  EXPECT_EQ(json["cliffs"], Json::array());
  result.all_m = false;
  EXPECT_EQ(keys_of(parsed(verify_json(result))), (std::vector<std::string>{"ok", "findings"}));
}

}  // namespace
}  // namespace octile
