// SPDX-License-Identifier: Apache-2.0
// What `octile devices` and the public interfaces say of the devices that are here.
#pragma once

#include "octile/kernels/backend.h"

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
};

// Every device of every backend, the CPU first.
std::vector<DeviceReport> describe_devices();

}  // namespace octile
