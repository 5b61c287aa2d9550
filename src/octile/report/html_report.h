// SPDX-License-Identifier: Apache-2.0
// A report as one HTML file that loads nothing: summary, plots, heat maps, every point, provenance. docs/report.md says what
// each figure means. All of it but the plots is in the HTML itself; scripts sort, filter and draw.
#pragma once

#include "octile/report/bench_record.h"
#include "octile/tune/tune.h"

#include <string>
#include <utility>
#include <vector>

namespace octile {

// Where the figures of a page come from.
struct HtmlOrigin {
  std::string device_name;
  std::string octile_version;
  std::string kernel_source_hash;
  std::string date;  // ISO 8601, UTC.
  std::string protocol;
  std::string scope;  // Of a tuning, "linear" or "gemm"; rows of a bench have their own.
  std::string commit;
  std::vector<std::string> commands;                       // That made the figures, in order.
  std::vector<std::pair<std::string, std::string>> facts;  // Driver, libraries, ...: name and value.
  std::string record;                                      // The file of JSON the page was made from; empty: a run.
};

// `record_path` is what the page names as its source; empty for a run that has just been measured.
std::string bench_html(const BenchRecord& record, const std::string& record_path);
std::string tune_html(const TuneSummary& summary, const HtmlOrigin& origin);

// False where this build was made without d3: its pages have no plots and say so.
bool html_has_plots() noexcept;

}  // namespace octile
