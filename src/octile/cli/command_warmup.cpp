// SPDX-License-Identifier: Apache-2.0
// `octile warmup`: compiles ahead what the tables of a model's linears need, for a GPU that need not be here.
#include "octile/cli/commands.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/output.h"
#include "octile/core/format.h"
#include "octile/linear/choose.h"
#include "octile/linear/weight.h"
#include "octile/report/json_report.h"

#include <algorithm>

namespace octile::cli {
namespace {

// Where no table reaches, the heuristic's kernels for as many tokens as an engine prefills at once.
constexpr std::int64_t kLargestM = 16384;

// The device, with its backend also where it is known but not here.
Expected<Device> gpu_of(const WarmupArgs& args) {
  const bool is_named = !args.device_name.empty();
  auto device = find_device_or_name(args.device.empty() && !is_named ? "cuda:0" : args.device, args.device_name);
  if (!device) {
    return device;
  }
  if (device->backend == nullptr && device->info.kind == DeviceKind::cuda && !device->info.arch.empty()) {
    const auto all = backends();
    const auto cuda = std::ranges::find(all, DeviceKind::cuda, &Backend::kind);
    device->backend = cuda == all.end() ? nullptr : *cuda;
  }
  if (device->backend == nullptr) {
    return make_error(ErrorCode::unavailable, "nothing is known of device {}: its architecture is needed to compile for it",
                      device->info.name);
  }
  return device;
}

// Every kernel that run() may choose for M up to kLargestM.
void add_choices(const Device& device, const TuneShape& shape, const WarmupArgs& args, bool tuned,
                 std::vector<WarmupItem>& items) {
  Problem problem;
  problem.n = shape.n;
  problem.k = shape.k;
  problem.accumulate = accumulate_named(args.accumulate);
  problem.out_dtype = out_dtype_named(args.out_dtype);
  const Plan plan = Plan::make(device.backend, device.info, problem, args.tables, tuned);
  for (const std::int64_t m : plan.breakpoints(kLargestM)) {
    const Choice choice = plan.choose(m);
    const auto is_same = [&](const WarmupItem& item) {
      return item.family == choice.family && item.config == choice.config && item.problem.n == shape.n &&
             item.problem.k == shape.k;
    };
    if (choice.family != nullptr && std::ranges::none_of(items, is_same)) {
      items.push_back({choice.family, plan.problem(), choice.config});
    }
  }
}

}  // namespace

int run_warmup(const WarmupArgs& args) {
  const auto shapes = shapes_of(args.shape);
  if (!shapes) {
    return fail(shapes.error());
  }
  const auto device = gpu_of(args);
  if (!device) {
    return fail(device.error());
  }
  const auto tuned = tuning_enabled();
  if (!tuned) {
    return fail(tuned.error());
  }
  std::vector<WarmupItem> items;
  for (const TuneShape& shape : *shapes) {
    add_choices(*device, shape, args, *tuned, items);
  }
  const WarmupResult result = device->backend->warm_up(device->info, items, {.export_directory = args.export_directory});

  std::string text = format("{}: {} kernels, {} compiled now, {} found in the cache\n", device->info.name, result.kernels,
                            result.compiled, result.cached);
  if (result.kernels == 0 && result.failures.empty()) {
    text = format("{}: nothing to compile\n", device->info.name);
  }
  if (!args.export_directory.empty()) {
    text += format("{} kernels written to {}; name it in OCTILE_CUBIN_PATH where there is no NVRTC\n", result.exported,
                   args.export_directory);
  }
  const auto written = write_result(text, args.json, [&] { return warmup_json(device->info, result); });
  for (const Error& error : result.failures) {
    fail(error);
  }
  if (!written) {
    return fail(written.error());
  }
  return result.failures.empty() ? kDone : kFailed;
}

}  // namespace octile::cli
