// SPDX-License-Identifier: Apache-2.0
// Sums over measured points; see point_statistics.h.
#include "octile/report/point_statistics.h"

#include "octile/core/format.h"
#include "octile/tune/sweep.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace octile {
namespace {

std::optional<double> mean_of(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(geometric_mean(values));
}

std::optional<double> least_of(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(*std::min_element(values.begin(), values.end()));
}

std::optional<double> largest_of(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(*std::max_element(values.begin(), values.end()));
}

void count_serving(const BenchRow& row, ServingCount& serving) {
  if (!(row.chosen_us > 0)) {
    ++serving.none;
  } else if (row.choice == "tile") {
    ++serving.tile;
  } else if (row.choice == "vendor") {
    ++serving.vendor;
  } else if (row.choice == "baseline") {
    ++serving.baseline;
  } else {
    ++serving.heuristic;
  }
}

// The bounds between which every M of `values` goes into one row of a heat map: each of its own where they are few.
std::vector<std::pair<std::int64_t, std::int64_t>> heat_rows(const std::set<std::int64_t>& values) {
  std::vector<std::pair<std::int64_t, std::int64_t>> bounds;
  if (values.size() <= kMostHeatRows) {
    for (const std::int64_t m : values) {
      bounds.emplace_back(m, m);
    }
    return bounds;
  }
  const double first = std::log(static_cast<double>(*values.begin()));
  const double width = (std::log(static_cast<double>(*values.rbegin())) - first) / static_cast<double>(kMostHeatRows);
  std::size_t last_bin = kMostHeatRows;
  for (const std::int64_t m : values) {
    const double place = std::floor((std::log(static_cast<double>(m)) - first) / width);
    const std::size_t bin = std::min(static_cast<std::size_t>(std::max(place, 0.0)), kMostHeatRows - 1);
    if (bin == last_bin) {
      bounds.back().second = m;
    } else {
      bounds.emplace_back(m, m);
    }
    last_bin = bin;
  }
  return bounds;
}

CurvePoint point_of(const BenchRow& row, Curve curve) {
  if (curve == Curve::own) {
    return {row.m, row.own_us, row.own_kernel.substr(0, row.own_kernel.find(" {"))};
  }
  const std::string kernel = row.chosen_kernel.substr(0, row.chosen_kernel.find(" {"));
  return {row.m, row.chosen_us, kernel.empty() || kernel == row.choice ? row.choice : format("{} {}", row.choice, kernel)};
}

}  // namespace

std::vector<PointGroup> group_points(std::span<const BenchRow> rows) {
  std::vector<PointGroup> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const BenchRow& row = rows[i];
    const auto same = [&](const PointGroup& group) {
      return group.shape == row.shape && group.n == row.n && group.k == row.k && group.scope == row.scope;
    };
    auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end()) {
      groups.push_back({row.shape, row.n, row.k, row.scope, {}});
      found = groups.end() - 1;
    }
    found->rows.push_back(i);
  }
  for (PointGroup& group : groups) {
    std::stable_sort(group.rows.begin(), group.rows.end(),
                     [&](std::size_t a, std::size_t b) { return rows[a].m < rows[b].m; });
  }
  return groups;
}

PointSummary summarize_points(std::span<const BenchRow> rows) {
  return summarize_points(rows, 0, std::numeric_limits<std::int64_t>::max());
}

PointSummary summarize_points(std::span<const BenchRow> rows, std::int64_t m_lo, std::int64_t m_hi) {
  PointSummary summary;
  std::vector<double> gains;
  std::vector<double> vendor_gains;
  std::vector<double> shares;
  for (const BenchRow& row : rows) {
    if (row.m < m_lo || row.m > m_hi) {
      continue;
    }
    count_serving(row, summary.serving);
    if (!(row.chosen_us > 0)) {
      continue;
    }
    summary.m_lo = summary.points == 0 ? row.m : std::min(summary.m_lo, row.m);
    summary.m_hi = std::max(summary.m_hi, row.m);
    ++summary.points;
    if (row.ratio > 0) {
      gains.push_back(row.ratio);
      // No interval proves nothing.
      const bool is_faster = row.ratio_lo > 1;
      const bool is_slower = row.ratio_hi > 0 && row.ratio_hi < 1;
      ++(is_faster ? summary.faster : is_slower ? summary.slower : summary.equal);
    }
    if (row.vs_vendor > 0) {
      vendor_gains.push_back(row.vs_vendor);
    }
    if (row.floor_share > 0) {
      shares.push_back(row.floor_share);
    }
  }
  summary.gain = mean_of(gains);
  summary.gain_worst = least_of(gains);
  summary.gain_best = largest_of(gains);
  summary.vs_vendor = mean_of(vendor_gains);
  summary.vs_vendor_worst = least_of(vendor_gains);
  summary.vs_vendor_best = largest_of(vendor_gains);
  summary.vs_vendor_points = static_cast<std::int64_t>(vendor_gains.size());
  summary.floor_share = mean_of(shares);
  return summary;
}

std::span<const Stretch> summary_stretches() noexcept {
  static constexpr std::array<Stretch, 5> kStretches{
      {{1, 16}, {17, 64}, {65, 256}, {257, 1024}, {1025, std::numeric_limits<std::int64_t>::max()}}};
  return kStretches;
}

const char* to_string(Curve curve) noexcept { return curve == Curve::choice ? "choice" : "own"; }

std::vector<GroupCliff> cliffs_of(std::span<const BenchRow> rows, std::span<const PointGroup> groups) {
  std::vector<GroupCliff> cliffs;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const Curve which : {Curve::choice, Curve::own}) {
      std::vector<CurvePoint> curve;
      for (const std::size_t i : groups[g].rows) {
        const CurvePoint point = point_of(rows[i], which);
        if (point.us > 0 && (curve.empty() || point.m > curve.back().m)) {
          curve.push_back(point);
        }
      }
      for (Cliff& cliff : find_cliffs(curve)) {
        cliffs.push_back({g, which, std::move(cliff)});
      }
    }
  }
  return cliffs;
}

std::vector<HeatRow> heat_map(std::span<const BenchRow> rows, std::span<const PointGroup> groups, Gain gain) {
  const auto gain_of = [&](const BenchRow& row) { return gain == Gain::over_baseline ? row.ratio : row.vs_vendor; };
  std::set<std::int64_t> values;
  for (const BenchRow& row : rows) {
    if (gain_of(row) > 0) {
      values.insert(row.m);
    }
  }
  std::vector<HeatRow> map;
  for (const auto& [m_lo, m_hi] : heat_rows(values)) {
    HeatRow heat_row{m_lo, m_hi, {}};
    for (const PointGroup& group : groups) {
      std::vector<double> gains;
      for (const std::size_t i : group.rows) {
        if (rows[i].m >= m_lo && rows[i].m <= m_hi && gain_of(rows[i]) > 0) {
          gains.push_back(gain_of(rows[i]));
        }
      }
      heat_row.cells.push_back(mean_of(gains));
    }
    map.push_back(std::move(heat_row));
  }
  return map;
}

}  // namespace octile
