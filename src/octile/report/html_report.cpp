// SPDX-License-Identifier: Apache-2.0
// From results to the content of a page, and from its parts to the page.
#include "octile/report/html_report.h"

#include "octile/core/format.h"
#include "octile/report/html_assets.h"
#include "octile/report/html_content.h"
#include "octile/report/html_escape.h"
#include "octile/report/numbers.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace octile {
namespace {

using Json = nlohmann::ordered_json;

Json measured_number(double value) { return std::isfinite(value) && value > 0 ? Json(value) : Json(nullptr); }

Json interval(double mid, double lo, double hi) {
  return mid > 0 ? Json{measured_number(mid), measured_number(lo), measured_number(hi)} : Json(nullptr);
}

// What the scripts draw from and fill their lists with.
std::string data_json(const HtmlContent& content) {
  Json groups = Json::array();
  std::vector<std::size_t> group_of(content.rows.size(), 0);
  for (const PointGroup& group : content.groups) {
    for (const std::size_t row : group.rows) {
      group_of[row] = groups.size();
    }
    groups.push_back({{"name", group.shape}, {"n", group.n}, {"k", group.k}, {"scope", group.scope}});
  }
  // Points refer to the names of published times by their place, the order in which they first come.
  std::vector<std::string> published;
  const auto published_of = [&](const BenchRow& row) {
    Json times = Json::array();
    for (const PublishedTime& time : row.published) {
      const auto place = std::ranges::find(published, time.name) - published.begin();
      if (place == std::ssize(published)) {
        published.push_back(time.name);
      }
      if (time.us > 0) {
        times.push_back(Json::array({place, time.us}));
      }
    }
    return times;
  };
  Json points = Json::array();
  for (std::size_t i = 0; i < content.rows.size(); ++i) {
    const BenchRow& row = content.rows[i];
    if (row.chosen_us > 0) {
      points.push_back({{"group", group_of[i]},
                        {"m", row.m},
                        {"baseline", measured_number(row.baseline_us)},
                        {"vendor", measured_number(row.best_vendor_us)},
                        {"choice", row.chosen_us},
                        {"own", measured_number(row.own_us)},
                        {"own_kernel", row.own_kernel.substr(0, row.own_kernel.find(" {"))},
                        {"own_gain", interval(row.own_ratio, row.own_ratio_lo, row.own_ratio_hi)},
                        {"published", published_of(row)},
                        {"floor", measured_number(row.floor_us)},
                        {"gain", interval(row.ratio, row.ratio_lo, row.ratio_hi)},
                        {"over_vendor", interval(row.vs_vendor, row.vs_vendor_lo, row.vs_vendor_hi)},
                        {"share", measured_number(row.floor_share)},
                        {"serves", row.choice},
                        {"kernel", row.chosen_kernel.substr(0, row.chosen_kernel.find(" {"))}});
    }
  }
  Json cliffs = Json::array();
  for (const auto& [group, curve, cliff] : content.cliffs) {
    cliffs.push_back(
        {{"group", group}, {"curve", to_string(curve)}, {"m", cliff.kind == Cliff::Kind::step ? cliff.to.m : cliff.from.m}});
  }
  const Json data = {{"groups", std::move(groups)},
                     {"points", std::move(points)},
                     {"cliffs", std::move(cliffs)},
                     {"published", published},
                     {"published_from", content.published_from}};
  return json_for_script(data.dump(-1, ' ', true, Json::error_handler_t::replace));
}

void add_plots(const HtmlContent& content, HtmlParts& parts) {
  const HtmlAssets& assets = html_assets();
  const bool is_drawn = !assets.d3.empty() && !content.rows.empty();
  parts["plots"] =
      assets.d3.empty()
          ? "<p>The octile that made this page was built without d3, so the page has no plots; all figures are below.</p>"
      : content.rows.empty() ? "<p>Nothing was measured.</p>"
                             : "<noscript><p>Plots are drawn by a script, which is switched off here; all figures are "
                               "below.</p></noscript>\n<div id=\"plot-legend\"></div>\n<div id=\"plot-grid\"></div>";
  parts["script_hashes"] = format("'{}'", assets.script_hash);
  if (is_drawn) {
    parts["script_hashes"] += format(" '{}'", assets.d3_hash);
    parts["d3"] = format("<script>{}</script>", assets.d3);
    parts["d3_licence"] = format("<details><summary>Licence of d3, which draws the plots</summary><pre>{}</pre></details>",
                                 html_escape_lines(assets.d3_licence));
  }
}

// "136 points, 4 weights, M 1 to 8192", "the whole linear, ...", "Octile 0.1.0", "2026-11-30T05:48:25Z": parts that stay
// whole where the line breaks.
std::string subtitle_of(const HtmlContent& content) {
  std::string html;
  const auto add = [&](const std::string& text) { html += format("<span>{}</span>\n", html_escape(text)); };
  std::string points = format("{}, {}", counted(std::ssize(content.rows), "point", "points"),
                              counted(std::ssize(content.groups), "weight", "weights"));
  if (!content.rows.empty()) {
    const auto by_m = [](const BenchRow& a, const BenchRow& b) { return a.m < b.m; };
    const auto [first, last] = std::minmax_element(content.rows.begin(), content.rows.end(), by_m);
    points += first->m == last->m ? format(", M {}", first->m) : format(", M {} to {}", first->m, last->m);
  }
  add(points);
  const auto all_of_scope = [&](std::string_view scope) {
    return std::all_of(content.rows.begin(), content.rows.end(), [&](const BenchRow& row) { return row.scope == scope; });
  };
  if (!content.rows.empty() && all_of_scope("linear")) {
    add("the whole linear, quantisation included");
  } else if (!content.rows.empty() && all_of_scope("gemm")) {
    add("the product alone");
  }
  if (!content.origin.octile_version.empty()) {
    add("Octile " + content.origin.octile_version);
  }
  if (!content.origin.date.empty()) {
    add(content.origin.date);
  }
  return html;
}

std::string render(const HtmlContent& content) {
  const HtmlAssets& assets = html_assets();
  const std::string kind = content.is_tune ? "Octile tuning report" : "Octile benchmark report";
  HtmlParts parts;
  parts["style_hash"] = assets.style_hash;
  parts["style"] = assets.style;
  parts["script"] = assets.script;
  parts["generator"] = OCTILE_VERSION;
  parts["kind"] = kind;
  parts["device"] = html_escape(content.origin.device_name.empty() ? "Unknown device" : content.origin.device_name);
  parts["title"] = format("{}: {}", parts["device"], kind);
  parts["subtitle"] = subtitle_of(content);
  parts["serves_title"] = content.is_tune ? "Result" : "Serves";
  parts["data"] = data_json(content);
  if (!content.failure.empty()) {
    parts["failure"] =
        format("<p class=\"failure\" role=\"alert\"><strong>Failed:</strong> {}</p>", html_escape(content.failure));
  }
  add_plots(content, parts);
  add_summary(content, parts);
  add_heat_maps(content, parts);
  add_cliffs(content, parts);
  add_points(content, parts);
  add_provenance(content, parts);
  add_reading(content, parts);
  return fill_frame(assets.page, parts);
}

void finish(HtmlContent& content) {
  content.groups = group_points(content.rows);
  content.cliffs = cliffs_of(content.rows, content.groups);
}

BenchRow row_of(const TunePoint& point, const std::string& scope) {
  BenchRow row;
  row.shape = point.shape.name;
  row.n = point.shape.n;
  row.k = point.shape.k;
  row.m = point.m;
  row.scope = scope;
  row.choice = to_string(point.status);
  row.rounds = point.rounds;
  row.rel_error = point.us > 0 ? point.rel_error : std::numeric_limits<double>::quiet_NaN();
  row.chosen_us = point.us;
  row.baseline_us = point.baseline_us;
  row.ratio = point.ratio;
  row.ratio_lo = point.ratio_lo;
  row.ratio_hi = point.ratio_hi;
  row.chosen_kernel = point.kernel;
  if (!point.config.values.empty()) {
    row.chosen_kernel += " " + point.config.to_json();
  }
  const auto add = [&](const std::string& sentence) {
    row.note += row.note.empty() || sentence.empty() ? "" : "; ";
    row.note += sentence;
  };
  add(point.undecided ? "undecided: the incumbent stayed" : "");
  add(disturbance_text(point.conditions));
  add(point.resumed ? "from the journal" : "");
  add(point.reason);
  return row;
}

}  // namespace

bool html_has_plots() noexcept { return !html_assets().d3.empty(); }

std::string bench_html(const BenchRecord& record, const std::string& record_path) {
  const BenchResult& result = record.result;
  HtmlContent content;
  HtmlOrigin& origin = content.origin;
  origin.device_name = result.device_name;
  origin.octile_version = result.octile_version;
  origin.kernel_source_hash = result.kernel_source_hash;
  origin.date = result.date;
  origin.protocol = result.protocol;
  origin.commit = record.commit;
  origin.commands = record.commands;
  origin.facts = record.facts;
  origin.record = record_path;
  content.rows = result.rows;
  finish(content);
  content.published_from = result.published_from;
  for (const std::string& missing : result.missing) {
    content.notes.push_back("Not measured: " + missing);
  }
  for (const LeftOut& part : result.left_out) {
    std::vector<std::string> ms;
    for (const std::int64_t m : part.m) {
      ms.push_back(std::to_string(m));
    }
    content.notes.push_back(
        format("Not measured: {}, {} of its M: {}: {}", part.shape, ms.size(), part.reason, join(ms, ", ")));
  }
  for (const BenchRow& row : result.rows) {
    if (!row.note.empty()) {
      content.notes.push_back(format("{} M={}: {}", row.shape, row.m, row.note));
    }
  }
  content.notes.insert(content.notes.end(), result.notes.begin(), result.notes.end());
  if (result.interrupted_by != 0) {
    content.failure = "the run was interrupted; what was measured until then is here";
  }
  return render(content);
}

std::string tune_html(const TuneSummary& summary, const HtmlOrigin& origin) {
  HtmlContent content;
  content.is_tune = true;
  content.origin = origin;
  if (summary.failure.has_value()) {
    content.failure = *summary.failure;
  } else if (summary.interrupted_by != 0) {
    content.failure = "the run was interrupted; what was measured until then is here";
  }
  std::int64_t undecided = 0;
  std::int64_t unmeasured = 0;
  for (const TunePoint& point : summary.points) {
    content.rows.push_back(row_of(point, origin.scope));
    undecided += point.undecided ? 1 : 0;
    unmeasured += point.status == PointStatus::no_budget ? 1 : 0;
  }
  finish(content);
  if (undecided > 0) {
    content.remarks.push_back(format("{} undecided when the budget or the rounds ended: the incumbent stayed.",
                                     counted(undecided, "point was", "points were")));
  }
  if (unmeasured > 0) {
    content.remarks.push_back(
        format("{} not fit the time budget and got no entry.", counted(unmeasured, "point did", "points did")));
  }
  if (!summary.failed.empty()) {
    content.remarks.push_back(format("{} left out because something is wrong with them; they are listed below.",
                                     counted(std::ssize(summary.failed), "candidate was", "candidates were")));
  }
  for (const FailedCandidate& failed : summary.failed) {
    content.failures.push_back({failed.shape, format("{}", failed.m),
                                format("{} {}", failed.kernel, failed.config.to_json()), failed.kind, failed.reason});
  }
  content.notes = summary.notes;
  for (const std::string& file : summary.files) {
    content.notes.push_back("Wrote " + file);
  }
  if (!summary.journal.empty()) {
    content.notes.push_back(format("Journal kept: {} (go on with --resume)", summary.journal));
  }
  content.notes.push_back(format("Took {}", format_duration(summary.elapsed_s)));
  return render(content);
}

}  // namespace octile
