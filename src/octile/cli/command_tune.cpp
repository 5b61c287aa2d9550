// SPDX-License-Identifier: Apache-2.0
// `octile tune`: sweeps, proves and writes tables.
#include "octile/cli/commands.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/output.h"
#include "octile/cli/progress.h"
#include "octile/report/text_report.h"
#include "octile/tune/tune.h"

namespace octile::cli {

int run_tune(const TuneArgs& args, const std::string& command_line) {
  TuneOptions options;
  auto shapes = shapes_of(args.measure.shape);
  if (!shapes) {
    return fail(shapes.error());
  }
  options.shapes = *std::move(shapes);
  fill_options(args.measure, command_line, options);
  options.m_list = args.measure.m_list;
  options.thorough = args.thorough;
  options.resume = args.resume;

  const auto summary = [&] {
    Progress progress;
    options.progress = progress.callback();
    return tune(options);
  }();
  if (!summary) {
    return fail(summary.error());
  }
  const auto written = write_stdout(tune_text(*summary));
  if (summary->failure.has_value()) {
    return fail({ErrorCode::failed, *summary->failure});
  }
  if (summary->interrupted_by != 0) {
    return interrupted_status(summary->interrupted_by);
  }
  return written ? kDone : fail(written.error());
}

}  // namespace octile::cli
