// SPDX-License-Identifier: Apache-2.0
// Finds and opens liboctile_cutlass.so, the optional component that nvcc builds (docs/cutlass.md).
#pragma once

#include "octile/kernels/cuda/cutlass_abi.h"

#include <string>
#include <vector>

namespace octile::cuda {

inline constexpr const char* kCutlassComponentFile = "liboctile_cutlass.so";

struct CutlassComponent {
  const OctileCutlassApi* api = nullptr;  // nullptr: unavailable.
  std::string path;                       // Of the file that was opened.
  std::string reason;                     // Why it is unavailable: every place that was tried, and what came of it.
};

// OCTILE_CUTLASS_PATH alone where it is set, else where components are looked for (core/component.h).
std::vector<std::string> cutlass_candidates();

// Opens the first candidate that exists and works.
CutlassComponent open_cutlass(const std::vector<std::string>& candidates);

// The process's component, opened at the first call and never closed.
const CutlassComponent& cutlass_component();

}  // namespace octile::cuda
