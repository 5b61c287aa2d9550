// SPDX-License-Identifier: Apache-2.0
// The self-test tells right families from wrong, crashing and missing ones.
#include "octile/tune/self_test.h"

#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile::test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

std::vector<SelfTestRow> rows_of(const std::string& scenario, double limit_s = 60) {
  const SimulatedBackend backend(parse_scenario(scenario));
  return self_test({{&backend, backend.info()}}, simulated_hooks(backend), limit_s);
}

TEST(SelfTest, RightFamiliesAreSaidToBeRightWithTheirError) {
  const auto rows = rows_of("");
  ASSERT_THAT(rows, SizeIs(2));
  for (const SelfTestRow& row : rows) {
    EXPECT_EQ(row.device, "fake");
    EXPECT_FALSE(row.is_wrong) << row.result;
    EXPECT_THAT(row.result, HasSubstr("right, relative error"));
  }
}

TEST(SelfTest, AFamilyWithWrongNumbersIsWrongAndTheOthersAreTested) {
  for (const char* fault : {"wrong:0", "unwritten:0", "guard:0", "error:0"}) {
    const auto rows = rows_of(fault);
    ASSERT_THAT(rows, SizeIs(2)) << fault;
    for (const SelfTestRow& row : rows) {
      EXPECT_EQ(row.is_wrong, row.family == "fake_tile") << fault << ": " << row.result;
    }
  }
}

TEST(SelfTest, WithoutTimeNothingIsCalledWrong) {
  for (const SelfTestRow& row : rows_of("cost:1e12", 1e-9)) {
    EXPECT_FALSE(row.is_wrong) << row.result;
  }
}

}  // namespace
}  // namespace octile::test
