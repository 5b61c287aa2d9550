// SPDX-License-Identifier: Apache-2.0
// Tables made in memory for the tests of this layer.
#pragma once

#include "octile/kernels/family.h"
#include "octile/table/table_store.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace octile::test {

// {"tile": tile} of `kernel` for M in [lo, hi], with its measured ratio to the baseline, if any.
inline TableEntry entry(std::int64_t lo, std::int64_t hi, std::string kernel, std::int64_t tile,
                        std::optional<double> ratio = std::nullopt) {
  TableEntry result;
  result.m_lo = lo;
  result.m_hi = hi;
  result.kernel = std::move(kernel);
  result.config.set("tile", tile);
  if (ratio) {
    result.ratio = Ratio{*ratio, *ratio - 0.01, *ratio + 0.01};
  }
  return result;
}

// The same with its times.
inline TableEntry timed_entry(std::int64_t lo, std::int64_t hi, std::string kernel, std::int64_t tile, double us,
                              double baseline_us) {
  TableEntry result = entry(lo, hi, std::move(kernel), tile, baseline_us / us);
  result.us = us;
  result.baseline_us = baseline_us;
  return result;
}

inline TableEntry baseline_entry(std::int64_t lo, std::int64_t hi) {
  TableEntry result;
  result.m_lo = lo;
  result.m_hi = hi;
  result.kernel = kBaselineKernel;
  return result;
}

// Every hard key as the device and the problem have it; weights in the layout "packed".
inline TileTable own_table(const DeviceInfo& device, const Problem& problem, std::vector<TableEntry> entries) {
  TileTable table;
  table.key.device_name = device.name;
  table.key.arch = device.arch;
  table.key.model = device.kind == DeviceKind::cpu ? device.model : "";
  table.key.sm_count = device.sm_count;
  table.key.n = problem.n;
  table.key.k = problem.k;
  table.key.out_dtype = to_string(problem.out_dtype);
  table.key.weight_layout = "packed";
  table.entries = std::move(entries);
  table.file = "/tables/fake.octile.json";
  return table;
}

inline TableLookup in_table(TileTable table) {
  TableLookup lookup;
  lookup.table = std::make_shared<const TileTable>(std::move(table));
  return lookup;
}

}  // namespace octile::test
