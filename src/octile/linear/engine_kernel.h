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
// A kernel whose run() quantises raw rows into the workspace with the plain quantiser, and calls the engine.
// run()'s weight must come from pack_for_engine().
std::unique_ptr<Kernel> make_engine_kernel(std::shared_ptr<const EngineBaseline> engine, const DeviceInfo& device,
                                           const Problem& problem);

}  // namespace octile
