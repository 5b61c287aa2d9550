// SPDX-License-Identifier: Apache-2.0
// getrusage, schedstat, cpu.stat and /proc/stat; see cpu_conditions.h.
#include "octile/kernels/cpu/cpu_conditions.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

namespace octile::cpu {

namespace {

// Seconds in a group's cpu.stat; nullopt where it counts none.
std::optional<double> throttled_s_of(const std::string& cpu_stat) {
  std::istringstream words(cpu_stat);
  std::string name;
  double value = 0;
  while (words >> name >> value) {
    if (name == "throttled_usec") {  // Version 2.
      return value * 1e-6;
    }
    if (name == "throttled_time") {  // Version 1.
      return value * 1e-9;
    }
  }
  return std::nullopt;
}

// "cpu3 user nice system idle iowait irq softirq steal ...", in ticks.
std::optional<double> stolen_s_of(const std::string& proc_stat, const std::vector<int>& cores) {
  std::istringstream lines(proc_stat);
  std::optional<double> stolen_s;
  const auto ticks_per_s = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (std::string line; std::getline(lines, line) && line.starts_with("cpu");) {
    std::istringstream words(line);
    std::string name;
    double ticks = 0;
    words >> name;
    for (int field = 0; field < 8; ++field) {
      words >> ticks;
    }
    if (words && std::ranges::any_of(cores, [&](int core) { return name == "cpu" + std::to_string(core); })) {
      stolen_s = stolen_s.value_or(0) + ticks / ticks_per_s;
    }
  }
  return stolen_s;
}

// Of "time on a core, time ready without one, slices", nanoseconds, of every thread there is; nullopt where none tells it.
std::optional<double> waited_s_of_threads(const FileReader& read) {
  std::optional<double> waited_s;
  std::error_code ignored;
  for (std::filesystem::directory_iterator thread("/proc/self/task", ignored), end; !ignored && thread != end;
       thread.increment(ignored)) {
    const std::optional<std::string> text = read((thread->path() / "schedstat").string());
    if (double ran_ns = 0, waited_ns = 0; text && std::istringstream(*text) >> ran_ns >> waited_ns) {
      waited_s = waited_s.value_or(0) + waited_ns * 1e-9;
    }
  }
  return waited_s;
}

}  // namespace

CpuConditions::CpuConditions(FileReader read, std::vector<int> cores)
    : read_(std::move(read)), cores_(std::move(cores)), cgroup_files_(cgroup_cpu_stat_files(read_)) {}

DeviceConditions CpuConditions::now() const {
  DeviceConditions conditions;
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    conditions.preemptions = usage.ru_nivcsw;
  }
  conditions.waited_s = waited_s_of_threads(read_);
  for (const std::string& file : cgroup_files_) {
    if (const std::optional<std::string> text = read_(file)) {
      if (const std::optional<double> throttled_s = throttled_s_of(*text)) {
        conditions.throttled_s = conditions.throttled_s.value_or(0) + *throttled_s;
      }
    }
  }
  if (const std::optional<std::string> text = read_("/proc/stat")) {
    conditions.stolen_s = stolen_s_of(*text, cores_);
  }
  return conditions;
}

}  // namespace octile::cpu
