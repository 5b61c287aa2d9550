// SPDX-License-Identifier: Apache-2.0
// Asks every backend, family and vendor about every device.
#include "octile/kernels/describe.h"

namespace octile {

std::vector<DeviceReport> describe_devices() {
  std::vector<DeviceReport> reports;
  for (const Backend* backend : backends()) {
    for (const DeviceInfo& device : backend->devices()) {
      DeviceReport& report = reports.emplace_back(DeviceReport{device.id,
                                                               device.name,
                                                               to_string(device.kind),
                                                               device.arch,
                                                               {},
                                                               backend->vendors(device),
                                                               backend->overhead_bytes(device)});
      for (const KernelFamily* family : backend->families()) {
        if (family->is_vendor()) {
          continue;
        }
        const auto available = family->available(device);
        report.families.push_back(
            {std::string(family->name()), available.has_value(), available ? std::string() : available.error().message});
      }
    }
  }
  return reports;
}

}  // namespace octile
