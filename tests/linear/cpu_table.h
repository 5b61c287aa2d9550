// SPDX-License-Identifier: Apache-2.0
// A table file for this machine's CPU that names one kernel for every M, in a directory of its own while the object lives.
#pragma once

#include "octile/kernels/backend.h"
#include "table_directory.h"
#include "tables.h"

#include <string>
#include <utility>

namespace octile::test {

class CpuTable {
 public:
  // `kernel`: a family's name, or "baseline". shape: N and K.
  CpuTable(std::pair<std::int64_t, std::int64_t> shape, const std::string& kernel) {
    const Device device = find_device("cpu").value();
    Problem problem;
    problem.n = shape.first;
    problem.k = shape.second;
    TileTable table = own_table(device.info, problem, {});
    if (kernel == kBaselineKernel) {
      available_ = device.backend->baseline(device.info, problem) != nullptr;
      table.key.weight_layout = device.backend->families().front()->layout();  // One of ours: others void the table.
      table.entries = {baseline_entry(1, kLastM)};
    }
    for (const KernelFamily* family : device.backend->families()) {
      if (family->name() != kernel || !family->available(device.info)) {
        continue;
      }
      available_ = true;
      table.key.weight_layout = family->layout();
      for (const auto& [lo, hi] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {2, 16}, {17, kLastM}}) {
        TableEntry one = entry(lo, hi, kernel, 1, 1.5);
        one.config = family->heuristic(device.info, problem, lo);
        one.kernel_source_hash = family->source_hash();
        one.us = 1.0;
        one.baseline_us = 1.5;
        table.entries.push_back(one);
      }
    }
    if (available_) {
      directory_.write(table);
    }
  }

  bool available() const { return available_; }
  WeightOptions options() const {
    WeightOptions result;
    result.tables = directory_.path();
    return result;
  }

 private:
  static constexpr std::int64_t kLastM = 1 << 20;
  bool available_ = false;
  TableDirectory directory_;
};

}  // namespace octile::test
