// SPDX-License-Identifier: Apache-2.0
// The request by arch_prctl(), whose numbers are those of Linux's asm/prctl.h from 5.16 on.
#include "octile/kernels/cpu/amx_permission.h"

#include "octile/core/format.h"

#include <cerrno>
#include <cstring>

#include <sys/syscall.h>
#include <unistd.h>

namespace octile::cpu {
namespace {

int request_by_kernel() {
#if defined(__x86_64__) && defined(SYS_arch_prctl)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
#else
  return ENOSYS;
#endif
}

}  // namespace

AmxPermission request_amx(const CpuFeatures& features, int (*request)()) {
  if (!features.amx_tile) {
    return {.granted = false, .reason = "this CPU has no AMX tiles, or the system does not save them"};
  }
  const int error = request();
  if (error == 0) {
    return {.granted = true, .reason = {}};
  }
  return {.granted = false,
          .reason = format("the kernel refuses the tiles to this process: {} (errno {})", std::strerror(error), error)};
}

const AmxPermission& amx_permission() {
  static const AmxPermission permission = request_amx(cpu_features(), request_by_kernel);
  return permission;
}

std::string amx_refusal() {
  const bool refused = cpu_features().amx_tile && !amx_permission().granted;
  return refused ? ": " + amx_permission().reason : std::string();
}

}  // namespace octile::cpu
