// SPDX-License-Identifier: Apache-2.0
// Lays out a table in two passes: widths first, then lines.
#include "octile/report/text_table.h"

#include <algorithm>

namespace octile {
namespace {

std::string printable(const std::string& cell) {
  std::string result = cell;
  std::replace_if(result.begin(), result.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
  return result;
}

// Every byte but the continuation bytes 10xxxxxx starts a code point.
std::size_t width_of(const std::string& cell) {
  return static_cast<std::size_t>(
      std::count_if(cell.begin(), cell.end(), [](unsigned char c) { return (c & 0xC0U) != 0x80U; }));
}

}  // namespace

std::string TextTable::to_string() const {
  std::vector<std::vector<std::string>> lines;
  std::vector<std::string> titles;
  for (const TextColumn& column : columns) {
    titles.push_back(printable(column.title));
  }
  lines.push_back(std::move(titles));
  for (const auto& row : rows) {
    std::vector<std::string> cells(columns.size());
    for (std::size_t i = 0; i < std::min(row.size(), columns.size()); ++i) {
      cells[i] = printable(row[i]);
    }
    lines.push_back(std::move(cells));
  }

  std::vector<std::size_t> widths(columns.size(), 0);
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], width_of(line[i]));
    }
  }

  std::string text;
  const auto append = [&](const std::vector<std::string>& line) {
    std::string out;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string pad(widths[i] - width_of(line[i]), ' ');
      out += i == 0 ? "" : "  ";
      out += columns[i].align == Align::right ? pad + line[i] : line[i] + pad;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + '\n';
  };
  append(lines.front());
  std::vector<std::string> rule;
  for (const std::size_t width : widths) {
    rule.emplace_back(width, '-');
  }
  append(rule);
  std::for_each(lines.begin() + 1, lines.end(), append);
  return text;
}

}  // namespace octile
