// SPDX-License-Identifier: Apache-2.0
// The family `hopper_decode`: few tokens on wgmma (hopper_decode.cuh), for sm_90. Reads row-major weights.
#pragma once

#include "octile/kernels/family.h"

namespace octile::cuda {

const KernelFamily& hopper_decode_family();

}  // namespace octile::cuda
