// SPDX-License-Identifier: Apache-2.0
// The family `hopper_wgmma`: many tokens on wgmma (hopper_wgmma.cuh), for sm_90. Reads row-major weights.
#pragma once

#include "octile/kernels/cuda/driver.h"
#include "octile/kernels/family.h"

namespace octile::cuda {

const KernelFamily& hopper_wgmma_family();
// What its prepare() does on a device that is open.
Expected<std::unique_ptr<Kernel>> prepare_hopper_wgmma(const DeviceContext& context, const Problem& problem,
                                                       const TileConfig& config);

}  // namespace octile::cuda
