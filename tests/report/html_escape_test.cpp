// SPDX-License-Identifier: Apache-2.0
// Text of others inside a page stays text.
#include "octile/report/html_escape.h"

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace octile {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(HtmlEscape, TagsQuotesAndEntitiesBecomeText) {
  EXPECT_EQ(html_escape("<b a='x' c=\"y\">&amp;</b>"), "&lt;b a=&#39;x&#39; c=&quot;y&quot;&gt;&amp;amp;&lt;/b&gt;");
  EXPECT_EQ(html_escape(""), "");
}

TEST(HtmlEscape, LettersOfEveryLengthInUtf8Stay) {
  const std::string text = "q \u00B5 \u4E2D \U0001F680";
  EXPECT_EQ(html_escape(text), text);
}

TEST(HtmlEscape, WhatIsNoUtf8BecomesAReplacementCharacter) {
  const std::string replacement = "\uFFFD";
  EXPECT_EQ(html_escape("a\xFFz"), "a" + replacement + "z");
  EXPECT_EQ(html_escape("a\xE4\xB8"), "a" + replacement + replacement);                               // Cut off.
  EXPECT_EQ(html_escape("\xC0\xBC"), replacement + replacement);                                      // An overlong '<'.
  EXPECT_EQ(html_escape("\xE0\x80\xBC"), replacement + replacement + replacement);                    // Another.
  EXPECT_EQ(html_escape("\xED\xA0\x80"), replacement + replacement + replacement);                    // A surrogate.
  EXPECT_EQ(html_escape("\xF4\x90\x80\x80"), replacement + replacement + replacement + replacement);  // Beyond U+10FFFF.
  EXPECT_EQ(html_escape("\xE4<"), replacement + "&lt;");  // The byte after a broken lead is looked at for itself.
}

TEST(HtmlEscape, ControlCharactersAndMarksThatTurnTheDirectionDoNotPass) {
  for (const std::string_view mark :
       {"\x01", "\x1b", "\n", "\x7F", "\u0085", "\u202E", "\u2066", "\u200F", "\u2028", "\uFEFF"}) {
    EXPECT_EQ(html_escape("a" + std::string(mark) + "b"), "a\uFFFDb") << mark;
  }
  EXPECT_EQ(html_escape(std::string("a\0b", 3)), "a\uFFFDb");
}

TEST(HtmlEscape, LinesStayWhereTheyAreAskedFor) { EXPECT_EQ(html_escape_lines("a\n<\n"), "a\n&lt;\n"); }

TEST(HtmlEscape, RandomBytesLeaveNothingThatOpensATag) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> byte(0, 255);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      text += static_cast<char>(byte(random));
    }
    const std::string escaped = html_escape(text);
    EXPECT_EQ(escaped.find_first_of("<>\"'"), std::string::npos);
    // Valid UTF-8, or the JSON library would refuse it.
    EXPECT_NO_THROW(static_cast<void>(nlohmann::json(escaped).dump()));
  }
}

TEST(HtmlEscape, JsonInAScriptCannotCloseItAndReadsBackTheSame) {
  const nlohmann::json value = {{"name", "</script><script>x</script><!--&"}};
  const std::string text = json_for_script(value.dump());
  EXPECT_THAT(text, testing::AllOf(Not(HasSubstr("<")), Not(HasSubstr(">")), Not(HasSubstr("&"))));
  EXPECT_EQ(nlohmann::json::parse(text), value);
}

TEST(HtmlEscape, AFrameIsFilledInOnePass) {
  EXPECT_EQ(fill_frame("a {{x}} b {{y}}{{none}}.", {{"x", "{{y}}"}, {"y", "1"}}), "a {{y}} b 1.");
  EXPECT_EQ(fill_frame("open {{x", {{"x", "1"}}), "open {{x");
  EXPECT_EQ(fill_frame("", {}), "");
}

}  // namespace
}  // namespace octile
