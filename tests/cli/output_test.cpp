// SPDX-License-Identifier: Apache-2.0
// Output that cannot be written, and JSON to files.
#include "cli/command.h"
#include "octile/core/format.h"

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

TEST_F(OutputTest, ALimitOnTheSizeOfFilesIsAnErrorAndLeavesTheOldFile) {
  const std::string old = write("env.json", "old");
  const std::string command = OCTILE_TEST_COMMAND;
  const RunResult result = run({"-c", "ulimit -f 0; exec " + command + " env --json " + old}, {.program = "/bin/sh"});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, testing::AllOf(HasSubstr("octile: error: cannot write"), HasSubstr("File too large")));
  EXPECT_EQ(read_file(old), "old");
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

// By its descriptor: what stdout was redirected to is neither replaced nor written from its start.
TEST_F(OutputTest, StandardOutputNamedAsAFileIsAppendedToWhateverItIs) {
  const std::string command = OCTILE_TEST_COMMAND;
  for (const std::string name : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    const std::string log = write("log", "kept\n");
    const RunResult result = run({"-c", octile::format("{} env --json {} >> {}", command, name, log)},
                                 {.directory = folder_, .program = "/bin/sh"});
    EXPECT_EQ(result.status, 0) << result.err;
    const std::string text = read_file(log);
    EXPECT_TRUE(text.starts_with("kept\n[")) << text.substr(0, 40);
    EXPECT_THAT(text, testing::AllOf(HasSubstr("\"source\": \"default\""), HasSubstr("Dispatch\n")));
    EXPECT_EQ(run({"env", "--json", name}, {.standard_output = Stdout::closed}).status, 1) << name;
  }
  const RunResult error = run({"env", "--json", "/dev/stderr"});
  EXPECT_THAT(error.err, HasSubstr("\"source\": \"default\""));
  EXPECT_EQ(run({"env", "--json", "/dev/fd/77"}).status, 1);
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

constexpr const char* kOneLayer = R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
  "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100, "num_hidden_layers": 1})";

// Whatever way its path is written.
TEST_F(OutputTest, AResultNeverReplacesAFileThatTheCommandReads) {
  const std::string config = write("model/config.json", kOneLayer);
  const std::string kept = write("kept", "kept");
  const std::string link = path("link");
  std::filesystem::create_symlink("kept", link);
  const std::vector<std::vector<std::string>> cases = {
      {"report", kept, "--html", kept},
      {"report", link, "--html", kept},
      {"report", kept, "--html", link},
      {"report", path("model/../kept"), "--html", path("./kept")},
      {"report", "kept", "--html", kept},
      {"bench", "--n", "64", "--k", "64", "--compare", kept, "--csv", kept},
      {"bench", "--n", "64", "--k", "64", "--compare", kept, "--html", kept},
      {"bench", "--n", "64", "--k", "64", "--compare", kept, "--json", kept},
      {"tune", "--from-log", kept, "--html", kept},
      {"explain", "--m", "1", "--model", config, "--json", config},
      {"explain", "--m", "1", "--model", path("model"), "--json", config},
      {"table", "lint", kept, "--json=" + kept},
  };
  for (const std::vector<std::string>& arguments : cases) {
    const RunResult result = run(arguments, {.directory = folder_});
    const std::string line = testing::PrintToString(arguments);
    EXPECT_EQ(result.status, 2) << line;
    EXPECT_EQ(result.out, "") << line;
    EXPECT_THAT(result.err, testing::AllOf(HasSubstr("would replace"), HasSubstr("reads"))) << line;
    EXPECT_EQ(read_file(kept), "kept") << line;
    EXPECT_EQ(read_file(config), kOneLayer) << line;
  }
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST_F(OutputTest, TwoResultsDoNotGoIntoOneFile) {
  const std::string first = path("result");
  const std::string again = path("./result");
  const std::vector<std::string> work = {"bench", "--n", "64", "--k", "64", "--m", "1"};
  const std::vector<std::vector<std::string>> cases = {
      {"--json", first, "--csv", again}, {"--json", first, "--html", again}, {"--csv", first, "--html", again}};
  for (const std::vector<std::string>& outputs : cases) {
    std::vector<std::string> arguments = work;
    arguments.insert(arguments.end(), outputs.begin(), outputs.end());
    const RunResult result = run(arguments);
    EXPECT_EQ(result.status, 2) << testing::PrintToString(outputs);
    EXPECT_THAT(result.err, testing::AllOf(HasSubstr("would both write"), HasSubstr(outputs[0]), HasSubstr(outputs[2])));
    EXPECT_FALSE(std::filesystem::exists(first));
  }
}

TEST_F(OutputTest, ADashIsNoFileOfReports) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"report", "record", "--html", "-"},
                                                    {"bench", "--n", "64", "--k", "64", "--csv", "-"},
                                                    {"bench", "--n", "64", "--k", "64", "--html", "-"},
                                                    {"tune", "--n", "64", "--k", "64", "--html", "-"}}) {
    const RunResult result = run(arguments, {.directory = folder_});
    EXPECT_EQ(result.status, 2) << testing::PrintToString(arguments);
    EXPECT_THAT(result.err, HasSubstr("standard output is /dev/stdout"));
    EXPECT_FALSE(std::filesystem::exists(path("-")));
  }
}

}  // namespace
}  // namespace octile::cli
