// SPDX-License-Identifier: Apache-2.0
// What a device ran under while something was timed: clock, throttling, other programs; and when that means that the time
// must not count.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace octile {

// At one moment. What is not set is not known here: no NVML, no such file.
struct DeviceConditions {
  // Of a GPU.
  std::optional<int> sm_clock_mhz;
  std::optional<std::uint64_t> throttle_reasons;  // NVML's bits; kThrottle...
  std::optional<int> other_processes;             // That hold a context on the device.
  // Of a CPU, each counted from some moment on.
  std::optional<std::int64_t> preemptions;  // Involuntary context switches of this process.
  std::optional<double> waited_s;           // Its threads were ready and had no core, in seconds of all of them.
  std::optional<double> throttled_s;        // This process's cgroup, or one above it, was held back at its quota.
  std::optional<double> stolen_s;           // The cores of this process were given to another virtual machine.
};

// NVML's throttle reasons, of which idleness and clocks that were asked for are left out: they are no throttling.
inline constexpr std::uint64_t kThrottlePowerCap = 0x4;
inline constexpr std::uint64_t kThrottleHardware = 0x8;
inline constexpr std::uint64_t kThrottleThermalSoftware = 0x20;
inline constexpr std::uint64_t kThrottleThermalHardware = 0x40;
inline constexpr std::uint64_t kThrottlePowerBrake = 0x80;
// Beyond what is normal. The power cap is normal: at large M a GPU works at its power limit, in service as well, and a time
// without it would be one that no service sees.
inline constexpr std::uint64_t kThrottleBeyondNormal =
    kThrottleHardware | kThrottleThermalSoftware | kThrottleThermalHardware | kThrottlePowerBrake;

// "power cap, thermal slowdown"; "none" for none of them.
std::string throttle_text(std::uint64_t reasons);

// Why what was timed between the two, in `seconds` on `cores` cores, must not count; "" where nothing speaks against it.
std::string disturbance(const DeviceConditions& before, const DeviceConditions& after, double seconds, int cores);

}  // namespace octile
