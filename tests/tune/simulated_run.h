// SPDX-License-Identifier: Apache-2.0
// Runs of tune, bench and verify on the fake device: in this process on simulated time, or with real worker processes.
#pragma once

#include "octile/table/tile_table.h"
#include "octile/tune/run_hooks.h"
#include "support/files.h"
#include "support/simulated_device.h"

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace octile::test {

inline DeviceFinder finder_of(const SimulatedBackend& backend) {
  return [&backend](std::string_view id) { return backend.find(id); };
}

// Everything in this process, on the backend's simulated clock.
inline RunHooks simulated_hooks(const SimulatedBackend& backend) {
  return {finder_of(backend), [&backend](const std::string&) { return backend.now_s(); }, true};
}

// Real worker processes, real time. The worker is this test program; see main_test.cpp.
inline RunHooks process_hooks(const SimulatedBackend& backend) {
  return {finder_of(backend),
          [](const std::string&) {
            return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
          },
          false};
}
inline std::vector<std::string> worker_command(const std::string& scenario) {
  return {"/proc/self/exe", "worker", scenario};
}

inline TuneOptions tune_options(const std::string& directory, const std::string& scenario) {
  TuneOptions options;
  options.device = "fake";
  options.tables = directory;
  options.shapes = {{"small", 48, 64}, {"wide", 80, 32}};
  options.m_list = {1, 4, 16};
  options.seed = 7;
  options.candidate_timeout_s = 20;
  options.worker_command = worker_command(scenario);
  return options;
}

// A run with worker processes on the device of `scenario`.
inline Expected<TuneSummary> tune_in_processes(const TuneOptions& options, const std::string& scenario) {
  const SimulatedBackend backend(parse_scenario(scenario));
  return tune_with(options, process_hooks(backend));
}

// A run in this process on simulated time.
inline Expected<TuneSummary> tune_simulated(const TuneOptions& options, const std::string& scenario) {
  const SimulatedBackend backend(parse_scenario(scenario));
  return tune_with(options, simulated_hooks(backend));
}

// Tables in `directory` by file name; faults in them are failures of the test.
std::map<std::string, TileTable> tables_in(const std::string& directory);
// Everything but the dates. Times are differences on the simulated clock, which is at another place in another run.
void expect_same_entries(const TileTable& one, const TileTable& other);

}  // namespace octile::test
