// SPDX-License-Identifier: Apache-2.0
// Facts of GPUs as their drivers report them: multiprocessors, the shared memory that a block may opt in to, last-level
// cache and memory.
#include "octile/kernels/known_devices.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <string>

namespace octile {

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

struct GpuFacts {
  const char* name;  // Blanks as underscores.
  const char* arch;
  int sm_count;
  std::int64_t llc_mib;
  std::int64_t memory_gib;  // As sold.
};

constexpr std::array kGpus = {
    GpuFacts{"NVIDIA_L40S", "sm_89", 142, 96, 48},
    GpuFacts{"NVIDIA_L40", "sm_89", 142, 96, 48},
    GpuFacts{"NVIDIA_L4", "sm_89", 58, 48, 24},
    GpuFacts{"NVIDIA_GeForce_RTX_4090", "sm_89", 128, 72, 24},
    GpuFacts{"NVIDIA_GeForce_RTX_4080", "sm_89", 76, 64, 16},
    GpuFacts{"NVIDIA_RTX_6000_Ada_Generation", "sm_89", 142, 96, 48},
    GpuFacts{"NVIDIA_H200", "sm_90", 132, 50, 141},
    GpuFacts{"NVIDIA_H200_NVL", "sm_90", 132, 50, 141},
    GpuFacts{"NVIDIA_H100_80GB_HBM3", "sm_90", 132, 50, 80},
    GpuFacts{"NVIDIA_H100_NVL", "sm_90", 132, 50, 94},
    GpuFacts{"NVIDIA_H100_PCIe", "sm_90", 114, 50, 80},
    GpuFacts{"NVIDIA_GH200_480GB", "sm_90", 132, 50, 96},
    GpuFacts{"NVIDIA_H20", "sm_90", 78, 60, 96},
    GpuFacts{"NVIDIA_B200", "sm_100", 148, 126, 180},
    GpuFacts{"NVIDIA_GeForce_RTX_5090", "sm_120", 170, 96, 32},
    GpuFacts{"NVIDIA_GeForce_RTX_5080", "sm_120", 84, 64, 16},
    GpuFacts{"NVIDIA_A100-SXM4-80GB", "sm_80", 108, 40, 80},
    GpuFacts{"NVIDIA_A100-PCIE-40GB", "sm_80", 108, 40, 40},
};

// Shared memory that one block may opt in to: what an SM has less 1 KiB that the driver keeps.
constexpr std::int64_t shared_memory_of(int capability) noexcept {
  switch (capability) {
    case 80:
      return 166912;
    case 90:
    case 100:
      return 232448;
    default:  // 86, 89, 120
      return 101376;
  }
}

DeviceInfo gpu_of(const GpuFacts& facts) {
  DeviceInfo device;
  device.name = facts.name;
  device.kind = DeviceKind::cuda;
  device.arch = facts.arch;
  device.model = device.name;
  std::replace(device.model.begin(), device.model.end(), '_', ' ');
  device.sm_count = facts.sm_count;
  device.llc_bytes = facts.llc_mib * kMiB;
  device.memory_bytes = facts.memory_gib * kGiB;
  device.shared_memory_bytes = shared_memory_of(compute_capability(facts.arch));
  return device;
}

// "<model>-<isa>-<threads>t".
std::optional<DeviceInfo> cpu_of(const std::string& name) {
  static constexpr std::array<std::string_view, 5> kInstructionSets = {"amx", "avx512bf16", "avx512", "avx2", "generic"};
  const auto last = name.rfind('-');
  if (last == std::string::npos || last == 0) {
    return std::nullopt;
  }
  const auto before = name.rfind('-', last - 1);
  if (before == std::string::npos || before == 0) {
    return std::nullopt;
  }
  const std::string_view text = name;
  const std::string_view isa = text.substr(before + 1, last - before - 1);
  const std::string_view threads = text.substr(last + 1);
  int count = 0;
  const auto [end, error] = std::from_chars(threads.data(), threads.data() + threads.size(), count);
  if (error != std::errc{} || std::string_view(end, threads.data() + threads.size() - end) != "t" || count < 1 ||
      std::find(kInstructionSets.begin(), kInstructionSets.end(), isa) == kInstructionSets.end()) {
    return std::nullopt;
  }
  DeviceInfo device;
  device.name = name;
  device.kind = DeviceKind::cpu;
  device.arch = isa;
  device.sm_count = count;
  return device;
}

}  // namespace

std::optional<DeviceInfo> known_device(std::string_view name) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), ' ', '_');
  const auto* found = std::find_if(kGpus.begin(), kGpus.end(), [&](const GpuFacts& gpu) { return wanted == gpu.name; });
  if (found != kGpus.end()) {
    return gpu_of(*found);
  }
  return cpu_of(wanted);
}

std::vector<DeviceInfo> known_gpus() {
  std::vector<DeviceInfo> result;
  result.reserve(kGpus.size());
  std::transform(kGpus.begin(), kGpus.end(), std::back_inserter(result), gpu_of);
  return result;
}

int compute_capability(std::string_view arch) noexcept {
  constexpr std::string_view kPrefix = "sm_";
  int value = 0;
  if (arch.starts_with(kPrefix)) {
    std::from_chars(arch.data() + kPrefix.size(), arch.data() + arch.size(), value);
  }
  return value;
}

Pdl pdl_on(const DeviceInfo& device, Pdl wanted) noexcept {
  constexpr int kOldestCapability = 90;
  return device.kind == DeviceKind::cuda && compute_capability(device.arch) >= kOldestCapability ? wanted : Pdl::off;
}

}  // namespace octile
