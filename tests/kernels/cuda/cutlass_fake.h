// SPDX-License-Identifier: Apache-2.0
// The fake CUTLASS components by name, and devices for them.
#pragma once

#include "fake_cutlass/fake_cutlass.h"
#include "octile/kernels/cuda/cutlass_family.h"
#include "octile/kernels/cuda/library_search.h"

#include <string>

namespace octile::cuda {

inline std::string fake_cutlass_path(const std::string& kind) {
  return std::string(OCTILE_FAKE_CUTLASS) + "/libfake_cutlass_" + kind + ".so";
}

// The one that works, opened once.
inline const CutlassComponent& good_cutlass() {
  static const CutlassComponent component = open_cutlass({fake_cutlass_path("good")});
  return component;
}

inline fake::CutlassState& good_cutlass_state() {
  const auto library = open_library_file(fake_cutlass_path("good"));
  return *reinterpret_cast<fake::CutlassStateFunction*>(find_symbol(*library, "octile_fake_cutlass_state"))();
}

inline DeviceInfo gpu_of(const std::string& arch, std::int64_t shared_memory_bytes = 101376) {
  DeviceInfo device;
  device.id = "cuda:0";
  device.name = "NVIDIA_" + arch;
  device.kind = DeviceKind::cuda;
  device.arch = arch;
  device.sm_count = 142;
  device.shared_memory_bytes = shared_memory_bytes;
  return device;
}

}  // namespace octile::cuda
