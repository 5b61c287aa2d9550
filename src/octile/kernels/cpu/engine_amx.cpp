// SPDX-License-Identifier: Apache-2.0
// The AMX engine on the processor's own tiles.
#include "octile/kernels/cpu/engine.h"

#if defined(__x86_64__)

#include "octile/kernels/cpu/amx_engine.h"

namespace octile::cpu {

const Engine* amx_engine() noexcept { return &AmxEngine<HardwareTiles>::kEngine; }

}  // namespace octile::cpu

#else

namespace octile::cpu {
const Engine* amx_engine() noexcept { return nullptr; }
}  // namespace octile::cpu

#endif
