// SPDX-License-Identifier: Apache-2.0
// The CPU as a backend: one device, "cpu".
#pragma once

#include "octile/kernels/backend.h"

namespace octile::cpu {

const Backend& cpu_backend();

}  // namespace octile::cpu
