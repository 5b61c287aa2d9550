// SPDX-License-Identifier: Apache-2.0
// A recorded result, and the page made of it: refused with a reason, or a page in which what was read stays text.
#include "fuzz/fuzz.h"
#include "octile/report/bench_record.h"
#include "octile/report/html_report.h"

#include <string>

using namespace octile;

namespace {

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) {
    ++found;
  }
  return found;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Expected<BenchRecord> record = parse_bench_record(fuzz::as_text(data, size), "input");
  if (!record) {
    fuzz::require(!record.error().message.empty(), "a record that is refused has a reason");
    return 0;
  }
  const std::string page = bench_html(*record, "");
  // What a page without rows has besides: its own tags, whatever was read. A page with rows has d3 and its licence as well.
  static const std::string empty_page = bench_html({}, "");
  const std::size_t of_d3 = html_has_plots() && !record->result.rows.empty() ? 1 : 0;
  fuzz::require(count(page, "<script") == count(empty_page, "<script") + of_d3, "no script but those of the page");
  fuzz::require(count(page, "</script") == count(empty_page, "</script") + of_d3, "no script is closed by a text");
  fuzz::require(count(page, "<tr data-group=") == record->result.rows.size(), "every row is there");
  fuzz::require(page.ends_with("</html>\n"), "the page is whole");
  return 0;
}
