// SPDX-License-Identifier: Apache-2.0
// `octile explain` on the published L40S tables, which no test machine needs to have.
#include "cli/command.h"

#include <nlohmann/json.hpp>

#include <filesystem>

#include <gmock/gmock.h>

namespace octile::cli {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

const std::vector<std::string> kFields = {"device_name", "n",         "k",      "m",        "choice", "kernel", "config",
                                          "table_file",  "table_key", "reason", "measured", "stale",  "bytes"};

class ExplainTest : public CommandTest {
 protected:
  Json on_l40s(int n, int k, const std::string& m, const Invocation& invocation = {}) const {
    return run_json(
        {"explain", "--n", std::to_string(n), "--k", std::to_string(k), "--m", m, "--device-name", "NVIDIA_L40S", "--json"},
        invocation);
  }
};

TEST_F(ExplainTest, OnePointIsOneObjectWithExactlyTheDocumentedFields) {
  const Json object = on_l40s(4096, 4096, "1");
  ASSERT_TRUE(object.is_object());
  EXPECT_EQ(keys_of(object), kFields);
  EXPECT_EQ(object["device_name"], "NVIDIA_L40S");
  EXPECT_EQ(object["n"], 4096);
  EXPECT_EQ(object["k"], 4096);
  EXPECT_EQ(object["m"], 1);
  EXPECT_EQ(object["choice"], "tile");
  EXPECT_EQ(object["config"],
            (Json{{"BLOCK_SIZE_M", 16}, {"BLOCK_SIZE_N", 32}, {"BLOCK_SIZE_K", 1024}, {"num_warps", 4}, {"num_stages", 1}}));
  EXPECT_TRUE(std::filesystem::equivalent(object["table_file"].get<std::string>(), l40s_table(4096, 4096)));
  EXPECT_EQ(object["table_key"], "1");
  EXPECT_TRUE(object["measured"].is_null());
  EXPECT_EQ(object["stale"], false);
  EXPECT_EQ(object["bytes"], 4096 * 4096 + 4 * 4096);
}

TEST_F(ExplainTest, TheNearestKeyServesAndATieGoesToTheFirst) {
  const std::map<int, std::string> key_of = {{1, "1"},     {3, "2"},       {6, "4"},       {7, "8"},
                                             {12, "8"},    {13, "16"},     {257, "256"},   {384, "256"},
                                             {385, "512"}, {3072, "2048"}, {3073, "4096"}, {100000, "8192"}};
  for (const auto& [n, k] : {std::pair{4096, 4096}, {4096, 12288}, {24576, 4096}}) {
    const Json list = on_l40s(n, k, "1,3,6,7,12,13,257,384,385,3072,3073,100000");
    ASSERT_TRUE(list.is_array());
    ASSERT_EQ(list.size(), key_of.size());
    for (const Json& point : list) {
      EXPECT_EQ(keys_of(point), kFields);
      EXPECT_EQ(point["table_key"], key_of.at(point["m"])) << point.dump();
      // In this table null stands at 512, 1024 and 2048: the vendor won there.
      const bool null_key = n == 24576 && (point["m"] == 385 || point["m"] == 3072);
      if (!null_key) {
        EXPECT_EQ(point["choice"], "tile") << point.dump();
      } else {
        EXPECT_NE(point["choice"], "tile") << point.dump();
        EXPECT_NE(point["choice"], "vendor") << point.dump();
      }
    }
  }
}

TEST_F(ExplainTest, TextSaysFileEntryKernelAndWhy) {
  const RunResult result = run({"explain", "--n", "4096", "--k", "4096", "--m", "13", "--device-name", "NVIDIA L40S"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, testing::AllOf(HasSubstr("N=4096 K=4096 M=13 on NVIDIA_L40S"), HasSubstr("choice    tile"),
                                         HasSubstr("N=4096,K=4096,device_name=NVIDIA_L40S"), HasSubstr("entry     16"),
                                         HasSubstr("why       "), HasSubstr("16.0 MiB")));
}

TEST_F(ExplainTest, AModelIsExplainedLinearByLinear) {
  const Json list = run_json({"explain", "--model", "qwen3-8b", "--m", "1", "--device-name", "NVIDIA_L40S", "--json"});
  ASSERT_EQ(list.size(), 4U);
  EXPECT_EQ(list[0]["n"], 6144);
  // The fourth shape's table was never published.
  EXPECT_EQ(list[0]["table_key"], "");
  EXPECT_THAT(list[0]["reason"].get<std::string>(), HasSubstr("no table"));
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(list[i]["table_key"], "1");
  }
}

TEST_F(ExplainTest, TheKillSwitchLeavesTheTableAside) {
  const Json point = on_l40s(4096, 4096, "1", {.environment = {{"OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE", "off"}}});
  EXPECT_NE(point["choice"], "tile");
  EXPECT_EQ(point["table_file"], "");
}

TEST_F(ExplainTest, ACloseDeviceNameIsNamedAndNotUsed) {
  const Json point =
      run_json({"explain", "--n", "4096", "--k", "4096", "--m", "1", "--device-name", "NVIDIA_L40", "--json"});
  EXPECT_NE(point["choice"], "tile");
  EXPECT_EQ(point["table_file"], "");
  EXPECT_THAT(point["reason"].get<std::string>(), HasSubstr("NVIDIA_L40S"));
}

TEST_F(ExplainTest, UnderALimitOfMultiprocessorsEntriesServeThatCanBeHeldToIt) {
  const Json points = run_json({"explain", "--n", "6144", "--k", "4096", "--m", "1,16,64,128,512,4096", "--device-name",
                                "NVIDIA_H200", "--max-sms", "100", "--json"});
  int held = 0;
  for (const Json& point : points) {
    const auto reason = point["reason"].get<std::string>();
    if (point["kernel"] == "hopper_decode" || point["kernel"] == "hopper_wgmma") {
      EXPECT_THAT(reason, HasSubstr("held to 100 multiprocessors"));
      ++held;
    } else {
      EXPECT_THAT(reason, testing::AnyOf(HasSubstr("is asked to keep to 100"), HasSubstr("cannot be held to 100"),
                                         HasSubstr("the baseline won")));
    }
  }
  EXPECT_GT(held, 0);
}

TEST_F(ExplainTest, PreciseSumsAreNotServedByEntriesOfFastOnes) {
  std::vector<std::string> command{"explain", "--n",           "6144",        "--k",          "4096", "--m",
                                   "16",      "--device-name", "NVIDIA_H200", "--accumulate", "fast", "--json"};
  EXPECT_EQ(run_json(command)["choice"], "tile");
  command[command.size() - 2] = "precise";
  const Json point = run_json(command);
  EXPECT_NE(point["choice"], "tile");
  EXPECT_THAT(point["reason"].get<std::string>(), HasSubstr("accumulate=fast, asked was accumulate=precise"));
}

TEST_F(ExplainTest, SlabsOfADeviceThatIsNotHereHaveNoBaselineAndWhatServesIsNotKnown) {
  const Json point = run_json({"explain", "--n", "6144", "--k", "4096", "--m", "16", "--device-name", "NVIDIA_H200",
                               "--layout", "slab64", "--json"});
  EXPECT_EQ(point["choice"], "heuristic");
  EXPECT_EQ(point["kernel"], "unknown");
  EXPECT_THAT(point["reason"].get<std::string>(),
              testing::AllOf(HasSubstr("a baseline reads row-major weights, asked for is slab64"),
                             HasSubstr("known only where NVIDIA_H200 is")));
}

TEST_F(ExplainTest, AnAliasUsesItOnPurpose) {
  const Json point = run_json({"explain", "--n", "4096", "--k", "4096", "--m", "1", "--device-name", "NVIDIA_L40", "--json"},
                              {.environment = {{"OCTILE_DEVICE_NAME_ALIAS", "NVIDIA_L40=NVIDIA_L40S"}}});
  EXPECT_EQ(point["choice"], "tile");
}

TEST_F(ExplainTest, TablesOfTheOptionComeFirst) {
  const std::string file =
      write("t/N=4096,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json",
            R"({"5": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "num_warps": 4, "num_stages": 3}})");
  const Json point = run_json({"explain", "--n", "4096", "--k", "4096", "--m", "1", "--device-name", "NVIDIA_L40S",
                               "--tables", path("t"), "--json"});
  EXPECT_EQ(point["table_file"], file);
  EXPECT_EQ(point["table_key"], "5");
}

TEST_F(ExplainTest, ABadTableIsLeftOutAndNamed) {
  write("t/N=4096,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json", R"({"1": {"BLOCK_SIZE_M": 16}})");
  const RunResult result = run({"explain", "--n", "4096", "--k", "4096", "--m", "1", "--device-name", "NVIDIA_L40S",
                                "--tables", path("t"), "--json"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("BLOCK_SIZE_N"));
  EXPECT_FALSE(Json::parse(result.out, nullptr, false).is_discarded());
}

TEST_F(ExplainTest, TheCpuIsExplainedWithoutATable) {
  const Json point = run_json({"explain", "--n", "192", "--k", "160", "--m", "3", "--json"});
  EXPECT_EQ(keys_of(point), kFields);
  EXPECT_THAT(point["choice"].get<std::string>(), testing::AnyOf("baseline", "heuristic"));
  EXPECT_NE(point["kernel"], "");
  EXPECT_NE(point["reason"], "");
  // Codes and scales at least.
  EXPECT_GE(point["bytes"].get<int>(), 192 * 160 + 192 * 4);
}

}  // namespace
}  // namespace octile::cli
