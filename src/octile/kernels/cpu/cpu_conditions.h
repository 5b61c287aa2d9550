// SPDX-License-Identifier: Apache-2.0
// What a CPU ran under: preemptions of this process, its cgroup's throttling, time stolen from its cores.
#pragma once

#include "octile/core/cores.h"
#include "octile/kernels/conditions.h"

#include <string>
#include <vector>

namespace octile::cpu {

class CpuConditions {
 public:
  // Looks the places up once. `cores`: whose stolen time counts.
  CpuConditions(FileReader read, std::vector<int> cores);
  DeviceConditions now() const;

 private:
  FileReader read_;
  std::vector<int> cores_;
  std::vector<std::string> cgroup_files_;
};

}  // namespace octile::cpu
