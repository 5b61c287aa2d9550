// SPDX-License-Identifier: Apache-2.0
// `octile report`: a recorded result as a page, without measuring.
#include "octile/cli/commands.h"
#include "octile/cli/context.h"
#include "octile/cli/exit_status.h"
#include "octile/report/bench_record.h"

namespace octile::cli {

int run_report(const ReportArgs& args) {
  const auto record = read_bench_record(args.file);
  if (!record) {
    return fail(record.error());
  }
  const auto written = write_html(args.html, bench_html(*record, args.file));
  return written ? kDone : fail(written.error());
}

}  // namespace octile::cli
