// SPDX-License-Identifier: Apache-2.0
// An engine's registered baseline on a GPU.
#pragma once

#include "octile/kernels/cuda/driver.h"
#include "octile/kernels/family.h"
#include "octile/linear/baseline_registry.h"

#include <memory>

namespace octile {

// make_engine_kernel() for the device of `context`. Slow: compiles and loads our quantiser. run() enqueues it, or a copy of
// codes whose rows are not contiguous, on the call's stream, and then calls the engine with the device's context current.
Expected<std::unique_ptr<Kernel>> make_cuda_engine_kernel(std::shared_ptr<const EngineBaseline> engine,
                                                          const cuda::DeviceContext& context, const Problem& problem);

}  // namespace octile
