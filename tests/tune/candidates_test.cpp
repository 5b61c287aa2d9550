// SPDX-License-Identifier: Apache-2.0
// Who stands for election at a point.
#include "octile/tune/candidates.h"

#include "octile/tune/point.h"
#include "octile/tune/sweep.h"
#include "support/fake_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace octile::test {
namespace {

TileConfig tile(std::int64_t value) { return TileConfig{{{"tile", value}}}; }

class Candidates : public testing::Test {
 protected:
  Candidates() : ours_(backend_.add("ours")), vendor_(backend_.add_vendor("vendor", "packed")) {
    for (std::int64_t value = 1; value <= 100; ++value) {
      ours_.more_space.push_back(tile(value));
      vendor_.more_space.push_back(tile(value));
    }
    problem_.n = 96;
    problem_.k = 64;
  }
  std::int64_t count(const Field& field, const FakeFamily& family) const {
    return std::ranges::count(field.challengers, &family, &Candidate::family);
  }

  FakeBackend backend_;
  FakeFamily& ours_;
  FakeFamily& vendor_;
  Problem problem_;
};

TEST_F(Candidates, OfEachFamilyAsManyStandAsTheLimitsSayAndACutLeavesBoth) {
  const Plan plan = plan_without_table(backend_, backend_.info, problem_);
  FieldLimits limits;
  limits.challengers = 5;
  limits.vendor_challengers = 10;
  const Field field = make_field(backend_, plan, 16, limits, {});
  EXPECT_EQ(count(field, ours_), 5);
  EXPECT_EQ(count(field, vendor_), 10);
  Field cut = field;
  for (std::size_t length = 3; length <= 15; length += 3) {
    cut.challengers.assign(field.challengers.begin(), field.challengers.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_EQ(count(cut, ours_), static_cast<std::int64_t>(length) / 3) << "of the first " << length;
  }
}

TEST_F(Candidates, BenchAndAQuickTuneSearchTheSameAlgorithmsOfAVendor) {
  const Plan plan = plan_without_table(backend_, backend_.info, problem_);
  const Field benched = make_field(backend_, plan, 16, FieldLimits{}, {});
  const Field tuned = field_of(backend_, plan, 16, false);
  EXPECT_GE(count(tuned, vendor_), 24);
  EXPECT_EQ(benched.challengers, tuned.challengers);
}

TEST_F(Candidates, WhatIsIncumbentOrLeftOutDoesNotStand) {
  const Plan plan = plan_without_table(backend_, backend_.info, problem_);
  const Field all = make_field(backend_, plan, 16, FieldLimits{}, {});
  ASSERT_TRUE(all.heuristic && all.baseline);
  EXPECT_EQ(std::ranges::count(all.challengers, *all.heuristic), 0);
  EXPECT_EQ(std::ranges::count(all.challengers, *all.baseline), 0);
  const Candidate first = all.challengers.front();
  const Field fewer = make_field(backend_, plan, 16, FieldLimits{}, {first.to_string()});
  EXPECT_EQ(std::ranges::count(fewer.challengers, first), 0);
}

}  // namespace
}  // namespace octile::test
