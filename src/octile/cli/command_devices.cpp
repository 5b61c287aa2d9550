// SPDX-License-Identifier: Apache-2.0
// `octile devices`: what is here, which kernels run on it, and why others don't.
#include "octile/cli/commands.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/output.h"
#include "octile/core/format.h"
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/describe.h"
#include "octile/report/json_report.h"
#include "octile/report/text_report.h"

#include <octile/octile.hpp>

namespace octile::cli {

int run_devices(const DevicesArgs& args) {
  std::string text = devices_text(describe_devices());
  if (const std::string reason = cuda::no_device_reason(); !reason.empty()) {
    text += format("\nno CUDA device: {}\n", reason);
  }
  const auto written = write_result(text, args.json, [&] { return indented_json(devices_json()); });
  return written ? kDone : fail(written.error());
}

}  // namespace octile::cli
