// SPDX-License-Identifier: Apache-2.0
// See fake_nvml.h.
#include "fake_nvml.h"

#include <algorithm>
#include <utility>

#define OCTILE_FAKE extern "C" __attribute__((visibility("default")))

namespace octile::cuda {
namespace {

fake::NvmlState& state() {
  static fake::NvmlState instance;
  return instance;
}

}  // namespace

OCTILE_FAKE fake::NvmlState* octile_fake_nvml_state() { return &state(); }

OCTILE_FAKE nvmlReturn_t nvmlInit_v2() { return state().init_result; }
OCTILE_FAKE nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  *device = reinterpret_cast<nvmlDevice_t>(&state());
  return state().uuid == uuid ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}
OCTILE_FAKE nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t /*device*/, nvmlClockType_t type, unsigned* mhz) {
  *mhz = type == NVML_CLOCK_SM ? state().sm_clock_mhz : 0;
  return state().clock_result;
}
OCTILE_FAKE nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t /*device*/, unsigned long long* reasons) {
  *reasons = state().throttle_reasons;
  return state().reasons_result;
}
OCTILE_FAKE nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t /*device*/, unsigned* count,
                                                                 nvmlProcessInfo_t* processes) {
  if (state().processes_result != NVML_SUCCESS) {
    return state().processes_result;
  }
  const auto all = static_cast<unsigned>(state().processes.size());
  const unsigned room = std::exchange(*count, all);
  for (unsigned i = 0; i < std::min(room, all); ++i) {
    processes[i] = {};
    processes[i].pid = state().processes[i];
  }
  return all > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

}  // namespace octile::cuda
