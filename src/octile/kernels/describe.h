// SPDX-License-Identifier: Apache-2.0
// What `octile devices` and the public interfaces say of the devices that are here.
#pragma once

#include "octile/kernels/backend.h"

#include <optional>
#include <string>
#include <vector>

namespace octile {

struct FamilyReport {
  std::string name;
  bool available = false;
  std::string reason;  // Why not; empty where available.
};
struct DeviceReport {
  std::string id;
  std::string device_name;
  std::string kind;
  std::string arch;
  std::vector<FamilyReport> families;  // Ours; vendors are listed by library.
  std::vector<VendorStatus> vendors;
  std::optional<std::int64_t> overhead_bytes;  // Device memory beyond weights and workspaces, at most; nullopt on a CPU.
};

// Every device of every backend, the CPU first.
std::vector<DeviceReport> describe_devices();

}  // namespace octile
