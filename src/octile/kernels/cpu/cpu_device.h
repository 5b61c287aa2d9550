// SPDX-License-Identifier: Apache-2.0
// The description of the CPU: its name as in table file names, its caches, the memory it may use.
#pragma once

#include "octile/core/cores.h"
#include "octile/kernels/device.h"

#include <string>
#include <string_view>

namespace octile::cpu {

// "Intel(R) Xeon(R) Processor" -> "Intel_R_Xeon_R_Processor": each run of characters other than letters and digits becomes
// one underscore, none at the ends. "CPU" where nothing is left.
std::string file_name_of_model(std::string_view model);
// "Intel_R_Xeon_R_Processor-amx-2t".
std::string cpu_device_name(std::string_view model, std::string_view isa, int threads);

// `model name` of /proc/cpuinfo; nullopt where it has none.
std::optional<std::string> model_of_cpuinfo(std::string_view cpuinfo);
// The model by CPUID's brand string, without blanks around it; empty where the CPU has none.
std::string brand_string();

// All last-level caches of the cores this process may use, added up: weights are cold only if they exceed the sum. From
// /sys, else from CPUID for one core, else 32 MiB.
std::int64_t last_level_cache_bytes(const std::vector<int>& cpus, const FileReader& read);

// This machine's CPU, with the pool's threads.
DeviceInfo describe_cpu(const FileReader& read);

}  // namespace octile::cpu
