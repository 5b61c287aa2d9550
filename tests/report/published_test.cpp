// SPDX-License-Identifier: Apache-2.0
// Published times: read strictly, joined by weight and M, never mixed with what was measured.
#include "octile/report/published.h"

#include "report/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr const char* kFile =
    "shape,N,K,M,one_us,two_us,kernel\n"
    "qkv,6144,4096,1,8.5,,\"a, b\"\n"
    "qkv,6144,4096,2,8.75,9,c\n";

std::string error_of(const std::string& text) {
  const auto times = parse_published_times(text, "F");
  EXPECT_FALSE(times) << text;
  return times ? "" : times.error().message;
}

TEST(Published, ColumnsOfTimesAreReadAndOthersPassedOver) {
  const auto times = parse_published_times(kFile, "F");
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_THAT(times->names, ElementsAre("one", "two"));
  ASSERT_THAT(times->points, SizeIs(2));
  const std::vector<PublishedTime>& first = times->points.at({6144, 4096, 1});
  ASSERT_THAT(first, SizeIs(1)) << "an empty field is no time";
  EXPECT_EQ(first[0].name, "one");
  EXPECT_EQ(first[0].us, 8.5);
  EXPECT_EQ(times->points.at({6144, 4096, 2})[1].us, 9);
}

TEST(Published, WhatIsWrongIsNamed) {
  EXPECT_THAT(error_of(""), HasSubstr("F: wanted a line with the names of columns"));
  EXPECT_THAT(error_of("N,M,a_us\n"), HasSubstr("got no K"));
  EXPECT_THAT(error_of("N,K,M,a\n"), HasSubstr("end in \"_us\""));
  EXPECT_THAT(error_of("N,K,M,a_us\n1,1,1\n"), HasSubstr("record 2: wanted 4 fields as in the first line, got 3"));
  EXPECT_THAT(error_of("N,K,M,a_us\n1,1,0,1\n"), HasSubstr("M: wanted a whole number from 1, got \"0\""));
  EXPECT_THAT(error_of("N,K,M,a_us\n1,1,1.5,1\n"), HasSubstr("M: wanted a whole number from 1"));
  for (const char* time : {"0", "-1", "nan", "inf", "fast", "1 "}) {
    EXPECT_THAT(error_of("N,K,M,a_us\n1,1,1," + std::string(time) + "\n"), HasSubstr("a_us: wanted microseconds above 0"));
  }
  EXPECT_THAT(error_of("N,K,M,a_us\n1,1,1,1\n1,1,1,2\n"), HasSubstr("N = 1, K = 1, M = 1 comes twice"));
  EXPECT_THAT(error_of("N,K,M,a_us\n1,1,1,\"1"), HasSubstr("does not end"));
  EXPECT_THAT(read_published_times("/nowhere/there.csv").error().message, HasSubstr("/nowhere/there.csv"));
}

TEST(Published, RowsOfTheSameWeightAndMGetThemAndANoteCountsTheRest) {
  const auto times = parse_published_times(kFile, "F");
  ASSERT_TRUE(times) << times.error().message;
  BenchResult result;
  result.rows = {test::usual_row("qkv", 2), test::usual_row("qkv", 3)};
  BenchRow other = test::usual_row("o", 2);
  other.n = 4096;
  result.rows.push_back(other);
  add_published(*times, result);
  ASSERT_THAT(result.rows[0].published, SizeIs(2));
  EXPECT_EQ(result.rows[0].published[0].us, 8.75);
  EXPECT_EQ(result.rows[0].chosen_us, 10) << "what was measured stays";
  EXPECT_THAT(result.rows[1].published, IsEmpty());
  EXPECT_THAT(result.rows[2].published, IsEmpty());
  EXPECT_EQ(result.published_from, "F");
  EXPECT_THAT(result.notes, ElementsAre("1 of 3 rows have published times of the 2 points of F, of another run"));
}

}  // namespace
}  // namespace octile
