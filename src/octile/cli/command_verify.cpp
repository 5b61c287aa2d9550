// SPDX-License-Identifier: Apache-2.0
// `octile verify`: numerics and timing of every table entry on this device.
#include "octile/tune/verify.h"

#include "octile/cli/commands.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/output.h"
#include "octile/cli/progress.h"
#include "octile/report/json_report.h"
#include "octile/report/text_report.h"

namespace octile::cli {

int run_verify(const VerifyArgs& args, const std::string& command_line) {
  VerifyOptions options;
  // Without shapes every table of the device is verified.
  const ShapeArgs& shape = args.measure.shape;
  if (!shape.model.empty() || shape.n != 0 || shape.k != 0) {
    auto shapes = shapes_of(shape);
    if (!shapes) {
      return fail(shapes.error());
    }
    options.shapes = *std::move(shapes);
  }
  fill_options(args.measure, command_line, options);
  options.all_m = args.all_m;
  options.fix = args.fix;

  const auto result = [&] {
    Progress progress;
    options.progress = progress.callback();
    return verify(options);
  }();
  if (!result) {
    return fail(result.error());
  }
  const auto written = write_result(verify_text(*result), args.measure.json, [&] { return verify_json(*result); });
  if (result->interrupted_by != 0) {
    return interrupted_status(result->interrupted_by);
  }
  if (!written) {
    return fail(written.error());
  }
  return result->ok() ? kDone : kFailed;
}

}  // namespace octile::cli
