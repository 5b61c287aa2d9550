// SPDX-License-Identifier: Apache-2.0
// What a report says over many measured points: who serves, gains by stretches of M, cliffs, a heat map. Plain sums, no
// layout. The row of a point is a BenchRow; times, ratios and shares of 0 are "not measured".
#pragma once

#include "octile/tune/bench.h"
#include "octile/tune/cliffs.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace octile {

// Points of one weight in one scope, M ascending; indices into the rows.
struct PointGroup {
  std::string shape;
  std::int64_t n = 0, k = 0;
  std::string scope;
  std::vector<std::size_t> rows;
};
// In the order in which they first come.
std::vector<PointGroup> group_points(std::span<const BenchRow> rows);

// Who serves, in points.
struct ServingCount {
  std::int64_t tile = 0, vendor = 0, baseline = 0;
  std::int64_t heuristic = 0;  // A family's own config, where no table entry serves.
  std::int64_t none = 0;       // Not measured, or failed.
};

struct PointSummary {
  std::int64_t points = 0;                            // Measured.
  std::int64_t m_lo = 0, m_hi = 0;                    // The M that were measured.
  std::optional<double> gain, gain_worst, gain_best;  // Baseline / choice: geometric mean, least and largest.
  std::optional<double> vs_vendor, vs_vendor_worst, vs_vendor_best;
  std::int64_t vs_vendor_points = 0;
  std::optional<double> floor_share;               // Geometric mean.
  std::int64_t faster = 0, equal = 0, slower = 0;  // By the ratio's interval: above 1, around it, below.
  ServingCount serving;
};
PointSummary summarize_points(std::span<const BenchRow> rows);
// Of the rows with M in [m_lo, m_hi].
PointSummary summarize_points(std::span<const BenchRow> rows, std::int64_t m_lo, std::int64_t m_hi);

// Stretches of M for which a summary is printed: 1 to 16, 17 to 64, 65 to 256, 257 to 1024, and beyond.
struct Stretch {
  std::int64_t m_lo = 0, m_hi = 0;
};
std::span<const Stretch> summary_stretches() noexcept;

// Which times: of the choice, or of our own families alone.
enum class Curve { choice, own };
const char* to_string(Curve curve) noexcept;

struct GroupCliff {
  std::size_t group = 0;
  Curve curve = Curve::choice;
  Cliff cliff;  // `kernel` of its points is what serves: "tile hopper_decode", "baseline"; of the own ones the family.
};
// Group by group, of both curves as far as they were measured. Where an M was measured twice, its first row counts.
std::vector<GroupCliff> cliffs_of(std::span<const BenchRow> rows, std::span<const PointGroup> groups);

// Gains by M (down) and group (across). More M than kMostHeatRows are put together into stretches of equal length on a
// logarithmic scale, each cell the geometric mean.
inline constexpr std::size_t kMostHeatRows = 36;
struct HeatRow {
  std::int64_t m_lo = 0, m_hi = 0;
  std::vector<std::optional<double>> cells;  // One a group.
};
enum class Gain { over_baseline, over_vendor };
// Empty where nothing was measured.
std::vector<HeatRow> heat_map(std::span<const BenchRow> rows, std::span<const PointGroup> groups, Gain gain);

}  // namespace octile
