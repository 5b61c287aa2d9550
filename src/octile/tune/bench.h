// SPDX-License-Identifier: Apache-2.0
// The measuring half of `octile bench`: baseline, best vendor, dispatched choice and floor, interleaved in one run.
#pragma once

#include <octile/error.hpp>

#include "octile/table/tile_config.h"
#include "octile/tune/conditions.h"
#include "octile/tune/run_options.h"

#include <cstdint>
#include <string>
#include <vector>

namespace octile {

struct BenchOptions : RunOptions {
  std::vector<TuneShape> shapes;
  std::vector<std::int64_t> m_list;  // Empty: default_m_list(), with all_m curve_ms().
  // Curves: every M of the list from coarse to fine, fewer passes each, and a lane for our own families alone.
  bool all_m = false;
  std::int64_t max_m = 0;  // With all_m, in place of a list: the largest M; 0: kLargestCurveM, on a CPU kLargestCurveMOnCpu.
};

// A time that others measured at the same weight and M, in another run.
struct PublishedTime {
  std::string name;
  double us = 0;
};

// Field names are those of `bench --json` (architecture.md, "Machine-readable output").
struct BenchRow {
  std::string shape;
  std::int64_t n = 0, k = 0, m = 0;
  std::string scope = "linear";
  bool chained = false;
  std::string layout;      // Of the weight that the choice reads.
  std::string accumulate;  // "fast" or "precise".
  std::string out_dtype = "bf16";
  int max_sms = 0;  // Multiprocessors that products were held to; 0: none.
  double baseline_us = 0;
  std::string baseline_kernel;
  double best_vendor_us = 0;       // 0 and an empty name where there is no vendor here.
  std::string best_vendor_kernel;  // On a CPU the bare matmul on decoded weights, without quantisation or scales.
  // Of an algorithm of a vendor that a search found: what a table's entry of it says. Elsewhere empty.
  TileConfig best_vendor_config;
  std::string best_vendor_source_hash, best_vendor_version;
  double best_vendor_rel_error = 0;
  double chosen_us = 0;
  std::string chosen_kernel;
  TileConfig chosen_config;
  std::string choice;                                        // "tile", "vendor", "baseline", "heuristic".
  double ratio = 0, ratio_lo = 0, ratio_hi = 0;              // baseline_us / chosen_us, 95 % interval of the paired ratio.
  int rounds = 0;                                            // Paired rounds behind the intervals.
  double vs_vendor = 0, vs_vendor_lo = 0, vs_vendor_hi = 0;  // best_vendor_us / chosen_us; 0 without a vendor.
  // What would serve with our own families alone, where curves were asked for: the choice's own figures where it is one.
  double own_us = 0;
  std::string own_kernel;
  double own_ratio = 0, own_ratio_lo = 0, own_ratio_hi = 0;              // baseline_us / own_us.
  double own_vs_vendor = 0, own_vs_vendor_lo = 0, own_vs_vendor_hi = 0;  // best_vendor_us / own_us.
  double floor_us = 0;                                                   // Streaming the weights alone.
  double floor_share = 0;                                                // floor_us / chosen_us.
  double tflops = 0;                                                     // Of the choice.
  double gbps = 0;                       // Weights, activations and outputs of the choice, once each.
  double rel_error = 0;                  // Of the choice against the reference, on samples.
  std::vector<PublishedTime> published;  // In the order of the file that they are from.
  MeasureConditions conditions;          // Of its passes.
  std::string note;                      // Why something is missing; empty where all was measured.
};

// The M of one weight that curves lack, ascending.
struct LeftOut {
  std::string shape;
  std::int64_t n = 0, k = 0;
  std::vector<std::int64_t> m;
  std::string reason;
};

struct BenchResult {
  bool all_m = false;  // Curves were asked for.
  std::string device_name;
  std::string octile_version;
  std::string kernel_source_hash;    // Of every family available on the device, together.
  std::string date;                  // ISO 8601, UTC.
  std::string protocol;              // One line: copies, bytes, rounds, order.
  std::vector<BenchRow> rows;        // Shape by shape, M ascending.
  std::vector<std::string> missing;  // "gate_up m=1024: <reason>", for rows that could not be measured.
  std::vector<LeftOut> left_out;     // Of curves: what did not fit the budget, which is then not in `missing`.
  std::string published_from;        // The file of the rows' published times; empty: none.
  std::vector<std::string> notes;
  double elapsed_s = 0;
  double geomean_ratio = 0;
  int interrupted_by = 0;  // SIGINT or SIGTERM; rows measured so far are there.
};

// Errors as for tune().
Expected<BenchResult> bench(const BenchOptions& options);

}  // namespace octile
