// SPDX-License-Identifier: Apache-2.0
// Choices for devices that are not present, from the published L40S tables that the library ships.
#include "octile/kernels/known_devices.h"
#include "octile/linear/choose.h"
#include "octile/linear/explain.h"
#include "octile/table/field_format.h"
#include "support/log_capture.h"
#include "tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace octile {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kShipped = std::string(OCTILE_TEST_SOURCE_DIR) + "/tables";

Plan plan_for(const char* device_name, std::int64_t n, std::int64_t k) {
  Problem problem;
  problem.n = n;
  problem.k = k;
  DeviceInfo device;
  device.name = device_name;
  device.kind = DeviceKind::cuda;
  return Plan::make(nullptr, known_device(device_name).value_or(device), problem, kShipped, true);
}

TileTable field_table(const DeviceInfo& device, const TileConfig& config) {
  TableEntry one;
  one.m_lo = one.m_hi = 1;
  one.kernel = kFieldKernel;
  one.config = config;
  TileTable table;
  table.key.device_name = device.name;
  table.key.n = 4096;
  table.key.k = 4096;
  table.field_format = true;
  table.entries = {one};
  table.file = "/tables/field-of-" + device.name + ".json";
  return table;
}

TileConfig tile(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t warps, std::int64_t stages) {
  return {{{"BLOCK_SIZE_M", m}, {"BLOCK_SIZE_N", n}, {"BLOCK_SIZE_K", k}, {"num_warps", warps}, {"num_stages", stages}}};
}

// The key that serves M, and whether it is a tile or null.
struct Served {
  std::int64_t m;
  const char* key;
  const char* choice;
};

TEST(AbsentDevice, TheNearestKeyOfThePublishedTableServesWithItsTile) {
  const Plan p = plan_for("NVIDIA_L40S", 4096, 12288);
  const std::vector<Served> expected = {{1, "1", "tile"}, {3, "2", "tile"},  {6, "4", "tile"},
                                        {7, "8", "tile"}, {12, "8", "tile"}, {13, "16", "tile"}};
  for (const Served& served : expected) {
    const Explanation explanation = explain_plan(p, served.m);
    EXPECT_EQ(explanation.table_key, served.key) << "M = " << served.m;
    EXPECT_EQ(explanation.choice, served.choice) << "M = " << served.m << ": " << explanation.reason;
    EXPECT_EQ(explanation.kernel, "ada_mma") << "M = " << served.m;
    EXPECT_THAT(explanation.table_file, EndsWith("N=4096,K=12288,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json"));
  }
  EXPECT_THAT(explain_plan(p, 1).config, HasSubstr("\"BLOCK_SIZE_K\": 1024"));
}

TEST(AbsentDevice, ANullKeyIsTheBaseline) {
  const Plan p = plan_for("NVIDIA_L40S", 24576, 4096);
  const std::vector<Served> expected = {{257, "256", "tile"},       {384, "256", "tile"},   {385, "512", "baseline"},
                                        {3072, "2048", "baseline"}, {3073, "4096", "tile"}, {100000, "8192", "tile"}};
  for (const Served& served : expected) {
    const Explanation explanation = explain_plan(p, served.m);
    EXPECT_EQ(explanation.table_key, served.key) << "M = " << served.m;
    EXPECT_EQ(explanation.choice, served.choice) << "M = " << served.m << ": " << explanation.reason;
  }
  ASSERT_NE(p.lookup().table, nullptr);
  std::int64_t nulls = 0;
  for (const TableEntry& each : p.lookup().table->entries) {
    const Explanation explanation = explain_plan(p, each.m_lo);
    EXPECT_EQ(explanation.choice, each.kernel == kBaselineKernel ? "baseline" : "tile") << each.m_lo;
    nulls += each.kernel == kBaselineKernel ? 1 : 0;
  }
  EXPECT_GT(nulls, 0);
}

TEST(AbsentDevice, EveryShippedTileFitsItsDevice) {
  for (const auto& [n, k] : {std::pair{24576, 4096}, std::pair{4096, 12288}, std::pair{4096, 4096}}) {
    const Plan p = plan_for("NVIDIA_L40S", n, k);
    ASSERT_NE(p.lookup().table, nullptr) << n << "x" << k;
    for (std::size_t i = 0; i < p.lookup().table->entries.size(); ++i) {
      EXPECT_THAT(p.skip_reason(i), IsEmpty()) << n << "x" << k << " key " << p.lookup().table->entries[i].m_lo;
    }
  }
}

TEST(AbsentDevice, ATileBeyondTheSharedMemoryOfItsDeviceIsLeftOutAndTheBaselineServes) {
  const test::LogCapture log;
  // (128 + 64) * 512 * 2 = 196,608 bytes: fits a block of sm_90, not of sm_89.
  const TileConfig big = tile(128, 64, 512, 4, 3);
  Problem problem;
  problem.n = problem.k = 4096;
  for (const auto& [name, fits] : {std::pair{"NVIDIA_L40S", false}, std::pair{"NVIDIA_H200", true}}) {
    const DeviceInfo device = known_device(name).value();
    const TileTable table = field_table(device, big);
    const Plan p = Plan::from_lookup(nullptr, device, problem, test::in_table(table), true);
    const Choice choice = p.choose(1);
    EXPECT_EQ(choice.kind, fits ? ChoiceKind::tile : ChoiceKind::baseline) << name << ": " << choice.reason;
    EXPECT_EQ(log.warnings_with(table.file), fits ? 0 : 1);
    if (!fits) {
      EXPECT_THAT(choice.reason, HasSubstr("196608"));
      EXPECT_THAT(choice.reason, HasSubstr("101376"));
      EXPECT_EQ(choice.kernel, kBaselineKernel);
    }
  }
}

TEST(AbsentDevice, WithoutFp8InstructionsNoTileServes) {
  const DeviceInfo ampere = known_device("NVIDIA_A100-SXM4-80GB").value();
  Problem problem;
  problem.n = problem.k = 4096;
  const Plan p =
      Plan::from_lookup(nullptr, ampere, problem, test::in_table(field_table(ampere, tile(16, 16, 128, 4, 3))), true);
  EXPECT_EQ(p.choose(1).kind, ChoiceKind::baseline);
  EXPECT_THAT(p.choose(1).reason, HasSubstr("sm_80"));
}

TEST(AbsentDevice, ANameThatIsNoDeviceSaysThatNothingIsTuned) {
  const Explanation explanation = explain_plan(plan_for("NVIDIA_Nothing", 4096, 4096), 16);
  EXPECT_EQ(explanation.choice, "baseline");
  EXPECT_THAT(explanation.reason, HasSubstr("untuned: no table for NVIDIA_Nothing"));
  EXPECT_THAT(explanation.table_file, IsEmpty());
}

TEST(AbsentDevice, ANameCloseToATunedDeviceIsNamedAndNotUsed) {
  const Explanation explanation = explain_plan(plan_for("NVIDIA_L40", 4096, 4096), 16);
  EXPECT_EQ(explanation.choice, "baseline");
  EXPECT_THAT(explanation.reason, HasSubstr("NVIDIA_L40S has one, which is not used"));
}

}  // namespace
}  // namespace octile
