// SPDX-License-Identifier: Apache-2.0
// What tune, bench and verify have in common: the shapes, the device, the worker process that measures, the progress.
#pragma once

#include <octile/types.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace octile {

// One linear to measure: weight [n, k].
struct TuneShape {
  std::string name;  // "qkv", "o", ...: printed, never interpreted.
  std::int64_t n = 0;
  std::int64_t k = 0;
};

// Where a run stands; handed to the progress callback at least once per point, one call at a time, on the caller's
// thread or, with several devices, on one of the run's own.
struct TuneProgress {
  std::int64_t done = 0;   // Points (tune), rows (bench), entries (verify) finished.
  std::int64_t total = 0;  // Of all that was asked for.
  double elapsed_s = 0;
  double left_s = 0;      // Estimated time left; never more than the budget leaves.
  std::string doing;      // "qkv m=16: racing avx512 against the baseline"
  bool finished = false;  // The last call of a run.
};

struct RunOptions {
  std::string device = "cpu";  // An id of devices().
  std::string
      tables;  // tune: the one directory written to, empty: the user's. bench, verify: ':'-separated, searched first.
  DType out_dtype = DType::bf16;
  bool bias = false;
  Accumulate accumulate = Accumulate::device_default;
  Numerics numerics = Numerics::deterministic;
  bool batch_invariant = false;
  Pdl pdl = Pdl::full;  // The launch mode that is tuned and timed (GPUs from sm_90 on).
  int max_sms = 0;      // Multiprocessors of a GPU that products keep to; 0: no limit. With one no chain starts early.
  // tune: the layout of our families' weights, `automatic` being row_major; bench, verify: tables of another are not used.
  WeightLayout layout = WeightLayout::automatic;
  std::string scope = "linear";     // "linear": bf16 in, quantisation on both sides; "gemm": codes in.
  double time_budget_s = 0;         // 0: none. Kept within 10 %.
  double candidate_timeout_s = 60;  // A candidate that takes longer in one step is recorded as hanging and left out.
  std::uint64_t seed = 0;           // Of weights, activations and samples; 0: fresh.
  std::string command_line;         // Recorded in tables and reports.
  // How the process that measures is started; its arguments end with "--parent <pid>". Empty: {"/proc/self/exe", "worker"}.
  std::vector<std::string> worker_command;
  std::function<void(const TuneProgress&)> progress;
};

// M that are measured where the user names none (architecture.md, "The command").
std::vector<std::int64_t> default_m_list(bool is_gpu);

}  // namespace octile
