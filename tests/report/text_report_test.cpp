// SPDX-License-Identifier: Apache-2.0
// What the commands print for people.
#include "octile/report/text_report.h"

#include <gmock/gmock.h>

namespace octile {
namespace {

using testing::HasSubstr;

TEST(TextReport, DevicesSayWhatMemoryIsTakenBeyondWeightsAndWorkspacesWhereTheyHaveMemoryOfTheirOwn) {
  DeviceReport cpu;
  cpu.id = "cpu";
  DeviceReport gpu;
  gpu.id = "cuda:0";
  gpu.overhead_bytes = std::int64_t{56} << 20;
  EXPECT_THAT(devices_text(std::vector{gpu}), HasSubstr("device memory beyond weights and workspaces: at most 56.0 MiB\n"));
  EXPECT_THAT(devices_text(std::vector{cpu}), testing::Not(HasSubstr("memory")));
}

}  // namespace
}  // namespace octile
