// SPDX-License-Identifier: Apache-2.0
// Linux keeps the 8 KiB of AMX's tiles away from a process until it asks: without that the first tile instruction ends it by
// SIGILL.
#pragma once

#include "octile/kernels/cpu/cpu_features.h"

#include <string>

namespace octile::cpu {

struct AmxPermission {
  bool granted = false;
  std::string reason;  // Why not.
};

// Asks by `request`, which returns 0 or an errno: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA). Not asked where `features`
// has no tiles.
AmxPermission request_amx(const CpuFeatures& features, int (*request)());

// This process's permission, asked for at the first call. It holds for all threads, and children inherit it.
const AmxPermission& amx_permission();

// ": <reason>" where this CPU has the tiles and the kernel refused them, else empty; ends the message of a family that
// cannot run.
std::string amx_refusal();

}  // namespace octile::cpu
