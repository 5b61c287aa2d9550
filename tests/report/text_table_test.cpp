// SPDX-License-Identifier: Apache-2.0
// The layout of text tables.
#include "octile/report/text_table.h"

#include <gtest/gtest.h>

namespace octile {
namespace {

TEST(TextTable, AlignsColumnsAndEndsNoLineWithBlanks) {
  const TextTable table{{{"shape", Align::left}, {"us", Align::right}}, {{"qkv", "7.23"}, {"gate_up", "123"}, {"o", ""}}};
  EXPECT_EQ(table.to_string(),
            "shape      us\n"
            "-------  ----\n"
            "qkv      7.23\n"
            "gate_up   123\n"
            "o\n");
}

TEST(TextTable, ShortRowsAreFilledAndLongRowsCut) {
  const TextTable table{{{"a"}, {"b"}}, {{"1"}, {"1", "2", "3"}}};
  EXPECT_EQ(table.to_string(), "a  b\n-  -\n1\n1  2\n");
}

TEST(TextTable, WidthsCountCodePoints) {
  const TextTable table{{{"x"}, {"y"}}, {{"\xC3\xA9\xC3\xA9", "1"}, {"abc", "2"}}};
  EXPECT_EQ(table.to_string(), "x    y\n---  -\n\xC3\xA9\xC3\xA9   1\nabc  2\n");
}

TEST(TextTable, ControlCharactersDoNotReachTheTerminal) {
  const TextTable table{{{"file"}}, {{"a\x1B[31mb\nc"}}};
  EXPECT_EQ(table.to_string(), "file\n---------\na?[31mb?c\n");
}

TEST(TextTable, WithoutRowsItIsItsTitle) {
  const TextTable table{{{"a"}, {"bb"}}, {}};
  EXPECT_EQ(table.to_string(), "a  bb\n-  --\n");
}

}  // namespace
}  // namespace octile
