// SPDX-License-Identifier: Apache-2.0
// What is known of devices that are not here, and whose name is theirs.
#include "octile/kernels/known_devices.h"

#include <gtest/gtest.h>

#include <set>

namespace octile {
namespace {

TEST(KnownDevices, ANameIsFoundWithBlanksOrUnderscores) {
  for (const char* name : {"NVIDIA L40S", "NVIDIA_L40S"}) {
    const auto device = known_device(name);
    ASSERT_TRUE(device) << name;
    EXPECT_EQ(device->arch, "sm_89");
    EXPECT_EQ(device->sm_count, 142);
    EXPECT_EQ(device->shared_memory_bytes, 101376);
    EXPECT_TRUE(device->id.empty()) << "it is not here";
  }
}

TEST(KnownDevices, AlmostTheNameIsAnotherDevice) {
  for (const char* name : {"NVIDIA_L40S ", "nvidia_l40s", "NVIDIA_L40SX", "L40S", "", " ", "NVIDIA", "NVIDIA_H20-3"}) {
    EXPECT_FALSE(known_device(name)) << '"' << name << '"';
  }
  const auto h100 = known_device("NVIDIA_H100_PCIe");
  const auto h200 = known_device("NVIDIA_H200");
  ASSERT_TRUE(h200);
  if (h100) {
    EXPECT_NE(h100->name, h200->name);
  }
}

TEST(KnownDevices, EveryGpuOfTheListIsWholeAndFoundByItsName) {
  std::set<std::string> names;
  for (const DeviceInfo& gpu : known_gpus()) {
    SCOPED_TRACE(gpu.name);
    EXPECT_TRUE(names.insert(gpu.name).second) << "twice in the list";
    EXPECT_EQ(gpu.kind, DeviceKind::cuda);
    EXPECT_GT(compute_capability(gpu.arch), 0);
    EXPECT_GT(gpu.sm_count, 0);
    EXPECT_GE(gpu.shared_memory_bytes, 48 * 1024);
    EXPECT_LE(gpu.shared_memory_bytes, 232448) << "no architecture allows a block more";
    const auto found = known_device(gpu.name);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->sm_count, gpu.sm_count);
  }
  EXPECT_GE(names.size(), 3U);
}

TEST(KnownDevices, ACpusNameStatesItsInstructionSetAndThreads) {
  const auto cpu = known_device("AMD_EPYC-avx512bf16-2t");
  ASSERT_TRUE(cpu);
  EXPECT_EQ(cpu->kind, DeviceKind::cpu);
  EXPECT_EQ(cpu->arch, "avx512bf16");
  EXPECT_EQ(cpu->sm_count, 2);
  EXPECT_FALSE(known_device("AMD_EPYC-avx512bf16-0t"));
  EXPECT_FALSE(known_device("AMD_EPYC-avx512bf16"));
  EXPECT_FALSE(known_device("AMD_EPYC-sse-2t"));
}

TEST(KnownDevices, ComputeCapabilityIsZeroForAnythingElse) {
  EXPECT_EQ(compute_capability("sm_89"), 89);
  EXPECT_EQ(compute_capability("sm_90a"), 90);
  EXPECT_EQ(compute_capability("sm_120"), 120);
  for (const char* arch : {"", "sm_", "sm_x", "90", "avx512", "compute_90"}) {
    EXPECT_EQ(compute_capability(arch), 0) << arch;
  }
}

TEST(KnownDevices, ALaunchModeIsKeptFromSm90OnAndOffElsewhere) {
  DeviceInfo gpu;
  gpu.kind = DeviceKind::cuda;
  DeviceInfo cpu;
  cpu.kind = DeviceKind::cpu;
  for (const Pdl wanted : {Pdl::off, Pdl::consume, Pdl::full}) {
    SCOPED_TRACE(to_string(wanted));
    for (const char* arch : {"sm_90", "sm_90a", "sm_100", "sm_120"}) {
      gpu.arch = arch;
      EXPECT_EQ(pdl_on(gpu, wanted), wanted) << arch;
    }
    for (const char* arch : {"sm_80", "sm_89", "", "avx512"}) {
      gpu.arch = arch;
      EXPECT_EQ(pdl_on(gpu, wanted), Pdl::off) << arch;
    }
    // What decides is the kind first: no name of an instruction set makes a CPU launch anything.
    for (const char* arch : {"avx512bf16", "generic", "sm_90"}) {
      cpu.arch = arch;
      EXPECT_EQ(pdl_on(cpu, wanted), Pdl::off) << arch;
    }
  }
}

}  // namespace
}  // namespace octile
