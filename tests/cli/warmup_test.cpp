// SPDX-License-Identifier: Apache-2.0
// `octile warmup`: compiles ahead what tables need, for a GPU that is not here, and says what it cannot do.
#include "octile/kernels/cuda/nvrtc.h"

#include "cli/command.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>

namespace octile::cli {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class WarmupTest : public CommandTest {
 protected:
  Invocation with_cache() const {
    Invocation options;
    options.environment["OCTILE_CACHE_DIR"] = path("cache");
    if (const char* wheels = std::getenv("VIRTUAL_ENV"); wheels != nullptr) {
      options.environment["VIRTUAL_ENV"] = wheels;
    }
    return options;
  }
};

TEST_F(WarmupTest, CompilesOnceForADeviceThatIsNotHereAndExports) {
  if (const auto api = cuda::nvrtc(); !api) {
    GTEST_SKIP() << api.error().message;
  }
  const std::vector<std::string> command = {"warmup",      "--n",      "4096",           "--k",   "4096", "--device-name",
                                            "NVIDIA_L40S", "--tables", l40s_directory(), "--json"};
  const Json first = run_json(command, with_cache());
  EXPECT_THAT(keys_of(first),
              testing::ElementsAre("device_name", "arch", "kernels", "compiled", "cached", "exported", "failures"));
  EXPECT_EQ(first["arch"], "sm_89");
  EXPECT_EQ(first["failures"], Json::array());
  EXPECT_GE(first["kernels"], 10) << "the quantiser and the tiles of the published table";
  EXPECT_EQ(first["compiled"], first["kernels"]);

  std::vector<std::string> exporting = command;
  exporting.insert(exporting.end() - 1, {"--export", path("cubins")});
  const Json second = run_json(exporting, with_cache());
  EXPECT_EQ(second["compiled"], 0);
  EXPECT_EQ(second["cached"], second["kernels"]);
  EXPECT_EQ(second["exported"], second["kernels"]);
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(path("cubins"))) {
    files += file.is_regular_file() ? 1 : 0;
  }
  EXPECT_GE(files, second["exported"].get<std::size_t>());
}

// A table of precise sums serves both kinds of linears, with kernels of their own.
TEST_F(WarmupTest, PreciseSumsHaveKernelsOfTheirOwn) {
  if (const auto api = cuda::nvrtc(); !api) {
    GTEST_SKIP() << api.error().message;
  }
  const std::string name = "N=8192,K=3584,device_name=NVIDIA_H200,dtype=fp8_w8a8_channelwise.octile.json";
  Json table = Json::parse(read_file(std::string(OCTILE_TEST_SOURCE_DIR) + "/tables/NVIDIA_H200/" + name), nullptr, false);
  table["key"]["accumulate"] = "precise";
  const Json all = table["entries"];
  table["entries"] = Json::array({all.front(), all.back()});
  ASSERT_EQ(all.front()["kernel"], "hopper_decode");
  ASSERT_EQ(all.back()["kernel"], "baseline");
  write(name, table.dump());
  std::vector<std::string> command = {"warmup",        "--n",         "8192",     "--k",    "3584",
                                      "--device-name", "NVIDIA_H200", "--tables", path(""), "--json=-"};
  const Json fast = run_json(command, with_cache());
  EXPECT_EQ(fast["failures"], Json::array());
  EXPECT_EQ(fast["compiled"], fast["kernels"]);
  command.insert(command.end() - 1, {"--accumulate", "precise"});
  const Json precise = run_json(command, with_cache());
  EXPECT_EQ(precise["failures"], Json::array());
  EXPECT_EQ(precise["compiled"], 1) << "the product; what quantises is there: " << precise.dump();
  EXPECT_EQ(precise["kernels"], fast["kernels"]);
}

TEST_F(WarmupTest, ADeviceOfUnknownArchitectureIsRefusedByName) {
  const RunResult result = run({"warmup", "--n", "64", "--k", "64", "--device-name", "NVIDIA_Unheard_Of"}, with_cache());
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, HasSubstr("NVIDIA_Unheard_Of"));
}

TEST_F(WarmupTest, OnACpuThereIsNothingToCompile) {
  const RunResult result = run({"warmup", "--n", "64", "--k", "64", "--device", "cpu"}, with_cache());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("nothing to compile"));
}

TEST_F(WarmupTest, AnExportThatCannotBeWrittenIsStatusOneWithThePath) {
  if (const auto api = cuda::nvrtc(); !api) {
    GTEST_SKIP() << api.error().message;
  }
  const std::string file = write("a_file", "");
  const std::vector<std::string> command = {"warmup",        "--n",         "64",       "--k",           "64",
                                            "--device-name", "NVIDIA_H200", "--export", file + "/cubins"};
  const RunResult first = run(command, with_cache());
  EXPECT_EQ(first.status, 1);
  EXPECT_THAT(first.err, HasSubstr(file));
  EXPECT_THAT(first.out, HasSubstr(" 0 found in the cache")) << "a failed export is no kernel";
  const RunResult second = run(command, with_cache());
  EXPECT_EQ(second.status, 1);
  int kernels = 0;
  int cached = 0;
  EXPECT_EQ(std::sscanf(second.out.c_str(), "NVIDIA_H200: %d kernels, 0 compiled now, %d found", &kernels, &cached), 2)
      << second.out;
  EXPECT_EQ(cached, kernels);
}

}  // namespace
}  // namespace octile::cli
