// SPDX-License-Identifier: Apache-2.0
// Arguments and environment variables, right and wrong: exit status, and what goes to which stream.
#include "cli/command.h"

#include <gmock/gmock.h>

namespace octile::cli {
namespace {

using testing::HasSubstr;
using UsageTest = CommandTest;

TEST_F(UsageTest, HelpGoesToStdoutAndSaysHowToStart) {
  const RunResult result = run({"--help"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  for (const char* word : {"devices", "tune", "bench", "report", "verify", "explain", "warmup", "cache", "table", "env",
                           "completion", "qwen3-8b", "octile tune  --model qwen3-8b --time-budget 2m", "Exit status"}) {
    EXPECT_THAT(result.out, HasSubstr(word));
  }
  EXPECT_THAT(result.out, testing::Not(HasSubstr("worker")));
}

TEST_F(UsageTest, EveryCommandHasHelp) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"devices"},
                                                  {"tune"},
                                                  {"bench"},
                                                  {"report"},
                                                  {"verify"},
                                                  {"explain"},
                                                  {"warmup"},
                                                  {"cache"},
                                                  {"env"},
                                                  {"completion"},
                                                  {"table"},
                                                  {"table", "lint"},
                                                  {"table", "show"},
                                                  {"table", "diff"},
                                                  {"table", "merge"},
                                                  {"table", "import"},
                                                  {"table", "export"}}) {
    std::vector<std::string> arguments = command;
    arguments.push_back("--help");
    const RunResult result = run(arguments);
    EXPECT_EQ(result.status, 0) << command.back();
    EXPECT_THAT(result.out, HasSubstr("octile")) << command.back();
    EXPECT_EQ(result.err, "");
  }
}

TEST_F(UsageTest, CommandsForADeviceThatNeedNotBeHereTakeItsIdOrItsName) {
  struct Case {
    const char* command;
    const char* fallback;
    const char* name;
  };
  for (const Case& c :
       {Case{"explain", "cpu (default)", "A device that"}, Case{"warmup", "cuda:0 (default)", "A GPU that"}}) {
    const RunResult help = run({c.command, "--help"});
    EXPECT_THAT(help.out, testing::AllOf(HasSubstr("--device ID"), HasSubstr(c.fallback), HasSubstr("--device-name NAME"),
                                         HasSubstr(c.name)))
        << c.command;
    std::vector<std::string> both_given = {c.command, "--n",           "64",         "--k", "64", "--device",
                                           "cuda:0",  "--device-name", "NVIDIA_L40S"};
    if (c.command == std::string_view("explain")) {
      both_given.insert(both_given.end(), {"--m", "1"});
    }
    const RunResult both = run(both_given);
    EXPECT_EQ(both.status, 2) << c.command;
    EXPECT_THAT(both.err, testing::AllOf(HasSubstr("--device-name"), HasSubstr("excludes"))) << c.command;
  }
}

TEST_F(UsageTest, TheVersionIsPrinted) {
  const RunResult result = run({"--version"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "octile " OCTILE_VERSION "\n");
}

TEST_F(UsageTest, WrongArgumentsAreStatusTwoWithAMessageOnStderrAlone) {
  struct Case {
    std::vector<std::string> arguments;
    const char* message;
  };
  const Case cases[] = {
      {{}, "no command given; commands: devices, tune"},
      {{"tuna"}, "no command \"tuna\" (did you mean tune?)"},
      {{"--nonsense"}, "--nonsense"},
      {{"devices", "surplus"}, "surplus"},
      {{"devices", "env"}, "env"},
      {{"explain", "--m", "1", "--m", "2", "--model", "qwen3-8b"}, "--m"},
      {{"env", "--json", "--json"}, "--json"},
      {{"devices", "--nonsense"}, "--nonsense"},
      {{"table"}, "A subcommand is required"},
      {{"table", "lint"}, "FILE is required"},
      {{"table", "diff", "one"}, "RIGHT is required"},
      {{"table", "merge", "a.json"}, "--out is required"},
      {{"explain", "--model", "qwen3-8b"}, "--m is required"},
      {{"explain", "--m", "1"}, "nothing to work on: give --model, or both --n and --k"},
      {{"explain", "--m", "1", "--n", "64"}, "--k is missing"},
      {{"explain", "--m", "1", "--k", "64"}, "--n is missing"},
      {{"explain", "--m", "1", "--model", "qwen3-8b", "--n", "64", "--k", "64"}, "--model does not go with --n and --k"},
      {{"explain", "--m", "1", "--n", "64", "--k", "64", "--tp", "2"}, "--tp divides the linears of a --model"},
      {{"explain", "--m", "0", "--model", "qwen3-8b"}, "--m: wanted a whole number from 1 to 1048576, got \"0\""},
      {{"explain", "--m", "abc", "--model", "qwen3-8b"}, "got \"abc\""},
      {{"explain", "--m", "", "--model", "qwen3-8b"}, "got \"\""},
      {{"explain", "--m=-3", "--model", "qwen3-8b"}, "got \"-3\""},
      {{"explain", "--m", "-3", "--model", "qwen3-8b"}, "--m"},
      {{"explain", "--m", "1,,2", "--model", "qwen3-8b"}, "got \"\""},
      {{"explain", "--m", "1,2,", "--model", "qwen3-8b"}, "got \"\""},
      {{"explain", "--m", "1, 2", "--model", "qwen3-8b"}, "got \" 2\""},
      {{"explain", "--m", "1.5", "--model", "qwen3-8b"}, "got \"1.5\""},
      {{"explain", "--m", "4,1,4", "--model", "qwen3-8b"}, "wanted each M once, got 4 twice"},
      {{"explain", "--m", "1048577", "--model", "qwen3-8b"}, "got \"1048577\""},
      {{"explain", "--m", "99999999999999999999", "--model", "qwen3-8b"}, "got \"99999999999999999999\""},
      {{"explain", "--m", "1", "--n", "0", "--k", "64"}, "--n: wanted a whole number"},
      {{"explain", "--m", "1", "--n", "64", "--k", "99999999999"}, "--k: wanted a whole number"},
      {{"explain", "--m", "1", "--model", "qwen3-9b"}, "did you mean qwen3-"},
      {{"explain", "--m", "1", "--model", "qwen3-8b", "--tp", "3"}, "32 attention heads do not divide by 3 ranks"},
      {{"explain", "--m", "1", "--model", "qwen3-8b", "--tp", "0"}, "--tp: wanted a whole number from 1 to 1024"},
      {{"explain", "--m", "1", "--model", "qwen3-8b", "--device-name", "a/../b"}, "--device-name"},
      {{"explain", "--m", "1", "--model", "qwen3-8b", "--device", "cpu", "--device-name", "NVIDIA_L40S"}, "excludes"},
      {{"tune", "--model", "qwen3-8b", "--time-budget", "0"}, "--time-budget: wanted a span of time"},
      {{"tune", "--model", "qwen3-8b", "--time-budget", "-5s"}, "--time-budget"},
      {{"tune", "--model", "qwen3-8b", "--time-budget", "5 parsecs"}, "got \"5 parsecs\""},
      {{"tune", "--model", "qwen3-8b", "--time-budget", "nan"}, "got \"nan\""},
      {{"tune", "--model", "qwen3-8b", "--time-budget", "1e9"}, "got \"1e9\""},
      {{"tune", "--model", "qwen3-8b", "--time-budget", "999h"}, "at most 168h"},
      {{"tune", "--model", "qwen3-8b", "--seed", "x"}, "--seed"},
      {{"tune"}, "nothing to work on"},
      {{"bench", "--model", "qwen3-8b", "--scope", "everything"}, "--scope"},
      {{"bench", "--model", "qwen3-8b", "--record", "../escape"}, "--record: wanted a file name"},
      {{"bench", "--model", "qwen3-8b", "--max-sms", "0"}, "--max-sms: wanted a whole number from 1"},
      {{"bench", "--model", "qwen3-8b", "--m", "1", "--max-sms", "8"}, "max_sms: want 0 on a CPU"},
      {{"tune", "--model", "qwen3-8b", "--m", "1", "--max-sms", "8"}, "max_sms: want 0 on a CPU"},
      {{"explain", "--model", "qwen3-8b", "--m", "1", "--max-sms", "8"}, "max_sms: want 0 on a CPU"},
      {{"explain", "--model", "qwen3-8b", "--m", "1", "--device-name", "NVIDIA_H200", "--max-sms", "133"},
       "want 1 to the 132 multiprocessors"},
      {{"bench", "--model", "qwen3-8b", "--max-m", "64"}, "--max-m requires --all-m"},
      {{"bench", "--model", "qwen3-8b", "--all-m", "--max-m", "0"}, "--max-m: wanted a whole number from 1"},
      {{"bench", "--model", "qwen3-8b", "--all-m", "--m", "1", "--max-m", "64"}, "--m excludes --max-m"},
      {{"completion"}, "SHELL is required"},
      {{"completion", "powershell"}, "powershell"},
      {{"table", "lint", l40s_directory(), "--device-name", "nothing like it"}, "nothing is known of a device"},
      {{"table", "export", l40s_table(4096, 4096), "--out", "somewhere"}, "--triton is the only one"},
  };
  for (const Case& c : cases) {
    const RunResult result = run(c.arguments);
    const std::string line = testing::PrintToString(c.arguments);
    EXPECT_EQ(result.status, 2) << line << result.err;
    EXPECT_EQ(result.out, "") << line;
    EXPECT_THAT(result.err, HasSubstr("octile: error: ")) << line;
    EXPECT_THAT(result.err, HasSubstr(c.message)) << line;
  }
}

// As a shell's unset variable in quotes gives them: none may pass for "not given".
TEST_F(UsageTest, AnEmptyValueIsStatusTwoInEveryOption) {
  const std::vector<std::string> shape = {"--n", "64", "--k", "64"};
  const std::vector<std::string> point = {"--n", "64", "--k", "64", "--m", "1"};
  const std::string file = write("file", "");
  struct Command {
    std::vector<std::string> words;
    std::vector<std::string> arguments;
    std::vector<std::string> options;
  };
  const Command commands[] = {
      {{"explain"},
       point,
       {"--device", "--device-name", "--tables", "--json", "--accumulate", "--out-dtype", "--layout", "--max-sms"}},
      {{"explain", "--m", "1"}, {}, {"--model", "--n", "--k", "--tp"}},
      {{"tune"},
       point,
       {"--device", "--devices", "--tables", "--html", "--from-log", "--shard", "--time-budget", "--seed", "--scope",
        "--numerics", "--pdl"}},
      {{"bench"}, point, {"--device", "--tables", "--html", "--csv", "--compare", "--record", "--json"}},
      {{"verify"}, shape, {"--device", "--tables", "--json"}},
      {{"warmup"}, shape, {"--device", "--device-name", "--tables", "--export", "--json"}},
      {{"report"}, {file}, {"--html"}},
      {{"report", "--html", path("r.html")}, {}, {""}},
      {{"cache"}, {}, {"--limit", "--json"}},
      {{"devices"}, {}, {"--json"}},
      {{"table", "lint"}, {file}, {"--device-name", ""}},
      {{"table", "show"}, {}, {""}},
      {{"table", "diff"}, {file}, {""}},
      {{"table", "merge"}, {file}, {"--out"}},
      {{"table", "import"}, {file}, {"--out"}},
      {{"table", "adopt"}, {file}, {"--tables"}},
      {{"table", "export", "--triton"}, {file}, {"--out"}},
  };
  for (const Command& command : commands) {
    for (const std::string& option : command.options) {
      std::vector<std::string> arguments = command.words;
      arguments.insert(arguments.end(), command.arguments.begin(), command.arguments.end());
      if (!option.empty()) {
        arguments.push_back(option);
      }
      arguments.emplace_back();
      const RunResult result = run(arguments);
      const std::string line = testing::PrintToString(arguments);
      EXPECT_EQ(result.status, 2) << line << result.err;
      EXPECT_EQ(result.out, "") << line;
      EXPECT_THAT(result.err, HasSubstr("octile: error: ")) << line;
    }
  }
}

TEST_F(UsageTest, TablesThatAreLookedForWhereNoDirectoryIsAreStatusTwo) {
  const std::string file = write("file", "");
  const std::string missing = path("missing");
  for (const char* command : {"explain", "bench", "verify", "warmup"}) {
    for (const std::string& list : {missing, file, folder_ + ":" + missing}) {
      std::vector<std::string> arguments = {command, "--n", "64", "--k", "64", "--tables", list};
      if (command == std::string_view("explain")) {
        arguments.insert(arguments.end(), {"--m", "1"});
      }
      const RunResult result = run(arguments);
      EXPECT_EQ(result.status, 2) << command << " " << list;
      EXPECT_THAT(result.err,
                  testing::AllOf(HasSubstr("--tables: wanted directories, got"), HasSubstr(list == file ? file : missing)));
    }
  }
}

TEST_F(UsageTest, TheLaunchModeIsDocumentedAndAnotherValueIsRefusedWithTheThreeThatThereAre) {
  for (const char* command : {"tune", "bench"}) {
    const RunResult help = run({command, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_THAT(help.out, testing::AllOf(HasSubstr("--pdl {off,consume,full}"), HasSubstr("full (default)"))) << command;
    for (const char* value : {"sideways", "", "Full", "2"}) {
      const RunResult result = run({command, "--n", "64", "--k", "64", "--m", "1", "--pdl", value});
      EXPECT_EQ(result.status, 2) << command << " --pdl " << value;
      EXPECT_EQ(result.out, "");
      EXPECT_THAT(result.err, testing::AllOf(HasSubstr("octile: error: "), HasSubstr("--pdl"), HasSubstr(value),
                                             HasSubstr("off"), HasSubstr("consume"), HasSubstr("full")))
          << command;
    }
  }
  for (std::vector<std::string> command : {std::vector<std::string>{"verify"}, {"explain", "--m", "1"}, {"warmup"}}) {
    command.insert(command.end(), {"--n", "64", "--k", "64", "--pdl", "full"});
    const RunResult result = run(command);
    EXPECT_EQ(result.status, 2) << command[0] << " has no such option";
    EXPECT_THAT(result.err, HasSubstr("--pdl")) << command[0];
  }
}

TEST_F(UsageTest, AnUnknownDeviceListsThoseThatAreHere) {
  for (const char* command : {"explain", "tune", "bench"}) {
    const RunResult result = run({command, "--n", "64", "--k", "64", "--m", "1", "--device", "npu:7"});
    EXPECT_NE(result.status, 0) << command;
    EXPECT_THAT(result.err, testing::AllOf(HasSubstr("npu:7"), HasSubstr("cpu"))) << command;
  }
}

TEST_F(UsageTest, ABrokenConfigIsStatusTwo) {
  for (const std::string& content :
       {std::string(), std::string("{"), std::string("\xFF\xFE{\0", 4), std::string(100000, '[')}) {
    const RunResult result = run({"explain", "--m", "1", "--model", write("config.json", content)});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, testing::AllOf(HasSubstr("octile: error: --model: "), HasSubstr(path("config.json"))));
  }
}

TEST_F(UsageTest, AMixtureOfExpertsIsRefusedByName) {
  const std::string config = write("config.json", R"({"model_type": "mixtral", "num_local_experts": 8})");
  const RunResult result = run({"tune", "--model", config});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("model_type \"mixtral\" is not supported: it is a mixture of experts"));
}

TEST_F(UsageTest, AWrongEnvironmentVariableIsStatusTwoBeforeAnyWork) {
  struct Case {
    const char* name;
    const char* value;
    const char* words;
  };
  const Case cases[] = {
      {"OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE", "of", "on, off, true, false, 1, 0, yes, no"},
      {"SGLANG_ENABLE_FP8_GEMM_CONFIG_TUNE", "maybe", "on, off, true, false, 1, 0, yes, no"},
      {"OCTILE_ENABLE_FP8_GEMM_CONFIG_TUN", "off", "did you mean OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE?"},
      {"OCTILE_TABLES_PATH", "tables", "did you mean OCTILE_TABLE_PATH?"},
      {"OCTILE_NUM_THREADS", "many", "whole number from 0 to 1024"},
      {"OCTILE_LOG_LEVEL", "loud", "debug info warning error off"},
  };
  for (const Case& c : cases) {
    for (const std::vector<std::string>& arguments : {std::vector<std::string>{"devices"},
                                                      {"env"},
                                                      {"explain", "--model", "qwen3-8b", "--m", "1"},
                                                      {"tune", "--model", "qwen3-8b", "--tables", path("tables")},
                                                      {"table", "lint", l40s_directory()}}) {
      const RunResult result = run(arguments, {.environment = {{c.name, c.value}}});
      EXPECT_EQ(result.status, 2) << c.name << " " << arguments[0];
      EXPECT_EQ(result.out, "");
      EXPECT_THAT(result.err, testing::AllOf(HasSubstr(c.name), HasSubstr(c.words)));
    }
  }
}

TEST_F(UsageTest, HelpAndCompletionDoNotNeedARightEnvironment) {
  EXPECT_EQ(run({"--help"}, {.environment = {{"OCTILE_LOG_LEVEL", "loud"}}}).status, 0);
  EXPECT_EQ(run({"completion", "bash"}, {.environment = {{"OCTILE_LOG_LEVEL", "loud"}}}).status, 0);
}

TEST_F(UsageTest, AnEmptyEnvironmentVariableCountsAsUnset) {
  EXPECT_EQ(run({"env"}, {.environment = {{"OCTILE_LOG_LEVEL", ""}, {"OCTILE_NUM_THREADS", ""}}}).status, 0);
}

}  // namespace
}  // namespace octile::cli
