// SPDX-License-Identifier: Apache-2.0
// What `octile devices` says of the CUTLASS component, with the fake driver's H200 and L40S.
#include "cli/command.h"

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>

namespace octile::cli {
namespace {

using CutlassTest = CommandTest;
using testing::HasSubstr;

nlohmann::ordered_json vendor_of(const nlohmann::ordered_json& devices, const std::string& device) {
  for (const auto& entry : devices) {
    for (const auto& vendor : entry["vendors"]) {
      if (entry["device_name"] == device && vendor["name"] == "cutlass") {
        return vendor;
      }
    }
  }
  ADD_FAILURE() << "no vendor cutlass on " << device << ": " << devices.dump();
  return {};
}

std::map<std::string, std::string> with_component(const std::string& path) {
  return {{"OCTILE_CUDA_PATH", OCTILE_FAKE_GPU}, {"OCTILE_CUTLASS_PATH", path}};
}

TEST_F(CutlassTest, AGoodComponentIsAvailableOnSm89WithItsVersion) {
  const auto list =
      run_json({"devices", "--json"}, {.environment = with_component(OCTILE_FAKE_CUTLASS "/libfake_cutlass_good.so")});
  const auto vendor = vendor_of(list, "NVIDIA_L40S");
  EXPECT_TRUE(vendor["available"].get<bool>()) << vendor.dump();
  EXPECT_EQ(vendor["version"], "4.2.0");
  const auto hopper = vendor_of(list, "NVIDIA_H200");
  EXPECT_FALSE(hopper["available"].get<bool>());
  EXPECT_THAT(hopper["reason"].get<std::string>(), HasSubstr("sm_89 and sm_120"));
}

TEST_F(CutlassTest, AnOldAndAnAbsentComponentSayWhy) {
  const auto old =
      run_json({"devices", "--json"}, {.environment = with_component(OCTILE_FAKE_CUTLASS "/libfake_cutlass_old.so")});
  EXPECT_FALSE(vendor_of(old, "NVIDIA_L40S")["available"].get<bool>());
  EXPECT_THAT(vendor_of(old, "NVIDIA_L40S")["reason"].get<std::string>(), HasSubstr("want component interface 1, got 0"));
  const auto absent = run_json({"devices", "--json"}, {.environment = with_component(path("nowhere.so"))});
  EXPECT_THAT(vendor_of(absent, "NVIDIA_L40S")["reason"].get<std::string>(), HasSubstr("not found: " + path("nowhere.so")));
  const RunResult text = run({"devices"}, {.environment = with_component(path("nowhere.so"))});
  EXPECT_THAT(text.out, HasSubstr("nowhere.so"));
}

}  // namespace
}  // namespace octile::cli
