// SPDX-License-Identifier: Apache-2.0
// `octile explain`: which kernel serves an M, from which entry, and why; also for devices that are not here.
#include "octile/cli/commands.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/output.h"
#include "octile/cli/weight_bytes.h"
#include "octile/kernels/backend.h"
#include "octile/linear/explain.h"
#include "octile/linear/weight.h"
#include "octile/report/json_report.h"
#include "octile/report/text_report.h"

namespace octile::cli {
int run_explain(const ExplainArgs& args) {
  const auto shapes = shapes_of(args.shape);
  if (!shapes) {
    return fail(shapes.error());
  }
  const auto device = find_device_or_name(args.device, args.device_name);
  if (!device) {
    return fail(device.error());
  }
  const auto tuned = tuning_enabled();
  if (!tuned) {
    return fail(tuned.error());
  }

  std::vector<Explanation> explanations;
  std::vector<std::string> names;
  for (const TuneShape& shape : *shapes) {
    Problem problem;
    problem.n = shape.n;
    problem.k = shape.k;
    problem.accumulate = accumulate_named(args.accumulate);
    problem.out_dtype = out_dtype_named(args.out_dtype);
    problem.layout = layout_named(args.layout);
    if (auto limited = limit_sms(device->info, static_cast<int>(args.max_sms), problem); !limited) {
      return fail(limited.error());
    }
    const Plan plan = Plan::make(device->backend, device->info, problem, args.tables, *tuned);
    const auto bytes = weight_bytes(device->backend, plan);
    if (!bytes) {
      return fail(bytes.error());
    }
    for (const std::int64_t m : args.m_list) {
      explanations.push_back(explain_plan(plan, m, *bytes));
      names.push_back(args.shape.model.empty() ? "" : shape.name);
    }
  }
  const auto json = [&] {
    // One point is one object; what was asked for decides, not how many came out.
    return args.shape.model.empty() && args.m_list.size() == 1 ? explanation_json(explanations.front())
                                                               : explanations_json(explanations);
  };
  const auto written = write_result(explanations_text(explanations, names), args.json, json);
  return written ? kDone : fail(written.error());
}

}  // namespace octile::cli
