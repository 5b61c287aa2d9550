// SPDX-License-Identifier: Apache-2.0
// `octile doctor`: what a bug report needs, and nothing of whose machine it is.
#include "cli/command.h"

#include <gmock/gmock.h>

#include <unistd.h>

#include <array>

namespace octile::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using DoctorTest = CommandTest;

TEST_F(DoctorTest, SaysVersionsDevicesTablesSettingsAndThatEveryFamilyIsRight) {
  const RunResult result = run({"doctor"}, {.environment = {{"OCTILE_NUM_THREADS", "1"}}});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("octile 0."), HasSubstr("system: Linux"), HasSubstr("OCTILE_NUM_THREADS = 1"),
                                HasSubstr("for NVIDIA_L40S"), HasSubstr("right, relative error"), HasSubstr("reference")));
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size() - 1), 0);
  // A name like "a" would occur in any text.
  if (std::string_view(host.data()).size() > 5) {
    EXPECT_THAT(result.out, Not(HasSubstr(host.data())));
  }
}

TEST_F(DoctorTest, AWrongSettingIsShownInPlaceOfStoppingIt) {
  const RunResult result = run({"doctor"}, {.environment = {{"OCTILE_CPU_ISA", "mmx"}}});
  EXPECT_THAT(result.out, AllOf(HasSubstr("wrong: OCTILE_CPU_ISA='mmx'"), HasSubstr("Self-test")));
  const RunResult misspelt = run({"doctor"}, {.environment = {{"OCTILE_NUM_THREAD", "1"}}});
  EXPECT_THAT(misspelt.out, AllOf(HasSubstr("wrong: OCTILE_NUM_THREAD: "), HasSubstr("did you mean OCTILE_NUM_THREADS?")));
}

TEST_F(DoctorTest, ABrokenTableIsNamed) {
  const std::string file = write("tables/N=64,K=64,device_name=X,dtype=fp8_w8a8_channelwise.json", "{");
  const RunResult result = run({"doctor"}, {.environment = {{"OCTILE_TABLE_PATH", path("tables")}}});
  EXPECT_THAT(result.out, AllOf(HasSubstr("1 for X"), HasSubstr(file)));
}

}  // namespace
}  // namespace octile::cli
