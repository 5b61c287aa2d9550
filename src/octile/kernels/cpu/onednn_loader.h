// SPDX-License-Identifier: Apache-2.0
// Finds and opens liboctile_onednn.so. A missing or broken component is a reason to print, never an error of the caller.
#pragma once

#include "octile/core/component.h"
#include "octile/kernels/cpu/onednn_abi.h"

#include <string>
#include <vector>

namespace octile::cpu {

inline constexpr const char* kOnednnComponentFile = "liboctile_onednn.so";

using OnednnComponent = OpenedComponent<OctileOnednnApi>;

// Where the component is looked for, in order: OCTILE_ONEDNN_PATH alone where it is set (a file, or the folder that holds
// it), else beside liboctile.so or the executable, in the folder `octile` of the library folder, in the build tree.
std::vector<std::string> onednn_candidates();

// Opens the first candidate that exists and works.
OnednnComponent open_onednn(const std::vector<std::string>& candidates);

// The process's component, opened at the first call and never closed.
const OnednnComponent& onednn_component();

}  // namespace octile::cpu
