// SPDX-License-Identifier: Apache-2.0
// AMX's tile registers in software, as the architecture describes them, for machines without: the interface of
// cpu::HardwareTiles. A wrong shape, an operand read before it was written, rows beyond a tile's are found at once.
#pragma once

#include "octile/kernels/cpu/engine.h"

namespace octile::test {

// The AMX engine on these tiles; nullptr where the build is for another architecture. Runs from AVX-512 BF16 on.
const cpu::Engine* software_amx_engine() noexcept;

}  // namespace octile::test
