// SPDX-License-Identifier: Apache-2.0
// What is known of devices that are not present, so that `explain --device-name` can check a table's tiles against them.
#pragma once

#include <octile/types.hpp>

#include "octile/kernels/device.h"

#include <optional>
#include <string_view>
#include <vector>

namespace octile {

// The device of that name, with blanks or underscores ("NVIDIA L40S", "NVIDIA_L40S"). A CPU's name states its own
// instruction set and threads ("Intel_R_Xeon_R_Processor-amx-2t"). The id is empty: the device is not here.
std::optional<DeviceInfo> known_device(std::string_view name);

// The GPUs of the list, in its order.
std::vector<DeviceInfo> known_gpus();

// The data sheet's "sm_89" as 89, "sm_90a" as 90; 0 for anything else.
int compute_capability(std::string_view arch) noexcept;

// `wanted`, or off where the device has no programmatic dependent launch.
Pdl pdl_on(const DeviceInfo& device, Pdl wanted) noexcept;

}  // namespace octile
