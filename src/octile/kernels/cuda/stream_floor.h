// SPDX-License-Identifier: Apache-2.0
// The floor that no linear beats: a kernel that reads the weight once and does nothing else.
#pragma once

#include "octile/kernels/cuda/driver.h"
#include "octile/kernels/family.h"

#include <memory>

namespace octile::cuda {

Expected<std::unique_ptr<Kernel>> prepare_stream_floor_kernel(const DeviceContext& context);

}  // namespace octile::cuda
