// SPDX-License-Identifier: Apache-2.0
// What a page shows, whether `bench` or `tune` measured it; html_report.cpp fills it in.
#pragma once

#include "octile/report/html_report.h"
#include "octile/report/point_statistics.h"
#include "octile/tune/bench.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octile {

struct HtmlContent {
  bool is_tune = false;
  HtmlOrigin origin;
  std::string failure;  // Said first; empty where all went well.
  // A tuned point is a row as well: `choice` is what became of it ("no budget" and "failed" among them), `note` its remark.
  std::vector<BenchRow> rows;
  std::vector<PointGroup> groups;
  std::vector<GroupCliff> cliffs;
  std::string published_from;                      // The file of the rows' published times; empty: none.
  std::vector<std::string> remarks;                // Sentences below the summary.
  std::vector<std::string> notes;                  // Sentences of the run: what is missing, what to know.
  std::vector<std::vector<std::string>> failures;  // Of candidates: shape, M, kernel and config, kind, reason.
};

// "1 point", "2 points".
std::string counted(std::int64_t count, std::string_view one, std::string_view many);

// Sections of the page, as HTML.
using HtmlParts = std::map<std::string, std::string, std::less<>>;
void add_summary(const HtmlContent& content, HtmlParts& parts);
void add_heat_maps(const HtmlContent& content, HtmlParts& parts);
void add_cliffs(const HtmlContent& content, HtmlParts& parts);
void add_points(const HtmlContent& content, HtmlParts& parts);
void add_provenance(const HtmlContent& content, HtmlParts& parts);
void add_reading(const HtmlContent& content, HtmlParts& parts);

}  // namespace octile
