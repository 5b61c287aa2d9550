// SPDX-License-Identifier: Apache-2.0
// NVIDIA's management library, opened at run time: clock, throttling and other processes of a GPU. It comes with the driver;
// where it is missing (some containers), these are unknown.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/conditions.h"
#include "octile/kernels/cuda/cuda_abi.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace octile::cuda {

// libnvidia-ml.so.1, initialised, with the functions that are used. Never unloaded.
struct Nvml {
  OCTILE_NVML_FUNCTIONS(OCTILE_FUNCTION_FIELD)
  std::string path;
};

// Opens and initialises the library at `path` ("": searches as for the driver). Errors (unavailable) say what is missing.
Expected<std::unique_ptr<Nvml>> open_nvml(const std::string& path);
// The process's, opened at the first call; an attempt that fails is remembered, too.
const Expected<std::unique_ptr<Nvml>>& nvml();

// Looks at GPUs for one process.
class GpuConditions {
 public:
  // `own`: processes that may have a context on a GPU without disturbing it.
  GpuConditions(const Nvml& nvml, std::set<unsigned> own) : nvml_(nvml), own_(std::move(own)) {}
  // Of the GPU with this DeviceInfo::uuid. What NVML does not say is not set.
  DeviceConditions now(const std::string& uuid);

 private:
  std::optional<int> other_processes(nvmlDevice_t device, const std::string& uuid);

  const Nvml& nvml_;
  std::set<unsigned> own_;
  std::mutex mutex_;
  std::map<std::string, int> fewest_;  // Processes that were seen on a GPU.
};

}  // namespace octile::cuda
