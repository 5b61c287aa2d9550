// SPDX-License-Identifier: Apache-2.0
// Output that cannot be written, and JSON to files.
#include "cli/command.h"

#include <nlohmann/json.hpp>

#include <filesystem>

#include <gmock/gmock.h>

namespace octile::cli {
namespace {

using testing::HasSubstr;
using OutputTest = CommandTest;

TEST_F(OutputTest, AReaderThatWentAwayIsAnError) {
  const RunResult result = run({"env"}, {.standard_output = Stdout::pipe_without_reader});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write to standard output: Broken pipe"));
}

TEST_F(OutputTest, AFullDiskIsAnError) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"env"}, {"env", "--json"}, {"--help"}, {"--version"}, {"completion", "bash"}}) {
    const RunResult result = run(arguments, {.standard_output = Stdout::full_device});
    EXPECT_EQ(result.status, 1) << arguments.back();
    EXPECT_THAT(result.err, HasSubstr("No space left on device"));
  }
}

TEST_F(OutputTest, AClosedStdoutIsAnErrorAndNoFileTakesItsPlace) {
  const RunResult result = run({"env", "--json", path("env.json")}, {.standard_output = Stdout::closed});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write to standard output"));
  EXPECT_FALSE(nlohmann::json::parse(read_file(path("env.json")), nullptr, false).is_discarded());
}

TEST_F(OutputTest, JsonToAFileLeavesTheTextOnStdout) {
  const RunResult result = run({"env", "--json", path("deep/er/env.json")});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("OCTILE_TABLE_PATH"));
  EXPECT_TRUE(nlohmann::json::parse(read_file(path("deep/er/env.json")), nullptr, false).is_array());
  // No temporary file stays.
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path("deep/er"))) {
    ++files;
    EXPECT_EQ(entry.path().filename(), "env.json");
  }
  EXPECT_EQ(files, 1U);
}

TEST_F(OutputTest, JsonWithoutAFileReplacesTheText) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"env", "--json"}, {"env", "--json", "-"}, {"env", "--json=-"}}) {
    EXPECT_TRUE(run_json(arguments).is_array());
  }
}

TEST_F(OutputTest, JsonToAnUnwritablePlaceIsAnErrorThatNamesIt) {
  const std::string file = write("file", "");
  const RunResult result = run({"env", "--json", file + "/env.json"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr(file));
  EXPECT_EQ(run({"env", "--json", folder_}).status, 1);
}

TEST_F(OutputTest, JsonIntoADeviceIsWrittenAndLeavesTheDevice) {
  const RunResult full = run({"env", "--json", "/dev/full"});
  EXPECT_EQ(full.status, 1);
  EXPECT_THAT(full.err, HasSubstr("No space left on device"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  const RunResult out = run({"env", "--json", "/dev/stdout"});
  EXPECT_EQ(out.status, 0) << out.err;
  EXPECT_THAT(out.out, HasSubstr("\"source\": \"default\""));
}

TEST_F(OutputTest, AfterTableAFileOfJsonNeedsTheEqualsSign) {
  // "--json FILE" would write the report over the table that was to be read.
  const std::string table = write("t/N=64,K=64,device_name=X,dtype=fp8_w8a8_channelwise.json", "not a table");
  const RunResult bare = run({"table", "lint", "--json", table});
  EXPECT_EQ(bare.status, 1);
  EXPECT_EQ(read_file(table), "not a table");
  EXPECT_FALSE(nlohmann::json::parse(bare.out, nullptr, false).is_discarded()) << bare.out;
  const RunResult named = run({"table", "lint", table, "--json=" + path("lint.json")});
  EXPECT_EQ(named.status, 1);
  EXPECT_EQ(read_file(table), "not a table");
  EXPECT_FALSE(nlohmann::json::parse(read_file(path("lint.json")), nullptr, false).is_discarded());
}

}  // namespace
}  // namespace octile::cli
