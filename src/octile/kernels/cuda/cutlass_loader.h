// SPDX-License-Identifier: Apache-2.0
// Finds and opens liboctile_cutlass.so, the optional component that nvcc builds (docs/cutlass.md).
#pragma once

#include "octile/core/component.h"
#include "octile/kernels/cuda/cutlass_abi.h"

#include <string>
#include <vector>

namespace octile::cuda {

inline constexpr const char* kCutlassComponentFile = "liboctile_cutlass.so";

using CutlassComponent = OpenedComponent<OctileCutlassApi>;

// OCTILE_CUTLASS_PATH alone where it is set, else where components are looked for (core/component.h).
std::vector<std::string> cutlass_candidates();

// Opens the first candidate that exists and works.
CutlassComponent open_cutlass(const std::vector<std::string>& candidates);

// The process's component, opened at the first call and never closed.
const CutlassComponent& cutlass_component();

}  // namespace octile::cuda
