// SPDX-License-Identifier: Apache-2.0
// An engine's registered baseline behind the kernel interface: the row-major weight it reads, and the kernel that calls it.
#pragma once

#include "octile/kernels/backend.h"
#include "octile/linear/baseline_registry.h"

#include <memory>

namespace octile {

// Copies row-major codes (stride k afterwards) and fp32 scales [n] to the device, for BaselineCall.
Expected<std::shared_ptr<PackedWeight>> pack_for_engine(const Backend& backend, const DeviceInfo& device,
                                                        const WeightSource& source);
// A kernel whose run() quantises raw rows into the workspace, with the plain quantiser on a CPU and our own kernel on a GPU,
// and calls the engine. run()'s weight must come from pack_for_engine(). Errors: a GPU's, where its quantiser does not load.
Expected<std::unique_ptr<Kernel>> make_engine_kernel(std::shared_ptr<const EngineBaseline> engine, const DeviceInfo& device,
                                                     const Problem& problem);
// Calls the engine with contiguous codes [m, k] and scales [m]; weight, bias and output are those of the call.
Expected<void> call_engine(const EngineBaseline& engine, const Problem& problem, const PackedWeight& weight,
                           const LaunchArgs& args, const void* codes, const float* scales);

}  // namespace octile
