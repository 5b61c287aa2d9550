// SPDX-License-Identifier: Apache-2.0
// The commit comes from the build, driver and libraries from the device.
#include "octile/cli/context.h"

#include "octile/cli/output.h"
#include "octile/core/log.h"
#include "octile/kernels/backend.h"

#include "octile_commit.h"

namespace octile::cli {

RecordedContext context_of(const std::string& device_id, const std::string& command_line) {
  RecordedContext context;
  context.commit = OCTILE_COMMIT;
  context.command = command_line;
  if (const auto device = find_device(device_id)) {
    for (const VendorStatus& vendor : device->backend->vendors(device->info)) {
      if (vendor.name == "driver") {
        context.driver = vendor.version;
      } else if (vendor.available) {
        context.libraries[vendor.name] = vendor.version;
      }
    }
  }
  return context;
}

HtmlOrigin html_origin(const RecordedContext& context) {
  HtmlOrigin origin;
  origin.commit = context.commit;
  origin.commands = {context.command};
  if (!context.driver.empty()) {
    origin.facts.emplace_back("driver", context.driver);
  }
  for (const auto& [name, version] : context.libraries) {
    origin.facts.emplace_back(name, version);
  }
  return origin;
}

Expected<void> write_html(const std::string& path, const std::string& page) {
  if (!html_has_plots()) {
    log_warning("this octile was built without d3 (Debian: node-d3), so {} has no plots", path);
  }
  return write_output_file(path, page);
}

}  // namespace octile::cli
