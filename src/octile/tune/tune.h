// SPDX-License-Identifier: Apache-2.0
// The tuner of a device, or of several that are alike: sweeps shapes x M, proves each choice, writes table files.
// docs/tuning.md says how it decides. The caller's process is the single writer of journal and tables and never runs a
// kernel; a worker process does.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/device.h"
#include "octile/table/tile_config.h"
#include "octile/tune/conditions.h"
#include "octile/tune/run_options.h"
#include "octile/tune/shard.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace octile {

// A point that a service ran, and how often.
struct TuneUse {
  std::int64_t n = 0, k = 0, m = 0;
  double calls = 0;
};

struct TuneOptions : RunOptions {
  // Not empty: these share the work, in place of `device`. Their hard keys must be the same; see group_devices().
  std::vector<std::string> devices;
  std::vector<TuneShape> shapes;
  std::vector<std::int64_t> m_list;  // Empty: default_m_list().
  // Not empty: exactly these points in place of shapes x m_list, those first that take most time in all. `shapes` names
  // every (n, k) of them, and no other.
  std::vector<TuneUse> uses;
  // With uses: points of which something else is known, so that no interval between two measured points crosses them, and
  // none is narrowed.
  std::vector<TuneUse> known;
  bool thorough = false;  // Every M up to 1024 and a sample above, more candidates and rounds.
  bool resume = false;    // Go on from the journal in the tables directory; start afresh where there is none.
  Shard shard;            // Of the points, those of this run; see shard.h.
};

// What became of one point.
enum class PointStatus {
  tile,       // A tile of ours is proven faster than the baseline, or the best there is where only ours can serve (slab64).
  vendor,     // A searched vendor algorithm is.
  baseline,   // Nothing is proven faster: the baseline stays.
  no_budget,  // Not measured, or undecided without a single complete comparison: no entry.
  failed,     // The baseline itself, or every candidate, failed here; `reason` says how.
};
const char* to_string(PointStatus status) noexcept;  // "tile", "vendor", "baseline", "no budget", "failed".

struct TunePoint {
  TuneShape shape;
  std::int64_t m = 0;
  PointStatus status = PointStatus::no_budget;
  std::string kernel;  // The family that won, or "baseline".
  TileConfig config;
  double us = 0;                                 // Median of the winner; 0 where not measured.
  double baseline_us = 0;                        // Median of the baseline in the same rounds.
  double ratio = 0, ratio_lo = 0, ratio_hi = 0;  // baseline_us / us of the paired rounds, with its 95 % interval.
  int rounds = 0;
  double rel_error = 0;
  bool resumed = false;             // Taken from the journal.
  bool undecided = false;           // The budget or the round limit ended before the test did: the incumbent stayed.
  MeasureConditions conditions;     // Of its passes.
  std::vector<std::string> worked;  // Families of which a candidate passed the check of its numbers here.
  std::string reason;
};

// A candidate that was left out because something is wrong with it.
struct FailedCandidate {
  std::string shape;
  std::int64_t m = 0;
  std::string kernel;
  TileConfig config;
  std::string kind;  // "wrong", "crash", "hang", "error".
  std::string reason;
};

struct TuneSummary {
  std::vector<TunePoint> points;  // One per (shape, M) that was requested of this run, in request order; then points that
                                  // were added: by refinement, and at the borders of a shard.
  std::vector<FailedCandidate> failed;
  std::vector<std::string> files;  // Table files written.
  std::vector<std::string> notes;  // Sentences worth printing: a journal set aside, memory that limited the copies, ...
  std::string journal;             // Path of the journal that is left (interrupted runs); empty when it was removed.
  double elapsed_s = 0;
  int interrupted_by = 0;  // SIGINT or SIGTERM: the journal is flushed; the command exits by 128 + this.
  // Set where the run must not count as done: a family failed at every candidate, no point could be measured, ... The
  // command prints it first and exits by 1.
  std::optional<std::string> failure;
  double geomean_ratio = 0;  // Over measured points, 1 where the baseline stays; 0 without any.
};

// Every GPU here; the CPU where there is none, since it would disturb what is measured on the others.
std::vector<std::string> devices_to_tune();
// What tables keep where the user does not say: on sm_90 the baseline's bits, which cost our families there 0.8 % on average
// (hopper_decode_bits.json), so that turning Octile on changes no bit; elsewhere determinism.
Numerics tuned_numerics(const DeviceInfo& device) noexcept;
using DeviceGroups = std::vector<std::vector<std::string>>;
// Devices whose hard keys (name, architecture, multiprocessors, versions) are the same belong to one group, which can be
// tuned as TuneOptions::devices. Errors (invalid_argument): a device that is not here or is named twice, with its name.
Expected<DeviceGroups> group_devices(const std::vector<std::string>& devices, const RunOptions& options);

// Errors: invalid_argument for shapes, M and options that cannot work; unavailable for the device; io for the directory;
// failed where the worker cannot be started.
Expected<TuneSummary> tune(const TuneOptions& options);

// The hidden sub-command `octile worker --parent <pid>`: serves requests on standard input until it closes, and dies with
// process `parent_pid`. Returns the exit status.
int run_worker(int parent_pid);
// The same from the arguments after "worker".
int run_worker(int argc, char** argv);

}  // namespace octile
