// SPDX-License-Identifier: Apache-2.0
#include "octile/core/date_text.h"

#include <gtest/gtest.h>

namespace octile {
namespace {

TEST(DateText, AMomentIsADayATimeAndAZAndNothingElse) {
  EXPECT_TRUE(is_moment("2026-11-30T18:44:34Z"));
  for (const char* text : {"", "yesterday", "2026-11-30", "2026-11-30T18:44:34", "2026-11-30 18:44:34Z",
                           "2026-11-30T18:44:34Z ", "2026-1-30T18:44:34ZZ", "202a-11-30T18:44:34Z"}) {
    EXPECT_FALSE(is_moment(text)) << text;
  }
}

TEST(DateText, ADayAloneIsOneOnlyWhereItIsAllowed) {
  EXPECT_TRUE(is_moment_or_day("2026-11-30"));
  EXPECT_TRUE(is_moment_or_day("2026-11-30T18:44:34Z"));
  for (const char* text : {"", "yesterday", "2026-11-3", "2026-11-30T", "2026/11/30"}) {
    EXPECT_FALSE(is_moment_or_day(text)) << text;
  }
}

}  // namespace
}  // namespace octile
