// SPDX-License-Identifier: Apache-2.0
// The vendor on sm_89 and sm_120, where cuBLASLt has no row-wise mode: CUTLASS's e4m3 GEMM from the optional component
// (cutlass_loader.h). An empty config is the component's own choice for each M, the baseline; any other names one kernel by
// its attributes (cutlass_tiles.h).
#pragma once

#include "octile/kernels/cuda/cutlass_loader.h"
#include "octile/kernels/family.h"

#include <memory>

namespace octile::cuda {

const KernelFamily& cutlass_family();
// A family over another component than the process's, for tests; `component` must outlive it.
std::unique_ptr<KernelFamily> make_cutlass_family(const CutlassComponent& component);

// Whether CUTLASS is meant to be the baseline on that architecture: "sm_89" or "sm_120". Elsewhere its kernels run through
// PTX where OCTILE_CUTLASS_ON_ANY_GPU asks for it, to check their results.
bool cutlass_is_baseline_on(std::string_view arch) noexcept;

}  // namespace octile::cuda
