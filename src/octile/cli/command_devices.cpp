// SPDX-License-Identifier: Apache-2.0
// `octile devices`: what is here, which kernels run on it, and why others don't.
#include "octile/cli/commands.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/output.h"
#include "octile/core/format.h"
#include "octile/kernels/backend.h"
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/report/json_report.h"
#include "octile/report/text_report.h"

namespace octile::cli {
namespace {

DeviceReport describe(const Backend& backend, const DeviceInfo& device) {
  DeviceReport report{device.id, device.name, to_string(device.kind), device.arch, {}, backend.vendors(device)};
  for (const KernelFamily* family : backend.families()) {
    // Vendors are listed by library; their families add nothing.
    if (family->is_vendor()) {
      continue;
    }
    const auto available = family->available(device);
    report.families.push_back(
        {std::string(family->name()), available.has_value(), available ? std::string() : available.error().message});
  }
  return report;
}

}  // namespace

int run_devices(const DevicesArgs& args) {
  std::vector<DeviceReport> reports;
  for (const Backend* backend : backends()) {
    for (const DeviceInfo& device : backend->devices()) {
      reports.push_back(describe(*backend, device));
    }
  }
  std::string text = devices_text(reports);
  if (const std::string reason = cuda::no_device_reason(); !reason.empty()) {
    text += format("\nno CUDA device: {}\n", reason);
  }
  const auto written = write_result(text, args.json, [&] { return devices_json(reports); });
  return written ? kDone : fail(written.error());
}

}  // namespace octile::cli
