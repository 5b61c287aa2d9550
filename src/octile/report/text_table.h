// SPDX-License-Identifier: Apache-2.0
// A table of text with aligned columns, for a terminal.
#pragma once

#include <string>
#include <vector>

namespace octile {

enum class Align { left, right };

struct TextColumn {
  std::string title;  // With its unit: "baseline us".
  Align align = Align::left;
};

struct TextTable {
  std::vector<TextColumn> columns;
  std::vector<std::vector<std::string>> rows;  // Cells beyond the columns are dropped, missing ones are empty.

  // Title line, a rule and the rows; two blanks between columns, none at a line's end. Widths count UTF-8 code points.
  // Control characters print as '?', so that a hostile device name or file name cannot steer the terminal.
  std::string to_string() const;
};

}  // namespace octile
