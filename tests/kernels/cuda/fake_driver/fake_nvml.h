// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnvidia-ml.so.1 that says what a test wants: what the tests and the library share.
#pragma once

#include "octile/kernels/cuda/cuda_abi.h"

#include <string>
#include <vector>

namespace octile::cuda::fake {

struct NvmlState {
  nvmlReturn_t init_result = NVML_SUCCESS;
  std::string uuid = "GPU-1";  // Of the one device.
  unsigned sm_clock_mhz = 1980;
  unsigned long long throttle_reasons = 0;
  std::vector<unsigned> processes;
  nvmlReturn_t clock_result = NVML_SUCCESS;
  nvmlReturn_t reasons_result = NVML_SUCCESS;
  nvmlReturn_t processes_result = NVML_SUCCESS;
};

// The library's state: dlsym "octile_fake_nvml_state" gives a function of this type.
using NvmlStateFunction = NvmlState*();

}  // namespace octile::cuda::fake
