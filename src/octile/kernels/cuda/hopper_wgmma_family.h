// SPDX-License-Identifier: Apache-2.0
// The family `hopper_wgmma`: many tokens on wgmma (hopper_wgmma.cuh), for sm_90. Reads row-major weights.
#pragma once

#include "octile/kernels/family.h"

namespace octile::cuda {

const KernelFamily& hopper_wgmma_family();

}  // namespace octile::cuda
