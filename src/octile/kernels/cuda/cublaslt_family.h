// SPDX-License-Identifier: Apache-2.0
// The vendor on sm_90: cuBLASLt's row-wise e4m3 product. An empty config is cuBLASLt's own choice for each M, the baseline;
// any other names one algorithm by its attributes (cublaslt_algorithm.h), found by search.
#pragma once

#include "octile/kernels/family.h"

namespace octile::cuda {

const KernelFamily& cublaslt_family();

}  // namespace octile::cuda
