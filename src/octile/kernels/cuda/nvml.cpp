// SPDX-License-Identifier: Apache-2.0
// Questions to NVML; see nvml.h.
#include "octile/kernels/cuda/nvml.h"

#include "octile/kernels/cuda/function_table.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace octile::cuda {

namespace {

Expected<void> resolve_all(const SharedLibrary& library, Nvml& table) {
  OCTILE_NVML_FUNCTIONS(OCTILE_RESOLVE)
  return {};
}

}  // namespace

Expected<std::unique_ptr<Nvml>> open_nvml(const std::string& path) {
  const auto opened = path.empty() ? open_library({"NVML", {"libnvidia-ml.so.1"}, false}) : open_library_file(path);
  if (!opened) {
    return opened.error();
  }
  auto nvml = std::make_unique<Nvml>();
  if (auto resolved = resolve_all(*opened, *nvml); !resolved) {
    return resolved.error();
  }
  nvml->path = opened->path;
  if (const nvmlReturn_t result = nvml->init(); result != NVML_SUCCESS) {
    return make_error(ErrorCode::unavailable, "{}: nvmlInit failed with error {}", nvml->path, static_cast<int>(result));
  }
  return nvml;
}

const Expected<std::unique_ptr<Nvml>>& nvml() {
  static const auto* const opened = new Expected<std::unique_ptr<Nvml>>(open_nvml(""));
  return *opened;
}

DeviceConditions GpuConditions::now(const std::string& uuid) {
  DeviceConditions conditions;
  nvmlDevice_t device = nullptr;
  if (uuid.empty() || nvml_.device_by_uuid(uuid.c_str(), &device) != NVML_SUCCESS) {
    return conditions;
  }
  unsigned mhz = 0;
  if (nvml_.device_get_clock(device, NVML_CLOCK_SM, &mhz) == NVML_SUCCESS) {
    conditions.sm_clock_mhz = static_cast<int>(mhz);
  }
  unsigned long long reasons = 0;
  if (nvml_.device_get_throttle_reasons(device, &reasons) == NVML_SUCCESS) {
    conditions.throttle_reasons = reasons;
  }
  conditions.other_processes = other_processes(device, uuid);
  return conditions;
}

// In a container NVML may name processes by the numbers of the host, and nobody can say which of them are ours. Those count
// then that have come since the fewest were seen.
std::optional<int> GpuConditions::other_processes(nvmlDevice_t device, const std::string& uuid) {
  std::array<nvmlProcessInfo_t, 64> processes{};
  auto count = static_cast<unsigned>(processes.size());
  const nvmlReturn_t result = nvml_.device_get_compute_processes(device, &count, processes.data());
  if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE) {
    return std::nullopt;
  }
  const auto listed = std::span(processes).first(std::min<std::size_t>(count, processes.size()));
  const auto ours = std::ranges::count_if(listed, [&](const nvmlProcessInfo_t& p) { return own_.contains(p.pid); });
  const int all = static_cast<int>(count);
  if (ours > 0) {
    return all - static_cast<int>(ours);
  }
  const std::lock_guard lock(mutex_);
  const auto known = fewest_.emplace(uuid, all).first;
  known->second = std::min(known->second, all);
  return all - known->second;
}

}  // namespace octile::cuda
