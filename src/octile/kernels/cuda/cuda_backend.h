// SPDX-License-Identifier: Apache-2.0
// NVIDIA GPUs as a backend. Nothing of CUDA is touched before the first question; without a driver it has no devices.
#pragma once

#include "octile/kernels/backend.h"

#include <string>

namespace octile::cuda {

const Backend& cuda_backend();

// Why there are no devices: the driver's reason, or that it shows none. Empty where there are devices.
std::string no_device_reason();

}  // namespace octile::cuda
