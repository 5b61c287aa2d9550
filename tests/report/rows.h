// SPDX-License-Identifier: Apache-2.0
// A row of `bench` with every figure set: for the tests of reports.
#pragma once

#include "octile/tune/bench.h"

#include <cstdint>
#include <string>

namespace octile::test {

inline BenchRow usual_row(const std::string& shape, std::int64_t m) {
  BenchRow row;
  row.shape = shape;
  row.n = 6144;
  row.k = 4096;
  row.m = m;
  row.scope = "gemm";
  row.chained = true;
  row.layout = "row_major";
  row.accumulate = "fast";
  row.baseline_us = 20;
  row.baseline_kernel = "cublaslt";
  row.best_vendor_us = 15;
  row.best_vendor_kernel = "cublaslt {\"algo_id\": 66}";
  row.chosen_us = 10;
  row.chosen_kernel = "hopper_decode {\"TILE_N\": 64}";
  row.choice = "tile";
  row.ratio = 2;
  row.ratio_lo = 1.9;
  row.ratio_hi = 2.1;
  row.rounds = 12;
  row.vs_vendor = 1.5;
  row.vs_vendor_lo = 1.4;
  row.vs_vendor_hi = 1.6;
  row.floor_us = 8;
  row.floor_share = 0.8;
  row.tflops = 80;
  row.gbps = 2500;
  row.rel_error = 0.001;
  return row;
}

}  // namespace octile::test
