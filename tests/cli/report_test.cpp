// SPDX-License-Identifier: Apache-2.0
// Pages from records; places that cannot be written to are named before anything is measured. main_job_test.cpp has the
// pages of tune and bench.
#include "cli/command.h"

#include <filesystem>

#include <gmock/gmock.h>

namespace octile::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using ReportTest = CommandTest;

std::string shipped_record() { return OCTILE_TEST_SOURCE_DIR "/bench/results/NVIDIA_H200/bench_qwen3-8b.json"; }

std::size_t rows_of(const std::string& page) {
  std::size_t rows = 0;
  for (std::size_t at = page.find("<tr data-group="); at != std::string::npos; at = page.find("<tr data-group=", at + 1)) {
    ++rows;
  }
  return rows;
}

TEST_F(ReportTest, AShippedRecordBecomesOnePage) {
  const RunResult result = run({"report", shipped_record(), "--html", path("deep/er/report.html")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "");
  const std::string page = read_file(path("deep/er/report.html"));
  EXPECT_EQ(rows_of(page), 136U);
  EXPECT_THAT(page, AllOf(testing::StartsWith("<!doctype html>"), HasSubstr("NVIDIA_H200"), HasSubstr("580.159")));
  EXPECT_LT(page.size(), std::size_t{1} << 20);
}

TEST_F(ReportTest, ThePageCanGoToStdout) {
  const RunResult result = run({"report", shipped_record(), "--html", "/dev/stdout"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(testing::StartsWith("<!doctype html>"), testing::EndsWith("</html>\n")));
}

TEST_F(ReportTest, WhatIsNoRecordIsAnErrorAndLeavesTheOldPage) {
  const std::string page = write("report.html", "old");
  for (const std::string& file :
       {write("other.json", "{\"rows\": 1}"), write("broken.json", "{"), path("none.json"), folder_}) {
    const RunResult result = run({"report", file, "--html", page});
    EXPECT_EQ(result.status, 1) << file;
    EXPECT_THAT(result.err, AllOf(HasSubstr("octile: error: "), HasSubstr(file)));
    EXPECT_EQ(read_file(page), "old");
  }
}

TEST_F(ReportTest, WithoutAFileOrAPageItIsWrongUsage) {
  EXPECT_EQ(run({"report", "--html", path("r.html")}).status, 2);
  const RunResult result = run({"report", shipped_record()});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--html is required"));
}

TEST_F(ReportTest, APlaceThatCannotBeWrittenToIsNamedBeforeAnythingIsMeasured) {
  const std::string file = write("file", "kept");
  // Far more work than the test's time-out allows.
  const std::vector<std::string> work = {"--n", "16384", "--k", "16384", "--m", "4096"};
  const std::vector<std::vector<std::string>> cases = {
      {"tune", "--html"}, {"bench", "--html"}, {"bench", "--csv"}, {"bench", "--json"}};
  for (const std::vector<std::string>& command : cases) {
    for (const std::string& place : {file + "/report", folder_}) {
      std::vector<std::string> arguments = command;
      arguments.push_back(place);
      arguments.insert(arguments.end(), work.begin(), work.end());
      if (command[0] == "tune") {
        arguments.insert(arguments.end(), {"--tables", path("tables")});
      }
      const RunResult result = run(arguments, {.timeout_s = 20});
      EXPECT_EQ(result.status, 1) << command[0] << command[1];
      EXPECT_THAT(result.err, AllOf(HasSubstr("octile: error: cannot "), HasSubstr(place == folder_ ? folder_ : file)));
      EXPECT_THAT(result.err, Not(HasSubstr("elapsed")));
      EXPECT_EQ(result.out, "");
    }
  }
  EXPECT_EQ(read_file(file), "kept");
  EXPECT_FALSE(std::filesystem::exists(path("tables")));
}

}  // namespace
}  // namespace octile::cli
