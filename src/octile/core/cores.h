// SPDX-License-Identifier: Apache-2.0
// What this process may use of the machine: cores (affinity mask, cgroup quota) and memory (free memory, cgroup limit).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace octile {

// Reads a small file whole; nullopt where it is missing or cannot be read. Tests pass a table of fake files.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;
std::optional<std::string> read_small_file(const std::string& path);

// CPU time per wall time that the process's cgroup (version 1 or 2) or any group above it allows: 1.5 means one core and a
// half. nullopt where nothing limits it.
std::optional<double> cgroup_cpu_quota(const FileReader& read);
// cpu.stat of the process's cgroup and of every group above it.
std::vector<std::string> cgroup_cpu_stat_files(const FileReader& read);
// Bytes that the process's cgroup or any group above it allows; nullopt where nothing limits it.
std::optional<std::int64_t> cgroup_memory_limit(const FileReader& read);
// MemAvailable of /proc/meminfo (MemTotal on kernels without it), capped by the cgroup's limit. 0 where it is unknown.
std::int64_t usable_memory_bytes(const FileReader& read);

// Threads for `affinity` cores under `quota`: whole cores only, at least 1. A quota of 1.5 gives 1, since two threads would
// both stand still for a quarter of every period (100 ms by default), and each call waits for the slowest thread.
int cores_within(int affinity, std::optional<double> quota);

// Cores in the affinity mask of the calling thread, ascending; at least one.
std::vector<int> affinity_cpus();
// The cores this process may use: affinity mask and cgroup v1/v2 quota, at least 1.
int usable_cores();

}  // namespace octile
