// SPDX-License-Identifier: Apache-2.0
// Intervals of table entries; see intervals.h.
#include "octile/tune/intervals.h"

#include "octile/table/gap_rule.h"
#include "octile/table/table_ops.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace octile {

namespace {

bool is_decided(const TunePoint& point) {
  return point.status == PointStatus::tile || point.status == PointStatus::vendor || point.status == PointStatus::baseline;
}

bool same_winner(const TunePoint& a, const TunePoint& b) { return a.kernel == b.kernel && a.config == b.config; }

// What serves between them is good enough without another measurement. Told from these two alone, so that shards decide as
// one run does; where an interval's weakest point, which its entry shows, is far worse, the table may be more careful
// (gap_rule.h).
bool is_settled(const TunePoint& below, const TunePoint& above) {
  return above.status != PointStatus::baseline && above.ratio_lo > 1 &&
         bridges_gap(above.us, below.baseline_us, above.baseline_us) && is_level_gap(above.us, below.us);
}

void sort_by_m(std::vector<TunePoint>& points) {
  std::stable_sort(points.begin(), points.end(), [](const TunePoint& a, const TunePoint& b) { return a.m < b.m; });
}

TableEntry entry_of(const TunePoint& point, const Backend& backend, const std::string& date) {
  TableEntry entry;
  entry.m_lo = entry.m_hi = point.m;
  entry.kernel = point.kernel;
  entry.config = point.config;
  entry.us = point.us;
  entry.baseline_us = point.baseline_us;
  entry.rel_error = point.rel_error;
  entry.date = date;
  if (point.status != PointStatus::baseline) {
    entry.ratio = Ratio{point.ratio, point.ratio_lo, point.ratio_hi};
  }
  if (const KernelFamily* family = find_family(backend, point.kernel); family != nullptr) {
    entry.kernel_source_hash = family->source_hash();
    entry.vendor_version = family->is_vendor() ? family->version() : std::string();
  }
  return entry;
}

}  // namespace

std::vector<TableEntry> make_entries(std::vector<TunePoint> points, const Backend& backend, const std::string& date) {
  sort_by_m(points);
  std::vector<TableEntry> entries;
  const TunePoint* previous = nullptr;
  for (const TunePoint& point : points) {
    if (point.status == PointStatus::failed) {
      previous = nullptr;
      continue;
    }
    if (!is_decided(point) || (previous != nullptr && point.m == previous->m)) {
      continue;
    }
    TableEntry entry = entry_of(point, backend, date);
    if (previous != nullptr && same_winner(*previous, point)) {
      extend_entry(entries.back(), entry);
    } else {
      entries.push_back(std::move(entry));
    }
    previous = &point;
  }
  return entries;
}

std::vector<std::int64_t> border_candidates(std::vector<TunePoint> points, bool level) {
  sort_by_m(points);
  std::vector<std::pair<double, std::int64_t>> gaps;
  const TunePoint* previous = nullptr;
  for (const TunePoint& point : points) {
    if (!is_decided(point)) {
      // A point that failed or had no budget lies between: measuring beside it would meet the same.
      previous = nullptr;
      continue;
    }
    if (previous != nullptr && point.m - previous->m > 1 && !same_winner(*previous, point) &&
        (level || !is_settled(*previous, point))) {
      const double lo = static_cast<double>(previous->m);
      const double hi = static_cast<double>(point.m);
      const auto middle =
          std::clamp(static_cast<std::int64_t>(std::llround(std::sqrt(lo * hi))), previous->m + 1, point.m - 1);
      gaps.emplace_back(hi / lo, middle);
    }
    previous = &point;
  }
  std::stable_sort(gaps.begin(), gaps.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::int64_t> result;
  result.reserve(gaps.size());
  for (const auto& [width, middle] : gaps) {
    result.push_back(middle);
  }
  return result;
}

}  // namespace octile
