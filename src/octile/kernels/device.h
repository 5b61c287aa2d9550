// SPDX-License-Identifier: Apache-2.0
// What the rest of the library knows of a device. Plain data: made by a backend, or by `known_device()` for one that is
// absent.
#pragma once

#include <cstdint>
#include <string>

namespace octile {

enum class DeviceKind { cpu, cuda };

const char* to_string(DeviceKind kind) noexcept;

struct DeviceInfo {
  std::string id;    // "cpu", "cuda:0".
  std::string name;  // As in table file names: "NVIDIA_L40S", "Intel_R_Xeon_R_Processor-amx-2t".
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;      // Ordinal among the devices of its kind.
  std::string arch;   // CPU: the instruction set ("amx", "avx512bf16", "avx512", "avx2", "generic"); GPU: "sm_89", "sm_90".
  std::string model;  // The name before it was made fit for a file name.
  int sm_count = 0;   // GPU: multiprocessors; CPU: threads of the pool.
  std::string uuid;   // GPU: "GPU-1f2e...", the same in every process that sees it; empty on a CPU or where unknown.
  std::int64_t llc_bytes = 0;            // Last-level cache.
  std::int64_t memory_bytes = 0;         // Device memory; CPU: what the process may use (cgroup limits respected).
  std::int64_t shared_memory_bytes = 0;  // GPU: shared memory a block may opt in to; 0 on a CPU.
};

}  // namespace octile
