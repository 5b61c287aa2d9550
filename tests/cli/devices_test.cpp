// SPDX-License-Identifier: Apache-2.0
// `octile devices`.
#include "cli/command.h"

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>

namespace octile::cli {
namespace {

using DevicesTest = CommandTest;

TEST_F(DevicesTest, JsonHasExactlyTheDocumentedFields) {
  const auto list = run_json({"devices", "--json"});
  ASSERT_TRUE(list.is_array());
  ASSERT_GE(list.size(), 1U);
  for (const auto& device : list) {
    EXPECT_EQ(keys_of(device),
              (std::vector<std::string>{"id", "device_name", "kind", "arch", "families", "vendors", "overhead_bytes"}));
    EXPECT_EQ(device["overhead_bytes"].is_null(), device["kind"] == "cpu") << device.dump();
    if (!device["overhead_bytes"].is_null()) {
      EXPECT_LT(device["overhead_bytes"].get<std::int64_t>(), std::int64_t{64} << 20);
    }
    ASSERT_FALSE(device["families"].empty());
    for (const auto& family : device["families"]) {
      EXPECT_EQ(keys_of(family), (std::vector<std::string>{"name", "available", "reason"}));
      EXPECT_EQ(family["available"].get<bool>(), family["reason"].get<std::string>().empty()) << family.dump();
    }
    for (const auto& vendor : device["vendors"]) {
      EXPECT_EQ(keys_of(vendor), (std::vector<std::string>{"name", "version", "available", "reason"}));
      EXPECT_EQ(vendor["available"].get<bool>(), vendor["reason"].get<std::string>().empty()) << vendor.dump();
      EXPECT_EQ(vendor["available"].get<bool>(), !vendor["version"].get<std::string>().empty()) << vendor.dump();
    }
  }
}

TEST_F(DevicesTest, TheCpuIsAlwaysThereAndItsReferenceRuns) {
  const auto list = run_json({"devices", "--json"}, {.environment = {{"OCTILE_NUM_THREADS", "1"}}});
  const auto& cpu = list[0];
  EXPECT_EQ(cpu["id"], "cpu");
  EXPECT_EQ(cpu["kind"], "cpu");
  EXPECT_THAT(cpu["device_name"].get<std::string>(), testing::EndsWith("-1t"));
  bool reference = false;
  for (const auto& family : cpu["families"]) {
    reference = reference || (family["name"] == "reference" && family["available"].get<bool>());
  }
  EXPECT_TRUE(reference) << cpu.dump();
}

#ifdef OCTILE_FAKE_GPU
TEST_F(DevicesTest, GpusSayWhatMemoryIsTakenBeyondWeightsAndWorkspaces) {
  const Invocation fake_gpus = {.environment = {{"OCTILE_CUDA_PATH", OCTILE_FAKE_GPU}}};
  const auto list = run_json({"devices", "--json"}, fake_gpus);
  ASSERT_EQ(list.size(), 3U) << "the CPU, an H200 and an L40S";
  EXPECT_TRUE(list[0]["overhead_bytes"].is_null());
  for (std::size_t i = 1; i < list.size(); ++i) {
    EXPECT_GE(list[i]["overhead_bytes"].get<std::int64_t>(), std::int64_t{32} << 20);
    EXPECT_LT(list[i]["overhead_bytes"].get<std::int64_t>(), std::int64_t{64} << 20);
  }
  EXPECT_THAT(run({"devices"}, fake_gpus).out, testing::HasSubstr("device memory beyond weights and workspaces: at most "));
}
#endif

TEST_F(DevicesTest, TextNamesWhatTheJsonNames) {
  const auto list = run_json({"devices", "--json"});
  const RunResult text = run({"devices"});
  EXPECT_EQ(text.status, 0);
  for (const auto& device : list) {
    EXPECT_THAT(text.out, testing::HasSubstr(device["device_name"].get<std::string>()));
    for (const auto& family : device["families"]) {
      EXPECT_THAT(text.out, testing::HasSubstr(family["name"].get<std::string>()));
    }
  }
}

}  // namespace
}  // namespace octile::cli
