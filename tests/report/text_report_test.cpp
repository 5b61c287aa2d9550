// SPDX-License-Identifier: Apache-2.0
// What the commands print for people.
#include "octile/report/text_report.h"

#include "report/rows.h"

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

TEST(TextReport, CurvesListTheCliffsOfBothAndWhatWasLeftOut) {
  const std::string text = bench_text(test::curve_result());
  EXPECT_THAT(text, testing::AllOf(HasSubstr("baseline/own"), HasSubstr("1.60x [1.50, 1.70]"),
                                   HasSubstr("Cliffs of qkv, the choice: \n  from M = 2 (10.10 us"),
                                   HasSubstr("Cliffs of qkv, our own families alone: \n  from M = 1 (10.00 us"),
                                   HasSubstr("not measured: qkv, 2 of its M: it did not fit the time budget: 4, 6\n")));
}

TEST(TextReport, OfThousandsOfRowsThoseAtPowersOfTwoArePrintedAndTheTextSaysSo) {
  BenchResult result = test::curve_result();
  result.rows.clear();
  for (std::int64_t m = 1; m <= 300; ++m) {
    result.rows.push_back(test::curve_row("qkv", m, 10, 10));
  }
  const std::string text = bench_text(result);
  EXPECT_THAT(text, testing::AllOf(HasSubstr("\nqkv    256"), testing::Not(HasSubstr("\nqkv    255")),
                                   HasSubstr("300 rows are measured"), HasSubstr("the choice: none\n")));
}

TEST(TextReport, ACsvOfCurvesHasOurFamiliesAlone) {
  const std::string csv = bench_csv(test::curve_result());
  EXPECT_THAT(csv, testing::AllOf(HasSubstr("rel_error,own_us,own_kernel,own_ratio,"),
                                  HasSubstr("0.001,15,\"hopper_wgmma {\"\"BM\"\": 64}\",1.6,1.5,1.7,1.2,1.1,1.3\r\n")));
  BenchResult plain = test::curve_result();
  plain.all_m = false;
  EXPECT_THAT(bench_csv(plain), testing::Not(HasSubstr("own_us")));
}

}  // namespace
}  // namespace octile
