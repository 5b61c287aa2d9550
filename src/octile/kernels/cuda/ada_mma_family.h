// SPDX-License-Identifier: Apache-2.0
// The family `ada_mma`: tiles on mma.sync e4m3 (ada_mma.cuh), for sm_89 and newer. Reads row-major weights.
#pragma once

#include "octile/kernels/family.h"

namespace octile::cuda {

const KernelFamily& ada_mma_family();

}  // namespace octile::cuda
