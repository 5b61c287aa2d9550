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
  row.max_sms = 116;
  row.chosen_config.set("TILE_N", 64);
  row.best_vendor_config.set("algo_id", 66);
  row.best_vendor_source_hash = "cafe";
  row.best_vendor_version = "13.1.0";
  row.best_vendor_rel_error = 0.002;
  return row;
}

// The same of a curve: with our own families alone beside it.
inline BenchRow curve_row(const std::string& shape, std::int64_t m, double chosen_us, double own_us) {
  BenchRow row = usual_row(shape, m);
  row.chosen_us = chosen_us;
  row.own_us = own_us;
  row.own_kernel = "hopper_wgmma {\"BM\": 64}";
  row.own_ratio = 1.6;
  row.own_ratio_lo = 1.5;
  row.own_ratio_hi = 1.7;
  row.own_vs_vendor = 1.2;
  row.own_vs_vendor_lo = 1.1;
  row.own_vs_vendor_hi = 1.3;
  return row;
}

// A step of the choice from 2 to 3, one of our own families from 1 to 2, a part that is missing, published times.
inline BenchResult curve_result() {
  BenchResult result;
  result.device_name = "NVIDIA_H200";
  result.all_m = true;
  result.rows = {curve_row("qkv", 1, 10, 10), curve_row("qkv", 2, 10.1, 15), curve_row("qkv", 3, 14, 15)};
  result.rows[1].published = {{"their_ladder", 11.5}};
  result.published_from = "theirs.csv";
  result.left_out = {{"qkv", 6144, 4096, {4, 6}, "it did not fit the time budget"}};
  result.missing = {"qkv m=5: own wrong"};
  result.notes = {"a note"};
  return result;
}

}  // namespace octile::test
