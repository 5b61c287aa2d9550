// SPDX-License-Identifier: Apache-2.0
// A table file for the first GPU in a directory of its own while the object lives.
#pragma once

#include "octile/kernels/backend.h"
#include "octile/kernels/cuda/ada_mma_config.h"
#include "octile/kernels/cuda/cublaslt_family.h"
#include "table_directory.h"
#include "tables.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace octile::test {

struct CudaTable {
  CudaTable(std::int64_t n, std::int64_t k) {
    problem.n = n;
    problem.k = k;
  }

  TableEntry entry_of(const KernelFamily& family, std::int64_t lo, std::int64_t hi, TileConfig config) const {
    TableEntry entry = test::entry(lo, hi, std::string(family.name()), 0, 1.5);
    entry.config = std::move(config);
    entry.kernel_source_hash = family.source_hash();
    entry.vendor_version = family.version();
    entry.us = 1.0;
    entry.baseline_us = 1.5;
    return entry;
  }
  TableEntry heuristic_entry(const char* family_name, std::int64_t lo, std::int64_t hi) const {
    const KernelFamily& family = *find_family(family_name);
    return entry_of(family, lo, hi, family.heuristic(device, problem, hi));
  }
  void write(std::vector<TableEntry> entries) {
    TileTable table = own_table(device, problem, std::move(entries));
    table.key.weight_layout = cuda::cublaslt_family().layout();
    table.key.numerics = to_string(problem.numerics);
    table.key.accumulate = to_string(cuda::resolve_accumulate(problem.accumulate));
    directory.write(table);
  }
  // For a weight that the table serves.
  WeightOptions options() const {
    WeightOptions result;
    result.device = device.id;
    result.tables = directory.path();
    result.numerics = problem.numerics;
    return result;
  }

  DeviceInfo device;
  Problem problem;
  TableDirectory directory;
};

}  // namespace octile::test
