// SPDX-License-Identifier: Apache-2.0
// Text and CSV of what was measured: tune's summary, bench's rows, verify's findings.
#include "octile/core/format.h"
#include "octile/report/csv.h"
#include "octile/report/numbers.h"
#include "octile/report/point_statistics.h"
#include "octile/report/text_report.h"
#include "octile/report/text_table.h"

#include <algorithm>
#include <bit>
#include <ranges>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

namespace octile {
namespace {

// 0 stands for "not measured" in times and ratios.
std::optional<double> measured(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

std::string ratio_with_interval(double ratio, double lo, double hi) {
  if (!measured(ratio).has_value()) {
    return "-";
  }
  return format("{} [{}, {}]", format_ratio(ratio), format_fixed(lo, 2), format_fixed(hi, 2));
}

std::string lines(const std::vector<std::string>& sentences, const char* prefix) {
  std::string text;
  for (const std::string& sentence : sentences) {
    text += format("{}{}\n", prefix, sentence);
  }
  return text;
}

// The largest; noise of a few passes makes more of them than a reader wants.
constexpr std::size_t kPrintedCliffs = 10;

std::string cliffs_text(std::string_view of, std::span<const Cliff> cliffs) {
  std::string text = format("Cliffs of {}: {}\n", of, cliffs.empty() ? "none" : "");
  for (const Cliff& cliff : cliffs.first(std::min(cliffs.size(), kPrintedCliffs))) {
    text += format("  {}\n", describe(cliff));
  }
  if (cliffs.size() > kPrintedCliffs) {
    text += format("  and {} smaller ones\n", cliffs.size() - kPrintedCliffs);
  }
  return text;
}

std::string cliffs_of_curves(const BenchResult& result) {
  std::string text;
  const std::vector<PointGroup> groups = group_points(result.rows);
  const std::vector<GroupCliff> found = cliffs_of(result.rows, groups);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const Curve curve : {Curve::choice, Curve::own}) {
      std::vector<Cliff> cliffs;
      for (const GroupCliff& cliff : found) {
        if (cliff.group == g && cliff.curve == curve) {
          cliffs.push_back(cliff.cliff);
        }
      }
      text += cliffs_text(format("{}, {}", groups[g].shape, curve == Curve::own ? "our own families alone" : "the choice"),
                          cliffs);
    }
  }
  return text;
}

// More rows than these are for a page or a program.
constexpr std::size_t kPrintedRows = 200;
// The first few; the record has all.
constexpr std::size_t kPrintedMs = 12;

std::string left_out_text(const LeftOut& part) {
  std::vector<std::string> ms;
  for (const std::int64_t m : part.m | std::views::take(kPrintedMs)) {
    ms.push_back(std::to_string(m));
  }
  return format("not measured: {}, {} of its M: {}: {}{}\n", part.shape, part.m.size(), part.reason, join(ms, ", "),
                part.m.size() > kPrintedMs ? ", ..." : "");
}

// Shape by shape in the order of the request, M ascending: points that were added in between are sorted in.
std::vector<const TunePoint*> in_reading_order(const std::vector<TunePoint>& points) {
  std::vector<std::string> shapes;
  std::vector<const TunePoint*> ordered;
  for (const TunePoint& point : points) {
    ordered.push_back(&point);
    if (std::find(shapes.begin(), shapes.end(), point.shape.name) == shapes.end()) {
      shapes.push_back(point.shape.name);
    }
  }
  const auto rank = [&](const TunePoint* point) {
    return std::pair(std::find(shapes.begin(), shapes.end(), point->shape.name), point->m);
  };
  std::stable_sort(ordered.begin(), ordered.end(),
                   [&](const TunePoint* a, const TunePoint* b) { return rank(a) < rank(b); });
  return ordered;
}

}  // namespace

std::string tune_text(const TuneSummary& summary) {
  std::string text;
  if (summary.failure.has_value()) {
    text += format("FAILED: {}\n\n", *summary.failure);
  }
  TextTable table{{{"shape"},
                   {"N", Align::right},
                   {"K", Align::right},
                   {"M", Align::right},
                   {"result"},
                   {"kernel"},
                   {"us", Align::right},
                   {"baseline us", Align::right},
                   {"gain"},
                   {"note"}},
                  {}};
  std::int64_t unmeasured = 0;
  std::vector<std::string> reasons;
  for (const TunePoint* point : in_reading_order(summary.points)) {
    unmeasured += point->status == PointStatus::no_budget ? 1 : 0;
    std::string note = point->undecided ? "undecided" : "";
    if (point->conditions.disturbed > 0) {
      note += format("{}{} of {} passes disturbed", note.empty() ? "" : ", ", point->conditions.disturbed,
                     point->conditions.passes);
    }
    if (point->resumed) {
      note += note.empty() ? "from the journal" : ", from the journal";
    }
    if (!point->reason.empty()) {
      reasons.push_back(format("{} M={}: {}", point->shape.name, point->m, point->reason));
    }
    table.rows.push_back({point->shape.name, format("{}", point->shape.n), format("{}", point->shape.k),
                          format("{}", point->m), to_string(point->status), point->kernel, format_us(measured(point->us)),
                          format_us(measured(point->baseline_us)),
                          ratio_with_interval(point->ratio, point->ratio_lo, point->ratio_hi), note});
  }
  text += table.to_string() + "\n";
  text += lines(reasons, "");
  if (!summary.failed.empty()) {
    text += format("{} candidates were left out because they failed:\n", summary.failed.size());
    for (const FailedCandidate& candidate : summary.failed) {
      text += format("  {} M={} {} {}: {}: {}\n", candidate.shape, candidate.m, candidate.kernel, candidate.config.to_json(),
                     candidate.kind, candidate.reason);
    }
  }
  text += lines(summary.notes, "note: ");
  if (unmeasured > 0) {
    text += format("{} points did not fit the time budget and have no entry; --resume or a larger budget goes on.\n",
                   unmeasured);
  }
  text += lines(summary.files, "wrote ");
  if (!summary.journal.empty()) {
    text += format("journal kept: {} (go on with --resume)\n", summary.journal);
  }
  text += format("geometric mean of baseline / choice over the measured points: {}; took {}\n",
                 format_ratio(measured(summary.geomean_ratio)), format_duration(summary.elapsed_s));
  return text;
}

std::string bench_text(const BenchResult& result) {
  std::string text =
      format("{}, Octile {}, {}\n{}\n\n", result.device_name, result.octile_version, result.date, result.protocol);
  TextTable table{{{"shape"},
                   {"M", Align::right},
                   {"baseline us", Align::right},
                   {"vendor us", Align::right},
                   {"choice us", Align::right},
                   {"choice"},
                   {"baseline/choice"},
                   {"vendor/choice"},
                   {"of floor", Align::right},
                   {"TFLOP/s", Align::right},
                   {"GB/s", Align::right}},
                  {}};
  if (result.all_m) {
    table.columns.insert(table.columns.end(), {{"own us", Align::right}, {"baseline/own"}, {"vendor/own"}});
  }
  // Of thousands, those at powers of two.
  const bool is_thinned = result.rows.size() > kPrintedRows;
  for (const BenchRow& row : result.rows) {
    if (is_thinned && !std::has_single_bit(static_cast<std::uint64_t>(row.m))) {
      continue;
    }
    const std::string kernel = row.chosen_kernel.empty() ? row.choice : format("{}: {}", row.choice, row.chosen_kernel);
    table.rows.push_back(
        {row.shape, format("{}", row.m), format_us(measured(row.baseline_us)), format_us(measured(row.best_vendor_us)),
         format_us(measured(row.chosen_us)), kernel, ratio_with_interval(row.ratio, row.ratio_lo, row.ratio_hi),
         ratio_with_interval(row.vs_vendor, row.vs_vendor_lo, row.vs_vendor_hi), format_share(measured(row.floor_share)),
         format_fixed(measured(row.tflops), 2), format_fixed(measured(row.gbps), 1)});
    if (result.all_m) {
      std::vector<std::string>& cells = table.rows.back();
      cells.push_back(format_us(measured(row.own_us)));
      cells.push_back(ratio_with_interval(row.own_ratio, row.own_ratio_lo, row.own_ratio_hi));
      cells.push_back(ratio_with_interval(row.own_vs_vendor, row.own_vs_vendor_lo, row.own_vs_vendor_hi));
    }
  }
  text += table.to_string() + "\n";
  text += is_thinned ? format("{} rows are measured; these are at powers of two, --json, --csv and --html have all.\n",
                              result.rows.size())
                     : "";
  text += result.all_m ? cliffs_of_curves(result) : "";
  for (const BenchRow& row : result.rows) {
    if (!row.note.empty()) {
      text += format("note: {} M={}: {}\n", row.shape, row.m, row.note);
    }
  }
  text += lines(result.missing, "not measured: ");
  for (const LeftOut& part : result.left_out) {
    text += left_out_text(part);
  }
  text += lines(result.notes, "note: ");
  text += format("geometric mean of baseline / choice: {}; took {}\n", format_ratio(measured(result.geomean_ratio)),
                 format_duration(result.elapsed_s));
  return text;
}

std::string bench_csv(const BenchResult& result) {
  std::vector<std::string> header = {"shape",
                                     "n",
                                     "k",
                                     "m",
                                     "scope",
                                     "chained",
                                     "layout",
                                     "accumulate",
                                     "out_dtype",
                                     "baseline_us",
                                     "baseline_kernel",
                                     "best_vendor_us",
                                     "best_vendor_kernel",
                                     "chosen_us",
                                     "chosen_kernel",
                                     "choice",
                                     "ratio",
                                     "ratio_lo",
                                     "ratio_hi",
                                     "rounds",
                                     "vs_vendor",
                                     "vs_vendor_lo",
                                     "vs_vendor_hi",
                                     "floor_us",
                                     "floor_share",
                                     "tflops",
                                     "gbps",
                                     "rel_error"};
  if (result.all_m) {
    header.insert(header.end(), {"own_us", "own_kernel", "own_ratio", "own_ratio_lo", "own_ratio_hi", "own_vs_vendor",
                                 "own_vs_vendor_lo", "own_vs_vendor_hi"});
  }
  std::string text = csv_record(header);
  const auto cell = [](double value) { return csv_number(measured(value)); };
  for (const BenchRow& row : result.rows) {
    std::vector<std::string> cells = {row.shape,
                                      format("{}", row.n),
                                      format("{}", row.k),
                                      format("{}", row.m),
                                      row.scope,
                                      row.chained ? "true" : "false",
                                      row.layout,
                                      row.accumulate,
                                      row.out_dtype,
                                      cell(row.baseline_us),
                                      row.baseline_kernel,
                                      cell(row.best_vendor_us),
                                      row.best_vendor_kernel,
                                      cell(row.chosen_us),
                                      row.chosen_kernel,
                                      row.choice,
                                      cell(row.ratio),
                                      cell(row.ratio_lo),
                                      cell(row.ratio_hi),
                                      format("{}", row.rounds),
                                      cell(row.vs_vendor),
                                      cell(row.vs_vendor_lo),
                                      cell(row.vs_vendor_hi),
                                      cell(row.floor_us),
                                      cell(row.floor_share),
                                      cell(row.tflops),
                                      cell(row.gbps),
                                      csv_number(row.rel_error)};
    if (result.all_m) {
      cells.insert(cells.end(),
                   {cell(row.own_us), row.own_kernel, cell(row.own_ratio), cell(row.own_ratio_lo), cell(row.own_ratio_hi),
                    cell(row.own_vs_vendor), cell(row.own_vs_vendor_lo), cell(row.own_vs_vendor_hi)});
    }
    text += csv_record(cells);
  }
  return text;
}

std::string verify_text(const VerifyResult& result) {
  std::string text;
  TextTable table{{{"N", Align::right},
                   {"K", Align::right},
                   {"entry"},
                   {"M", Align::right},
                   {"kernel"},
                   {"rel. error", Align::right},
                   {"us", Align::right},
                   {"baseline us", Align::right},
                   {"baseline/entry"}},
                  {}};
  // By weight, then by M; the run takes them in the order that its budget likes.
  std::vector<VerifiedEntry> entries = result.entries;
  std::stable_sort(entries.begin(), entries.end(), [](const VerifiedEntry& a, const VerifiedEntry& b) {
    return std::tie(a.n, a.k, a.file, a.m) < std::tie(b.n, b.k, b.file, b.m);
  });
  // Of thousands, one for each M, only what loses.
  for (const VerifiedEntry& entry : entries) {
    if (result.all_m && entry.beaten_by.empty()) {
      continue;
    }
    table.rows.push_back({format("{}", entry.n), format("{}", entry.k), entry.key, format("{}", entry.m), entry.kernel,
                          format("{:.2e}", entry.rel_error), format_us(measured(entry.us)),
                          format_us(measured(entry.baseline_us)),
                          ratio_with_interval(entry.ratio, entry.ratio_lo, entry.ratio_hi)});
  }
  text +=
      format("{}\n{}{}", result.device_name, table.rows.empty() ? "" : table.to_string(), table.rows.empty() ? "" : "\n");
  text += result.findings.empty() ? "" : "Wrong:\n" + findings_text(result.findings);
  text += result.advice.empty() ? "" : "To know:\n" + findings_text(result.advice);
  for (const TableCliffs& curve : result.cliffs) {
    text += cliffs_text(curve.file, curve.cliffs);
  }
  for (const std::string& file : result.files) {
    text += format("wrote {}\n", file);
  }
  text += format("{} entries checked, {} findings; took {}\n", result.entries.size(), result.findings.size(),
                 format_duration(result.elapsed_s));
  return text;
}

}  // namespace octile
