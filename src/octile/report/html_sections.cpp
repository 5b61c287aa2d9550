// SPDX-License-Identifier: Apache-2.0
// The sections of a report that need no script: summary, heat maps, cliffs, every point, provenance. Whatever comes from
// elsewhere (names, kernels, messages) goes through html_escape().
#include "octile/core/format.h"
#include "octile/report/html_content.h"
#include "octile/report/html_escape.h"
#include "octile/report/numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace octile {
namespace {

// 0 stands for "not measured" in times and ratios.
std::optional<double> measured(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

bool has_vendor(const HtmlContent& content) {
  return std::any_of(content.rows.begin(), content.rows.end(), [](const BenchRow& row) { return row.vs_vendor > 0; });
}

bool has_floor(const HtmlContent& content) {
  return std::any_of(content.rows.begin(), content.rows.end(), [](const BenchRow& row) { return row.floor_share > 0; });
}

bool has_own(const HtmlContent& content) {
  return std::any_of(content.rows.begin(), content.rows.end(), [](const BenchRow& row) { return row.own_us > 0; });
}

std::string weight_of(std::int64_t n, std::int64_t k) { return format("{} \u00D7 {}", n, k); }

std::string m_range(std::int64_t m_lo, std::int64_t m_hi) {
  return m_lo == m_hi ? format("{}", m_lo) : format("{}\u2013{}", m_lo, m_hi);
}

// The class that colours a choice everywhere: "tile", "vendor", "baseline", "heuristic", "none".
std::string_view class_of(const BenchRow& row) {
  for (const std::string_view known : {"tile", "vendor", "baseline"}) {
    if (row.choice == known) {
      return known;
    }
  }
  return row.chosen_us > 0 ? "heuristic" : "none";
}

std::string badge(const BenchRow& row) {
  return format("<span class=\"badge {}\">{}</span>", class_of(row), html_escape(row.choice.empty() ? "-" : row.choice));
}

// Summary.

std::string card(std::string_view figure, std::string_view title, std::string_view detail) {
  return format("<div class=\"card\"><p class=\"figure\">{}</p><p class=\"title\">{}</p><p class=\"detail\">{}</p></div>\n",
                figure, title, detail);
}

struct Serving {
  std::string_view css_class, name;
  std::int64_t points;
};

std::string serving_card(const HtmlContent& content, const ServingCount& count) {
  const std::array<Serving, 5> all{{{"tile", "a tile of ours", count.tile},
                                    {"vendor", "a searched vendor algorithm", count.vendor},
                                    {"baseline", "the baseline", count.baseline},
                                    {"heuristic", "a heuristic", count.heuristic},
                                    {"none", "not measured", count.none}}};
  std::int64_t total = 0;
  for (const Serving& serving : all) {
    total += serving.points;
  }
  std::string bar;
  std::string list;
  double x = 0;
  for (const Serving& serving : all) {
    if (serving.points == 0) {
      continue;
    }
    const double width = 100.0 * static_cast<double>(serving.points) / static_cast<double>(total);
    bar += format("<rect class=\"{}\" x=\"{:.3f}\" y=\"0\" width=\"{:.3f}\" height=\"10\"/>", serving.css_class, x, width);
    list +=
        format("<li><span class=\"swatch {}\"></span><b>{}</b> {}</li>", serving.css_class, serving.points, serving.name);
    x += width;
  }
  return format(
      "<div class=\"card serving\"><p class=\"title\">{}</p>"
      "<svg class=\"bar\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">{}</svg>"
      "<ul class=\"serves\">{}</ul></div>\n",
      content.is_tune ? "What the tables say" : "What serves, in points", bar, list);
}

std::string range_of(const std::optional<double>& worst, const std::optional<double>& best) {
  return format("from {} to {}", format_ratio(worst), format_ratio(best));
}

std::string cards(const HtmlContent& content) {
  const PointSummary all = summarize_points(content.rows);
  std::string text = card(
      format_ratio(all.gain), "over the baseline",
      format("geometric mean of {}, {}", counted(all.points, "point", "points"), range_of(all.gain_worst, all.gain_best)));
  if (all.vs_vendor.has_value()) {
    text += card(format_ratio(all.vs_vendor), "over the searched vendor",
                 format("geometric mean of {}, {}", counted(all.vs_vendor_points, "point", "points"),
                        range_of(all.vs_vendor_worst, all.vs_vendor_best)));
  }
  for (const Stretch& stretch : summary_stretches()) {
    const PointSummary part = summarize_points(content.rows, stretch.m_lo, stretch.m_hi);
    if (part.floor_share.has_value()) {
      text += card(format_share(part.floor_share), format("of the floor at M {}", m_range(part.m_lo, part.m_hi)),
                   "time to stream the weight / time of the choice, geometric mean");
      break;
    }
  }
  text += card(format("{} / {}", all.faster, all.points), "proven faster than the baseline",
               format("{} neither faster nor slower, {} slower, by 95 % intervals", all.equal, all.slower));
  return format("<div class=\"cards\">{}</div>{}", text, serving_card(content, all.serving));
}

std::string stretch_row(const HtmlContent& content, std::string_view name, const PointSummary& part) {
  std::string row =
      format("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td>", name, part.points, format_ratio(part.gain));
  if (has_vendor(content)) {
    row += format("<td>{}</td>", format_ratio(part.vs_vendor));
  }
  if (has_floor(content)) {
    row += format("<td>{}</td>", format_share(part.floor_share));
  }
  row += format("<td>{}</td><td>{}</td><td>{}</td>", part.serving.tile, part.serving.vendor, part.serving.baseline);
  return row + format("<td>{}</td><td>{}</td></tr>\n", part.faster, part.slower);
}

std::string stretches(const HtmlContent& content) {
  std::string rows;
  for (const Stretch& stretch : summary_stretches()) {
    const PointSummary part = summarize_points(content.rows, stretch.m_lo, stretch.m_hi);
    if (part.points > 0) {
      rows += stretch_row(content, m_range(part.m_lo, part.m_hi), part);
    }
  }
  rows += stretch_row(content, "all", summarize_points(content.rows));
  return format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Summary by number of tokens\">"
      "<table class=\"numbers\"><thead><tr><th scope=\"col\">M</th><th scope=\"col\">points</th>"
      "<th scope=\"col\">baseline /<br>choice</th>{}{}<th scope=\"col\">tile<br>serves</th>"
      "<th scope=\"col\">vendor<br>serves</th><th scope=\"col\">baseline<br>serves</th>"
      "<th scope=\"col\">proven<br>faster</th><th "
      "scope=\"col\">proven<br>slower</th></tr></thead><tbody>\n{}</tbody></table></div>",
      has_vendor(content) ? "<th scope=\"col\">vendor /<br>choice</th>" : "",
      has_floor(content) ? "<th scope=\"col\">of the<br>floor</th>" : "", rows);
}

// Heat maps.

struct HeatStep {
  double below;  // Gains below this have the class.
  std::string_view css_class, label;
};

constexpr std::array<HeatStep, 8> kHeatSteps{{{0.90, "l2", "below 0.90"},
                                              {0.98, "l1", "0.90 to 0.98"},
                                              {1.02, "z", "0.98 to 1.02"},
                                              {1.10, "g1", "to 1.10"},
                                              {1.25, "g2", "to 1.25"},
                                              {1.50, "g3", "to 1.50"},
                                              {2.00, "g4", "to 2.00"},
                                              {std::numeric_limits<double>::infinity(), "g5", "2.00 and more"}}};

std::string_view heat_class(double gain) {
  return std::find_if(kHeatSteps.begin(), kHeatSteps.end() - 1, [&](const HeatStep& step) { return gain < step.below; })
      ->css_class;
}

std::string heat_table(const HtmlContent& content, Gain gain, std::string_view caption) {
  const std::vector<HeatRow> map = heat_map(content.rows, content.groups, gain);
  if (map.empty()) {
    return {};
  }
  // The rows are laid out as columns on a wide screen: hence the roles, which tables lose with another layout.
  std::string head = "<tr role=\"row\"><th role=\"columnheader\" scope=\"col\">M</th>";
  for (const PointGroup& group : content.groups) {
    head += format("<th role=\"columnheader\" scope=\"col\">{} <small>{}</small></th>", html_escape(group.shape),
                   weight_of(group.n, group.k));
  }
  std::string rows;
  bool is_joined = false;
  for (const HeatRow& row : map) {
    is_joined = is_joined || row.m_lo != row.m_hi;
    rows += format("<tr role=\"row\"><th role=\"rowheader\" scope=\"row\">{}</th>", m_range(row.m_lo, row.m_hi));
    for (const std::optional<double>& cell : row.cells) {
      rows += cell.has_value() ? format("<td role=\"cell\" class=\"{}\">{}</td>", heat_class(*cell), format_fixed(cell, 2))
                               : "<td role=\"cell\" class=\"empty\">\u2013</td>";
    }
    rows += "</tr>\n";
  }
  return format(
      "<h3>{}</h3>\n{}<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table role=\"table\" "
      "class=\"heat "
      "columns-{}\"><thead role=\"rowgroup\">{}</tr></thead><tbody role=\"rowgroup\">\n{}</tbody></table></div>\n",
      caption,
      is_joined ? "<p>So many M were measured that neighbours are put together; each cell is their geometric mean.</p>\n"
                : "",
      caption, std::min<std::size_t>(content.groups.size(), 9), head, rows);
}

// Every point.

std::string time_cell(double us) { return format("<td>{}</td>", format_us(measured(us))); }

std::string ratio_cell(double ratio, double lo, double hi) {
  if (!measured(ratio).has_value()) {
    return "<td>-</td>";
  }
  return format("<td>{} <span class=\"interval\">[{}, {}]</span></td>", format_ratio(ratio), format_fixed(measured(lo), 2),
                format_fixed(measured(hi), 2));
}

// A kernel's name; its config, which may be long, folds away.
std::string kernel_cell(const std::string& kernel) {
  const std::size_t brace = kernel.find(" {");
  const std::string name = html_escape(kernel.empty() ? "-" : kernel.substr(0, brace));
  return brace == std::string::npos
             ? format("<td class=\"text\">{}</td>", name)
             : format("<td class=\"text\"><details><summary>{}</summary><code>{}</code></details></td>", name,
                      html_escape(kernel.substr(brace + 1)));
}

std::string point_row(const HtmlContent& content, const BenchRow& row, std::size_t group) {
  std::string text =
      format("<tr data-group=\"{}\"><th scope=\"row\">{} <small>{}</small></th><td>{}</td><td class=\"text\">{}</td>", group,
             html_escape(row.shape), weight_of(row.n, row.k), row.m, badge(row));
  text += kernel_cell(row.chosen_kernel) + time_cell(row.baseline_us);
  text += has_vendor(content) ? time_cell(row.best_vendor_us) : "";
  text += time_cell(row.chosen_us) + ratio_cell(row.ratio, row.ratio_lo, row.ratio_hi);
  text += has_vendor(content) ? ratio_cell(row.vs_vendor, row.vs_vendor_lo, row.vs_vendor_hi) : "";
  text += has_floor(content) ? format("<td>{}</td>", format_share(measured(row.floor_share))) : "";
  if (has_own(content)) {
    text +=
        kernel_cell(row.own_kernel) + time_cell(row.own_us) + ratio_cell(row.own_ratio, row.own_ratio_lo, row.own_ratio_hi);
    text += has_vendor(content) ? ratio_cell(row.own_vs_vendor, row.own_vs_vendor_lo, row.own_vs_vendor_hi) : "";
  }
  if (!content.is_tune) {
    text += format("<td>{}</td><td>{}</td>", format_fixed(measured(row.tflops), 2), format_fixed(measured(row.gbps), 1));
  }
  text += format("<td>{}</td><td>{}</td>", std::isfinite(row.rel_error) ? format("{:.1e}", row.rel_error) : "-", row.rounds);
  return text + (content.is_tune ? format("<td class=\"text remark\">{}</td></tr>\n", html_escape(row.note)) : "</tr>\n");
}

std::string list_of(const std::vector<std::string>& sentences) {
  std::string list;
  for (const std::string& sentence : sentences) {
    list += format("<li>{}</li>\n", html_escape(sentence));
  }
  return list.empty() ? "" : format("<ul>\n{}</ul>\n", list);
}

std::string fact(std::string_view name, const std::string& value) {
  return value.empty() ? "" : format("<div><dt>{}</dt><dd>{}</dd></div>\n", html_escape(name), html_escape(value));
}

}  // namespace

std::string counted(std::int64_t count, std::string_view one, std::string_view many) {
  return format("{} {}", count, count == 1 ? one : many);
}

void add_summary(const HtmlContent& content, HtmlParts& parts) {
  parts["cards"] = cards(content);
  parts["stretches"] = stretches(content);
  parts["remarks"] = list_of(content.remarks);
}

void add_heat_maps(const HtmlContent& content, HtmlParts& parts) {
  std::string maps = heat_table(content, Gain::over_baseline, "Baseline / choice") +
                     heat_table(content, Gain::over_vendor, "Searched vendor / choice");
  if (maps.empty()) {
    parts["heat"] = "<p>Nothing was measured.</p>";
    return;
  }
  std::string legend;
  for (const HeatStep& step : kHeatSteps) {
    legend += format("<li><span class=\"swatch {}\"></span>{}</li>", step.css_class, step.label);
  }
  parts["heat"] = format(
      "<p>How many times as fast the choice is, by weight (N \u00D7 K) and number of tokens M; below 1 it is slower.</p>\n"
      "<ul class=\"legend\">{}</ul>\n{}",
      legend, maps);
}

void add_cliffs(const HtmlContent& content, HtmlParts& parts) {
  const std::string margin = format_fixed(1 + kCliffMargin, 2);
  const std::string text = format(
      "<p>A cliff is a step up in the time of the choice that M does not explain: from M to M + 1, "
      "<span class=\"formula\">time(M + 1) / time(M) &gt; {}</span>; to the next measured M, where some were left out, "
      "<span class=\"formula\">time(next M) / time(M) &gt; {} \u00D7 next M / M</span>. So is an M that takes more than {} "
      "times as "
      "long as a larger one. Tokens cost less there when they are fewer, or padded to more.</p>\n",
      margin, margin, margin);
  if (content.cliffs.empty()) {
    parts["cliffs"] = text + "<p>There is none among the M that were measured.</p>";
    return;
  }
  std::string rows;
  const bool own = has_own(content);
  for (const auto& [g, curve, cliff] : content.cliffs) {
    const PointGroup& group = content.groups[g];
    const bool is_step = cliff.kind == Cliff::Kind::step;
    const std::string whose =
        own ? format("<td class=\"text\">{}</td>", curve == Curve::own ? "our own families alone" : "the choice") : "";
    rows += format(
        "<tr><th scope=\"row\">{} <small>{}</small></th>{}<td class=\"text\">{}</td><td>{} \u2192 {}</td><td>{} \u2192 "
        "{}</td>"
        "<td>{}</td><td class=\"text\">{}{}</td></tr>\n",
        html_escape(group.shape), weight_of(group.n, group.k), whose, is_step ? "step up" : "slower than a larger M",
        cliff.from.m, cliff.to.m, format_us(cliff.from.us), format_us(cliff.to.us), format_ratio(cliff.ratio),
        html_escape(cliff.from.kernel),
        cliff.from.kernel == cliff.to.kernel ? "" : format(" \u2192 {}", html_escape(cliff.to.kernel)));
  }
  parts["cliffs"] =
      text +
      format(
          "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Cliffs\"><table class=\"numbers\"><thead><tr>"
          "<th scope=\"col\" class=\"text\">shape</th>{}<th scope=\"col\" class=\"text\">kind</th><th scope=\"col\">M</th>"
          "<th scope=\"col\">\u00B5s</th><th scope=\"col\">times as long</th><th scope=\"col\" "
          "class=\"text\">serves</th></tr>"
          "</thead><tbody>\n{}</tbody></table></div>",
          own ? "<th scope=\"col\" class=\"text\">curve</th>" : "", rows);
}

void add_points(const HtmlContent& content, HtmlParts& parts) {
  struct Column {
    const char* title;
    bool is_text;
    bool is_shown;
  };
  const bool vendor = has_vendor(content);
  const bool own = has_own(content);
  const std::array<Column, 19> columns{{{"shape", true, true},
                                        {"M", false, true},
                                        {content.is_tune ? "result" : "serves", true, true},
                                        {"kernel", true, true},
                                        {"baseline \u00B5s", false, true},
                                        {"vendor \u00B5s", false, vendor},
                                        {"choice \u00B5s", false, true},
                                        {"baseline / choice", false, true},
                                        {"vendor / choice", false, vendor},
                                        {"of floor", false, has_floor(content)},
                                        {"own kernel", true, own},
                                        {"own \u00B5s", false, own},
                                        {"baseline / own", false, own},
                                        {"vendor / own", false, own && vendor},
                                        {"TFLOP/s", false, !content.is_tune},
                                        {"GB/s", false, !content.is_tune},
                                        {"rel. error", false, true},
                                        {"rounds", false, true},
                                        {"remark", true, content.is_tune}}};
  std::string head;
  for (const Column& column : columns) {
    if (column.is_shown) {
      head += format("<th scope=\"col\"{}>{}</th>", column.is_text ? " class=\"text\"" : "", column.title);
    }
  }
  std::string rows;
  for (std::size_t g = 0; g < content.groups.size(); ++g) {
    for (const std::size_t row : content.groups[g].rows) {
      rows += point_row(content, content.rows[row], g);
    }
  }
  parts["points"] = format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Every point\"><table class=\"numbers\" "
      "id=\"points-table\">"
      "<thead><tr>{}</tr></thead><tbody>\n{}</tbody></table></div>",
      head, rows);
}

void add_provenance(const HtmlContent& content, HtmlParts& parts) {
  const HtmlOrigin& origin = content.origin;
  std::string facts = fact("device", origin.device_name) + fact("Octile", origin.octile_version) +
                      fact("date", origin.date) + fact("commit", origin.commit) +
                      fact("kernel source hash", origin.kernel_source_hash);
  for (const auto& [name, value] : origin.facts) {
    facts += fact(name, value);
  }
  parts["provenance"] = format("<dl>\n{}{}</dl>", facts, fact("protocol", origin.protocol));

  std::string commands;
  if (!origin.commit.empty() && origin.commit != "unknown") {
    constexpr std::string_view kDirty = "-dirty";  // As `git describe` marks changes that were not committed.
    const bool is_dirty = origin.commit.ends_with(kDirty);
    commands += format("git checkout {}{}\n",
                       html_escape(origin.commit.substr(0, origin.commit.size() - (is_dirty ? kDirty.size() : 0))),
                       is_dirty ? "   # and changes that were not committed" : "");
  }
  commands += "make command\n";
  for (const std::string& command : origin.commands) {
    commands += html_escape(command) + "\n";
  }
  const std::string again =
      origin.record.empty()
          ? ""
          : format("<p>The page again, from the record:</p>\n<pre><code>octile report {} --html FILE</code></pre>\n",
                   html_escape(origin.record));
  parts["reproduce"] = format(
      "<p>In a clone of the project, on a quiet machine with this device (the command is then "
      "<code>build/release/bin/octile</code>)"
      ":</p>\n<pre><code>{}</code></pre>\n{}",
      commands, again);

  std::string notes = list_of(content.notes);
  if (!content.failures.empty()) {
    std::string rows;
    for (const std::vector<std::string>& failure : content.failures) {
      rows += "<tr>";
      for (const std::string& cell : failure) {
        rows += format("<td class=\"text\">{}</td>", html_escape(cell));
      }
      rows += "</tr>\n";
    }
    notes += format(
        "<h3>Candidates that failed</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Candidates that "
        "failed\"><table class=\"wrapping\"><thead><tr><th scope=\"col\">shape</th><th scope=\"col\">M</th><th "
        "scope=\"col\">"
        "candidate</th><th scope=\"col\">kind</th><th "
        "scope=\"col\">reason</th></tr></thead><tbody>\n{}</tbody></table></div>\n",
        rows);
  }
  parts["notes"] = notes.empty() ? "" : format("<section id=\"notes\">\n<h2>Notes of the run</h2>\n{}</section>", notes);
}

void add_reading(const HtmlContent& content, HtmlParts& parts) {
  std::string text =
      "<dl>\n"
      "<div><dt>Baseline</dt><dd>What the linear runs without Octile: the vendor\u2019s own choice.</dd></div>\n"
      "<div><dt>Choice</dt><dd>What Octile runs at this weight and M: a tile of one of its kernel families, a vendor\u2019s "
      "algorithm that a "
      "search found, or the baseline.</dd></div>\n";
  if (has_own(content)) {
    text +=
        "<div><dt>Own families alone</dt><dd>What Octile would run without any vendor\u2019s kernel: the tile that the "
        "table has for this M, else what the cost models of our families prefer.</dd></div>\n";
  }
  if (!content.published_from.empty()) {
    text += format(
        "<div><dt>Published times</dt><dd>Marks of the plots that are named \u201Cother run\u201D are from {}. They were "
        "not measured in this run, perhaps on another machine, and no ratio here is made of them.</dd></div>\n",
        html_escape(content.published_from));
  }
  if (has_vendor(content)) {
    text +=
        "<div><dt>Searched vendor</dt><dd>The fastest of the vendor\u2019s algorithms that a trial in the same run found; "
        "on a CPU the "
        "vendor\u2019s bare matmul on decoded weights, without quantisation or scales.</dd></div>\n";
  }
  text +=
      "<div><dt>Ratio and interval</dt><dd>Other time / time of the choice, of paired turns within one run; in brackets the "
      "95 % "
      "interval of that ratio. Where nothing differs, about one point in twenty shows an interval that leaves out 1. The "
      "bands of "
      "the plots are these intervals; in the plot of times they stand at the time of the choice times the ratio, since "
      "times "
      "of their own have no interval.</dd></div>\n";
  if (has_floor(content)) {
    text +=
        "<div><dt>Floor</dt><dd>The time to stream the weight once from memory and do nothing else, in the same run: what a "
        "product with few tokens cannot beat when calls stand alone. ";
    text += std::any_of(content.rows.begin(), content.rows.end(), [](const BenchRow& row) { return row.chained; })
                ? "Here calls are chained: a kernel requests its weight before the one before it has ended, which the "
                  "floor\u2019s "
                  "launches do not, so a share can be above 100 %. "
                : "";
    text += "With many tokens arithmetic is the limit, and the share of this floor falls.</dd></div>\n";
  }
  text +=
      content.is_tune
          ? "<div><dt>Result</dt><dd>tile, vendor: proven faster than the baseline by more than 2 %. baseline: nothing is. "
            "no budget: not measured. failed: the baseline itself, or every candidate, failed.</dd></div>\n"
          : "";
  parts["reading"] = text + "</dl>";
}

}  // namespace octile
