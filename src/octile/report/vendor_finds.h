// SPDX-License-Identifier: Apache-2.0
// What a bench found out about a table: algorithms of a vendor that beat the table's choice beyond doubt.
#pragma once

#include <octile/error.hpp>

#include "octile/report/bench_record.h"
#include "octile/table/tile_table.h"

#include <string>
#include <vector>

namespace octile {

struct VendorFind {
  TableEntry entry;  // For its M alone, with the record's date; the ratio's bounds are those of two intervals together.
  std::string shape;
  std::string beaten;            // The kernel that the table chose.
  double gain = 0, gain_lo = 0;  // Its time / the algorithm's.
};

// For one weight and the table of it that the record was measured with. Finds are rows of the table's layout, accumulation
// and limit of multiprocessors, for whole linears, with at least six paired rounds, in which an algorithm of a vendor beats
// both the choice and the baseline by more than the tuner's margin, with the whole of its interval; the choice is what the
// table has at that M, or the M lies in a gap. Rows that do not say what an entry needs (config, source hash, version), as
// records of older builds, and those that the table has measured since are none. Errors (failed): the record is of another
// device; (corrupt): it has no date, an algorithm that is not legal for this table, or times that contradict their ratio.
Expected<std::vector<VendorFind>> vendor_finds(const BenchRecord& record, const TileTable& table);

// Those finds in the table. `file` is the record's, for the table's provenance.
Expected<TileTable> adopt_vendor_finds(const TileTable& table, const std::vector<VendorFind>& finds,
                                       const std::string& file);

}  // namespace octile
