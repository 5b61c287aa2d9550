// SPDX-License-Identifier: Apache-2.0
// The AVX2 quantiser, which the AVX-512 engines use as well: at M = 1 it is about 1 us of some hundred.
#pragma once

#include "octile/kernels/cpu/engine.h"

namespace octile::cpu {

#if defined(__x86_64__)
extern const QuantizeOps kQuantizeAvx2;
#endif

}  // namespace octile::cpu
