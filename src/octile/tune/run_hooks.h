// SPDX-License-Identifier: Apache-2.0
// What tune, bench and verify take from their surroundings, so that tests can run them on fake devices and simulated time.
#pragma once

#include "octile/tune/bench.h"
#include "octile/tune/tune.h"
#include "octile/tune/verify.h"
#include "octile/tune/worker.h"
#include "octile/tune/worker_process.h"

#include <functional>
#include <string>
#include <vector>

namespace octile {

// Where a device's worker runs, and what the device is called there.
struct WorkerPlace {
  WorkerLauncher launcher;
  std::string device;
};

struct RunHooks {
  DeviceFinder find_device;  // Where devices and families come from, here and in an in-process worker.
  std::function<double(const std::string& device)> clock_s;  // Seconds since some moment.
  bool in_process = false;  // Measure in this process instead of in a worker: no crash is survived.
  // Not set: every device is here, under its own name.
  std::function<WorkerPlace(const std::string& device)> place = nullptr;
};
// find_device(), the steady clock, a worker process.
RunHooks default_hooks();

Expected<DeviceGroups> group_devices_with(const std::vector<std::string>& devices, const RunOptions& options,
                                          const RunHooks& hooks);
Expected<TuneSummary> tune_with(const TuneOptions& options, const RunHooks& hooks);
Expected<BenchResult> bench_with(const BenchOptions& options, const RunHooks& hooks);
Expected<VerifyResult> verify_with(const VerifyOptions& options, const RunHooks& hooks);

}  // namespace octile
