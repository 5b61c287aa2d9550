// SPDX-License-Identifier: Apache-2.0
// Pages: complete, of one file, and safe whatever the names in them are. tests/browser/ looks at them in a browser.
#include "octile/report/html_report.h"

#include "octile/report/html_assets.h"
#include "report/rows.h"

#include <nlohmann/json.hpp>

#include <regex.h>

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile {
namespace {

using test::usual_row;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kHostile = "<img src=x onerror=\"pwn()\"></script><script>pwn()</script><!--' {{data}} \xFF\u202E";

// Whether an extended regular expression matches somewhere, in any case.
bool has_match(const std::string& text, const char* pattern) {
  regex_t compiled{};
  EXPECT_EQ(::regcomp(&compiled, pattern, REG_EXTENDED | REG_ICASE | REG_NOSUB), 0) << pattern;
  const bool matches = ::regexec(&compiled, text.c_str(), 0, nullptr, 0) == 0;
  ::regfree(&compiled);
  return matches;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
    ++found;
  }
  return found;
}

std::string between(const std::string& text, const std::string& open, const std::string& close) {
  const std::size_t start = text.find(open);
  EXPECT_NE(start, std::string::npos) << open;
  const std::size_t end = text.find(close, start + open.size());
  EXPECT_NE(end, std::string::npos) << close;
  return text.substr(start + open.size(), end - start - open.size());
}

nlohmann::json data_of(const std::string& page) {
  return nlohmann::json::parse(between(page, "<script type=\"application/json\" id=\"octile-data\">", "</script>"));
}

// The page without d3, whose text is of others.
std::string own_part(std::string page) {
  const std::string d3(html_assets().d3);
  if (const std::size_t at = d3.empty() ? std::string::npos : page.find(d3); at != std::string::npos) {
    page.erase(at, d3.size());
  }
  return page;
}

BenchRecord record_of(std::vector<BenchRow> rows) {
  BenchRecord record;
  record.result.device_name = "NVIDIA_H200";
  record.result.octile_version = "0.1.0";
  record.result.kernel_source_hash = "0123456789abcdef";
  record.result.date = "2026-01-01T00:00:00Z";
  record.result.protocol = "interleaved passes";
  record.result.rows = std::move(rows);
  record.commit = "abc123";
  record.commands = {"octile bench --model qwen3-8b"};
  record.facts = {{"driver", "580.1"}};
  return record;
}

TEST(HtmlReport, EveryRowIsInTheHtmlAndInTheData) {
  std::vector<BenchRow> rows;
  for (const char* shape : {"qkv", "o"}) {
    for (std::int64_t m = 1; m <= 50; ++m) {
      rows.push_back(usual_row(shape, m));
    }
  }
  const std::string page = bench_html(record_of(rows), "");
  EXPECT_EQ(count(between(page, "id=\"points-table\"", "</table>"), "<tr data-group="), 100U);
  const nlohmann::json data = data_of(page);
  EXPECT_EQ(data["points"].size(), 100U);
  EXPECT_EQ(data["groups"].size(), 2U);
  EXPECT_EQ(data["points"][99]["group"], 1);
  EXPECT_EQ(data["points"][99]["m"], 50);
  EXPECT_EQ(data["points"][0]["gain"], nlohmann::json({2.0, 1.9, 2.1}));
}

TEST(HtmlReport, SummaryProvenanceAndCommandsAreThere) {
  const std::string page = bench_html(record_of({usual_row("qkv", 1), usual_row("qkv", 2)}), "dir/record.json");
  for (const char* text :
       {"NVIDIA_H200", "2.00x", "1.50x", "80 %", "2 / 2", "2026-01-01T00:00:00Z", "abc123", "0123456789abcdef", "580.1",
        "interleaved passes", "git checkout abc123\nmake command\noctile bench --model qwen3-8b\n",
        "octile report dir/record.json --html FILE", "[1.90, 2.10]", "{&quot;TILE_N&quot;: 64}"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
  EXPECT_THAT(bench_html(record_of({usual_row("qkv", 1)}), ""), Not(HasSubstr("octile report")));
}

TEST(HtmlReport, ACommitWithChangesOnTopIsCheckedOutWithoutTheMark) {
  BenchRecord record = record_of({usual_row("qkv", 1)});
  record.commit = "abc123-dirty";
  EXPECT_THAT(bench_html(record, ""),
              HasSubstr("git checkout abc123   # and changes that were not committed\nmake command\n"));
  record.commit = "unknown";
  EXPECT_THAT(bench_html(record, ""), Not(HasSubstr("git checkout")));
}

TEST(HtmlReport, HostileTextStaysText) {
  BenchRow hostile = usual_row(kHostile, 1);
  hostile.choice = hostile.scope = hostile.note = hostile.chosen_kernel = hostile.layout = kHostile;
  BenchRecord record = record_of({hostile, usual_row("o", 1)});
  record.result.device_name = record.result.date = record.result.protocol = record.result.octile_version = kHostile;
  record.result.kernel_source_hash = record.commit = kHostile;
  record.commands = {kHostile};
  record.facts = {{kHostile, kHostile}};
  record.result.notes = record.result.missing = {kHostile};
  TuneSummary summary;
  TunePoint point;
  point.shape = {kHostile, 64, 64};
  point.m = 1;
  point.kernel = point.reason = kHostile;
  point.config.set(kHostile, 1);
  summary.points = {point};
  summary.failed = {{kHostile, 1, kHostile, point.config, kHostile, kHostile}};
  summary.notes = summary.files = {kHostile};
  summary.journal = kHostile;
  summary.failure = kHostile;
  HtmlOrigin origin;
  origin.device_name = origin.scope = kHostile;
  for (const std::string& page : {bench_html(record, kHostile), tune_html(summary, origin)}) {
    const std::string own = own_part(page);
    EXPECT_THAT(own, AllOf(Not(HasSubstr("<img")), Not(HasSubstr("<script>pwn")), Not(HasSubstr("\xFF\u202E")),
                           Not(HasSubstr("\u202E"))));
    // Those of the page itself: data, d3 where it is there, its own script.
    EXPECT_EQ(count(own, "<script"), html_has_plots() ? 3U : 2U);
    EXPECT_EQ(count(own, "</script"), html_has_plots() ? 3U : 2U);
    EXPECT_THAT(page, HasSubstr("&lt;img src=x onerror=&quot;pwn()&quot;&gt;"));
    EXPECT_THAT(data_of(page)["groups"][0]["name"].get<std::string>(), testing::StartsWith("<img src=x"));
  }
}

TEST(HtmlReport, LoadsNothingAndSaysSoToTheBrowser) {
  const std::string page = bench_html(record_of({usual_row("qkv", 1)}), "");
  const std::string own = own_part(page);
  // No attribute or style that loads, no script that asks: data and licence name addresses at most as text.
  ASSERT_TRUE(has_match("<a HREF = 'x'>", R"(href\s*=\s*["']?[^#"'])")) << "the patterns must be able to match";
  EXPECT_FALSE(has_match(own, R"((src|srcset|data|action|poster)\s*=\s*["']?(https?:)?//)"));
  EXPECT_FALSE(has_match(own, R"(href\s*=\s*["']?[^#"'])"));
  EXPECT_FALSE(has_match(own, R"(@import|url\s*\(|<link|<iframe|<object|<embed|fetch\s*\(|XMLHttpRequest|import\s*\()"));
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-"));
  EXPECT_THAT(page, HasSubstr("'" + std::string(html_assets().script_hash) + "'"));
  EXPECT_THAT(page, HasSubstr("<style>" + std::string(html_assets().style) + "</style>"));
  EXPECT_THAT(page, HasSubstr("<script>" + std::string(html_assets().script) + "</script>"));
  EXPECT_EQ(own.find("{{"), std::string::npos);
}

TEST(HtmlReport, StaysBelowOneMegabyteForEveryPointOfAModel) {
  std::vector<BenchRow> rows;
  for (const char* shape : {"qkv", "o", "gate_up", "down"}) {
    for (std::int64_t m = 1; m <= 34; ++m) {
      rows.push_back(usual_row(shape, m));
    }
  }
  EXPECT_LT(bench_html(record_of(rows), "").size(), std::size_t{1} << 20);
}

TEST(HtmlReport, HasPlotsExactlyWhereD3IsEmbedded) {
  const std::string page = bench_html(record_of({usual_row("qkv", 1)}), "");
  if (html_has_plots()) {
    EXPECT_THAT(page,
                AllOf(HasSubstr("id=\"plot-grid\""), HasSubstr(std::string(html_assets().d3)), HasSubstr("Licence of d3"),
                      HasSubstr("Mike Bostock"), HasSubstr(std::string(html_assets().d3_hash))));
  } else {
    EXPECT_THAT(page, AllOf(Not(HasSubstr("id=\"plot-grid\"")), HasSubstr("built without d3")));
  }
}

TEST(HtmlReport, WhatWasNotMeasuredIsADashAndNoNumber) {
  BenchRow bare;
  bare.shape = "o";
  bare.n = bare.k = bare.m = 1;
  bare.rel_error = std::numeric_limits<double>::quiet_NaN();
  bare.note = "no floor: why";
  BenchRecord record = record_of({bare});
  record.result.missing = {"o m=2: it did not fit the time budget"};
  const std::string page = bench_html(record, "");
  EXPECT_THAT(own_part(page), AllOf(Not(HasSubstr(">nan")), Not(HasSubstr(">inf")), HasSubstr("<td>-</td>")));
  EXPECT_THAT(page, AllOf(HasSubstr("no floor: why"), HasSubstr("Not measured: o m=2")));
  EXPECT_EQ(data_of(page)["points"].size(), 0U);
  // Nothing of a vendor was measured anywhere: no column of it.
  EXPECT_THAT(own_part(page), Not(HasSubstr("vendor \u00B5s</th>")));
}

TEST(HtmlReport, NoRowsAreAPageToo) {
  const std::string page = bench_html(record_of({}), "");
  EXPECT_THAT(page, AllOf(HasSubstr("Nothing was measured"), HasSubstr("0 points, 0 weights")));
}

TEST(HtmlReport, CliffsAreListedWithTheirDefinition) {
  BenchRow below = usual_row("qkv", 64);
  BenchRow above = usual_row("qkv", 65);
  above.chosen_us = 13;
  const std::string page = bench_html(record_of({below, above}), "");
  EXPECT_THAT(page, AllOf(HasSubstr("1.10 \u00D7 next M / M"), HasSubstr("64 \u2192 65"), HasSubstr("1.30x")));
  EXPECT_EQ(data_of(page)["cliffs"], nlohmann::json::parse(R"([{"group": 0, "curve": "choice", "m": 65}])"));
  EXPECT_THAT(bench_html(record_of({below}), ""), HasSubstr("There is none"));
}

TEST(HtmlReport, AnInterruptedRunSaysSoFirst) {
  BenchRecord record = record_of({usual_row("qkv", 1)});
  record.result.interrupted_by = 2;
  EXPECT_THAT(bench_html(record, ""), HasSubstr("role=\"alert\""));
  record.result.interrupted_by = 0;
  EXPECT_THAT(bench_html(record, ""), Not(HasSubstr("role=\"alert\"")));
}

TEST(HtmlReport, ATuningShowsEveryPointItsFailuresAndItsFiles) {
  TuneSummary summary;
  TunePoint won;
  won.shape = {"qkv", 6144, 4096};
  won.m = 1;
  won.status = PointStatus::tile;
  won.kernel = "avx512";
  won.config.set("BLOCK_SIZE_N", 32);
  won.us = 10;
  won.baseline_us = 25;
  won.ratio = 2.5;
  won.ratio_lo = 2.4;
  won.ratio_hi = 2.6;
  won.rounds = 14;
  won.rel_error = 0.002;
  won.resumed = true;
  TunePoint stayed = won;
  stayed.m = 2;
  stayed.status = PointStatus::baseline;
  stayed.kernel = "baseline";
  stayed.config = {};
  stayed.ratio = stayed.ratio_lo = stayed.ratio_hi = 1;
  stayed.undecided = true;
  stayed.resumed = false;
  TunePoint left;
  left.shape = won.shape;
  left.m = 4;
  left.reason = "it did not fit the time budget";
  summary.points = {won, stayed, left};
  summary.failed = {{"qkv", 2, "avx2", won.config, "crash", "signal 11"}};
  summary.files = {"tables/t.json"};
  summary.notes = {"a note"};
  summary.failure = "everything failed";
  HtmlOrigin origin;
  origin.device_name = "CPU";
  origin.scope = "gemm";
  origin.commands = {"octile tune --n 6144 --k 4096"};
  const std::string page = tune_html(summary, origin);
  EXPECT_EQ(count(between(page, "id=\"points-table\"", "</table>"), "<tr data-group="), 3U);
  for (const char* text : {"Octile tuning report", "everything failed", "2.50x", "[2.40, 2.60]", "from the journal",
                           "undecided: the incumbent stayed", ">no budget</span>", "it did not fit the time budget",
                           "1 point was undecided", "1 point did not fit", "signal 11", "crash", "tables/t.json", "a note",
                           "the product alone", "octile tune --n 6144 --k 4096", "{&quot;BLOCK_SIZE_N&quot;: 32}"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
  EXPECT_EQ(data_of(page)["points"].size(), 2U);
  EXPECT_THAT(page, Not(HasSubstr("git checkout")));
}

TEST(HtmlReport, CurvesShowOurFamiliesAloneTheirCliffsAndWhatIsMissing) {
  BenchRecord record;
  record.result = test::curve_result();
  const std::string page = bench_html(record, "");
  const nlohmann::json data = data_of(page);
  EXPECT_EQ(data["points"][1]["own"], 15);
  EXPECT_EQ(data["points"][1]["own_kernel"], "hopper_wgmma");
  EXPECT_EQ(data["published"], nlohmann::json({"their_ladder"}));
  EXPECT_EQ(data["published_from"], "theirs.csv");
  EXPECT_EQ(data["points"][1]["published"], nlohmann::json::parse("[[0, 11.5]]"));
  EXPECT_EQ(data["points"][0]["published"], nlohmann::json::array());
  const std::string cliffs = between(page, "<section id=\"cliffs\">", "</section>");
  EXPECT_THAT(cliffs, AllOf(HasSubstr("our own families alone"), HasSubstr("the choice"), HasSubstr("hopper_wgmma")));
  EXPECT_THAT(page, AllOf(HasSubstr("own \u00B5s</th>"), HasSubstr("vendor / own</th>"), HasSubstr("are from theirs.csv"),
                          HasSubstr("Not measured: qkv, 2 of its M: it did not fit the time budget: 4, 6")));
  const std::string table = between(page, "id=\"points-table\"", "</table>");
  EXPECT_EQ(count(between(table, "<thead>", "</thead>"), "<th "),
            count(between(table, "<tr data-group=", "</tr>"), "<td") + 1)
      << "a cell for each column";
  // Without them there is nothing of it.
  EXPECT_THAT(own_part(bench_html(record_of({usual_row("qkv", 1)}), "")),
              AllOf(Not(HasSubstr("own \u00B5s</th>")), Not(HasSubstr("Own families alone")), Not(HasSubstr("are from"))));
}

}  // namespace
}  // namespace octile
