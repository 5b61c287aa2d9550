// SPDX-License-Identifier: Apache-2.0
// From decided points to table entries: intervals of M whose both ends were measured.
#pragma once

#include "octile/kernels/backend.h"
#include "octile/table/tile_table.h"
#include "octile/tune/tune.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace octile {

// Entries for the points of one weight, in any order. Neighbours (among the decided ones) with the same winner become one
// interval, which carries the proof of its weakest point; between different winners a gap stays, and a failed point breaks
// an interval. Points without a budget are passed over. `date` is ISO 8601.
std::vector<TableEntry> make_entries(std::vector<TunePoint> points, const Backend& backend, const std::string& date);

// Gaps between decided neighbours with different winners, in which another measurement would say where the border lies:
// the M in the middle (by ratio) of each, widest gap first. Without `level` those gaps are passed over in which the kernel
// above is within a tenth of the best and serves all the same (gap_rule.h).
std::vector<std::int64_t> border_candidates(std::vector<TunePoint> points, bool level = true);

}  // namespace octile
