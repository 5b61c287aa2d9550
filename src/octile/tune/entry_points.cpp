// SPDX-License-Identifier: Apache-2.0
// The tune layer's entry points on the devices of this build.
#include "octile/core/format.h"
#include "octile/kernels/known_devices.h"
#include "octile/tune/run_hooks.h"

#include <charconv>
#include <chrono>
#include <cstring>
#include <string>

namespace octile {

RunHooks default_hooks() {
  RunHooks hooks;
  hooks.find_device = [](std::string_view id) { return find_device(id); };
  hooks.clock_s = [](const std::string& /*device*/) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  return hooks;
}

std::vector<std::string> devices_to_tune() {
  std::vector<std::string> cpus;
  std::vector<std::string> gpus;
  for (const Backend* backend : backends()) {
    for (const DeviceInfo& device : backend->devices()) {
      (device.kind == DeviceKind::cuda ? gpus : cpus).push_back(device.id);
    }
  }
  return gpus.empty() ? cpus : gpus;
}

Numerics tuned_numerics(const DeviceInfo& device) noexcept {
  constexpr int kHopper = 90;
  return device.kind == DeviceKind::cuda && compute_capability(device.arch) == kHopper ? Numerics::baseline
                                                                                       : Numerics::deterministic;
}

Expected<DeviceGroups> group_devices(const std::vector<std::string>& devices, const RunOptions& options) {
  return group_devices_with(devices, options, default_hooks());
}
Expected<TuneSummary> tune(const TuneOptions& options) { return tune_with(options, default_hooks()); }
Expected<BenchResult> bench(const BenchOptions& options) { return bench_with(options, default_hooks()); }
Expected<VerifyResult> verify(const VerifyOptions& options) { return verify_with(options, default_hooks()); }

int run_worker(int parent_pid) { return serve_worker(parent_pid, default_hooks().find_device); }

int run_worker(int argc, char** argv) {
  // Exactly what the coordinator passes: this sub-command is not for people.
  int parent_pid = 0;
  if (argc == 2 && std::strcmp(argv[0], "--parent") == 0) {
    const char* end = argv[1] + std::strlen(argv[1]);
    const auto [stop, status] = std::from_chars(argv[1], end, parent_pid);
    if (status == std::errc() && stop == end) {
      return run_worker(parent_pid);
    }
  }
  return 2;
}

}  // namespace octile
