// SPDX-License-Identifier: Apache-2.0
// When a time must not count; see conditions.h.
#include "octile/kernels/conditions.h"

#include "octile/core/format.h"
#include "octile/kernels/grown_by.h"

#include <algorithm>
#include <array>
#include <vector>

namespace octile {

namespace {

// A core that nobody else uses is taken from a thread now and then, by the kernel's own work; one that is shared, every few
// milliseconds.
constexpr double kUsualPreemptionsPerS = 50;
constexpr double kUsualPreemptions = 2;
// What counts is the time lost, where the system tells it: with all cores measuring, the kernel's own work and whoever
// watches preempt often and briefly, 118 of 160 passes on an idle machine of two cores.
constexpr double kUsualWaitedShare = 0.03;  // Of the time of all cores,
constexpr double kUsualWaitedS = 0.0005;    // and once.
// Of the time of all cores.
constexpr double kUsualStolenShare = 0.02;

}  // namespace

std::string throttle_text(std::uint64_t reasons) {
  constexpr std::array kWords = {
      std::pair{kThrottlePowerCap, "power cap"},
      std::pair{kThrottleHardware, "hardware slowdown"},
      std::pair{kThrottleThermalSoftware, "thermal slowdown"},
      std::pair{kThrottleThermalHardware, "thermal slowdown by the hardware"},
      std::pair{kThrottlePowerBrake, "power brake"},
  };
  std::vector<std::string> words;
  for (const auto& [bit, word] : kWords) {
    if ((reasons & bit) != 0) {
      words.emplace_back(word);
    }
  }
  return words.empty() ? "none" : join(words, ", ");
}

std::string disturbance(const DeviceConditions& before, const DeviceConditions& after, double seconds, int cores) {
  const std::uint64_t throttling =
      (before.throttle_reasons.value_or(0) | after.throttle_reasons.value_or(0)) & kThrottleBeyondNormal;
  if (throttling != 0) {
    return format("throttled: {}", throttle_text(throttling));
  }
  if (const int others = std::max(before.other_processes.value_or(0), after.other_processes.value_or(0)); others > 0) {
    return format("{} on the device", others == 1 ? "another process" : format("{} other processes", others));
  }
  if (grown_by(before.throttled_s, after.throttled_s).value_or(0) > 0) {
    return "held back at the CPU quota of its cgroup";
  }
  const double core_s = seconds * std::max(cores, 1);
  if (grown_by(before.stolen_s, after.stolen_s).value_or(0) > kUsualStolenShare * core_s) {
    return "cores given to another virtual machine";
  }
  if (const auto waited_s = grown_by(before.waited_s, after.waited_s)) {
    return *waited_s > kUsualWaitedS + kUsualWaitedShare * core_s ? "cores shared with other programs" : std::string();
  }
  if (static_cast<double>(grown_by(before.preemptions, after.preemptions).value_or(0)) >
      kUsualPreemptions + kUsualPreemptionsPerS * core_s) {
    return "cores shared with other programs";
  }
  return {};
}

}  // namespace octile
