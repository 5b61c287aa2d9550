// SPDX-License-Identifier: Apache-2.0
// A stand-in for libcuda.so.1 whose device memory is host memory and whose kernels do nothing: it shows which calls were
// made, with which context current, and fails where a test says so. What the tests and the library share.
#pragma once

#include "octile/kernels/cuda/cuda_abi.h"

#include <string>
#include <vector>

namespace octile::cuda::fake {

// One kernel launch as it arrived.
struct Launch {
  CUcontext context = nullptr;
  CUfunction function = nullptr;
  CUlaunchConfig config = {};
  std::vector<CUlaunchAttribute> attributes;
};

struct State {
  // What a test sets.
  CUresult init_result = CUDA_SUCCESS;
  int version = 13000;
  int device_count = 2;
  std::vector<std::string> device_names = {"NVIDIA H200", "NVIDIA L40S"};
  std::size_t memory_limit = std::size_t{1} << 30;  // Bytes a device can hand out.
  std::string failing_call;                         // This function fails with `failure`.
  CUresult failure = CUDA_ERROR_UNKNOWN;

  // What happened.
  std::vector<CUcontext> current;  // The stack of current contexts; the back is current.
  std::size_t allocated = 0;       // Bytes handed out and not freed.
  int wrong_context_calls = 0;     // Calls that touched memory of a device whose context was not current.
  int modules = 0;                 // Loaded and not unloaded.
  int streams = 0, events = 0, graphs = 0, execs = 0;
  bool capturing = false;
  CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::vector<Launch> launches;
  int graph_launches = 0;
};

// The library's state: dlsym "octile_fake_state" gives a function of this type.
using StateFunction = State*();

}  // namespace octile::cuda::fake
