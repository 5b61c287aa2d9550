// SPDX-License-Identifier: Apache-2.0
// The name a mistyped one probably means.
#include "octile/core/nearest.h"

#include <vector>

#include <gtest/gtest.h>

namespace octile {
namespace {

TEST(Nearest, EditDistanceCountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("qwen3-8b", "qwen-8b"), 1U);
}

TEST(Nearest, FindsTheNameWithAFewWrongLetters) {
  const std::vector<std::string> known = {"qwen3-0.6b", "qwen3-8b", "phi-4"};
  EXPECT_EQ(nearest_name("qwen3-8", known), "qwen3-8b");
  EXPECT_EQ(nearest_name("qwne3-8b", known), "qwen3-8b");
  EXPECT_EQ(nearest_name("phi4", known), "phi-4");
}

TEST(Nearest, NamesNothingForAWordThatIsFarFromAll) {
  const std::vector<std::string> known = {"qwen3-8b", "phi-4"};
  EXPECT_EQ(nearest_name("stable-diffusion", known), "");
  EXPECT_EQ(nearest_name("", std::vector<std::string>{}), "");
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'q'), known), "");
}

}  // namespace
}  // namespace octile
