// SPDX-License-Identifier: Apache-2.0
// Names of device kinds.
#include "octile/kernels/device.h"

namespace octile {

const char* to_string(DeviceKind kind) noexcept { return kind == DeviceKind::cpu ? "cpu" : "cuda"; }

}  // namespace octile
