// SPDX-License-Identifier: Apache-2.0
// `octile tune`: sweeps, proves and writes tables.
#include "octile/cli/commands.h"
#include "octile/cli/context.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/output.h"
#include "octile/cli/progress.h"
#include "octile/core/format.h"
#include "octile/core/named_value.h"
#include "octile/kernels/backend.h"
#include "octile/linear/untuned_log.h"
#include "octile/report/html_report.h"
#include "octile/report/text_report.h"
#include "octile/table/table_store.h"
#include "octile/tune/mpi_run.h"
#include "octile/tune/run_hooks.h"
#include "octile/tune/sweep.h"
#include "octile/tune/tune.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

namespace octile::cli {
namespace {

HtmlOrigin origin_of(const TuneArgs& args, const TuneOptions& options, const TuneSummary& summary) {
  HtmlOrigin origin = html_origin(context_of(options.device, options.command_line));
  origin.octile_version = OCTILE_VERSION;
  origin.date = utc_now();
  origin.scope = args.measure.scope;
  origin.facts.emplace_back("launch mode", args.measure.pdl);
  if (const auto device = find_device(options.device)) {
    origin.device_name = device->info.name;
    origin.kernel_source_hash = combined_source_hash(*device->backend, device->info);
  }
  // The tables that were written say how they were measured.
  for (const std::string& file : summary.files) {
    std::vector<Finding> findings;
    if (const auto table = read_table(file, findings); table && table->provenance.contains("protocol")) {
      origin.protocol = table->provenance.at("protocol");
      break;
    }
  }
  return origin;
}

Expected<void> fill_shapes(const TuneArgs& args, TuneOptions& options) {
  auto shapes = shapes_of(args.measure.shape);
  if (!shapes) {
    return std::move(shapes).error();
  }
  options.shapes = *std::move(shapes);
  return {};
}

// The points of --from-log that this run can tune; `notes` says what else the log holds.
Expected<void> fill_uses(const TuneArgs& args, TuneOptions& options, std::vector<std::string>& notes) {
  const ShapeArgs& shape = args.measure.shape;
  if (!shape.model.empty() || shape.n != 0 || shape.k != 0 || shape.tp != 1 || !args.measure.m_list.empty()) {
    return Error{ErrorCode::invalid_argument,
                 "--from-log says which shapes and M to tune: give no --model, --tp, --n, --k, --m"};
  }
  const Expected<Device> device = find_device(options.device);
  if (!device) {
    return device.error();
  }
  Expected<UntunedLog> log = read_untuned_log(args.from_log);
  if (!log) {
    return make_error(ErrorCode::invalid_argument, "--from-log: {}", log.error().message);
  }
  notes = std::move(log->notes);
  std::vector<std::string> other_devices;
  std::int64_t of_other_devices = 0;
  std::int64_t of_other_types = 0;
  std::string other_type;
  for (const UntunedPoint& point : log->points) {
    if (point.shape.device_name != device->info.name) {
      // Points are sorted by device.
      if (other_devices.empty() || other_devices.back() != point.shape.device_name) {
        other_devices.push_back(point.shape.device_name);
      }
      ++of_other_devices;
    } else if (point.shape.out_dtype != to_string(options.out_dtype)) {
      ++of_other_types;
      other_type = point.shape.out_dtype;
    } else {
      options.uses.push_back({point.shape.n, point.shape.k, point.m, static_cast<double>(point.count)});
      const auto is_known = [&](const TuneShape& known) { return known.n == point.shape.n && known.k == point.shape.k; };
      if (std::ranges::none_of(options.shapes, is_known)) {
        options.shapes.push_back({format("{}x{}", point.shape.n, point.shape.k), point.shape.n, point.shape.k});
      }
    }
  }
  if (of_other_devices > 0) {
    notes.push_back(format("{}: {} points of other devices were left out: {}", args.from_log, of_other_devices,
                           join(other_devices, ", ")));
  }
  if (of_other_types > 0) {
    notes.push_back(format("{}: {} points of other output types than {} were left out; --out-dtype {} tunes these",
                           args.from_log, of_other_types, to_string(options.out_dtype), other_type));
  }
  if (options.uses.empty()) {
    return make_error(ErrorCode::invalid_argument, "--from-log: {} holds nothing that {} ran and this run can tune: {}",
                      args.from_log, device->info.name, join(notes, "; "));
  }
  return {};
}

// Of --device or --devices, here.
std::vector<std::string> device_ids(const TuneArgs& args) {
  if (args.devices.empty()) {
    return {args.measure.device};
  }
  return args.devices == std::vector<std::string>{"all"} ? devices_to_tune() : args.devices;
}

// As --numerics says, or the device's default; where it is not here, what tunes it says so.
Numerics numerics_of(const TuneArgs& args, const std::vector<std::string>& devices) {
  if (!args.numerics.empty()) {
    return value_named(args.numerics, {Numerics::baseline}, Numerics::deterministic);
  }
  const auto device = find_device(devices.empty() ? args.measure.device : devices.front());
  return device ? tuned_numerics(device->info) : Numerics::deterministic;
}

// "report.html" as "report.cuda_0.html", where several groups write one each.
std::string html_of(const std::string& path, const std::string& device) {
  if (path.empty()) {
    return path;
  }
  std::string name = device;
  std::ranges::replace(name, ':', '_');
  const std::filesystem::path page(path);
  return (page.parent_path() / format("{}.{}{}", page.stem().string(), name, page.extension().string())).string();
}

// One run on devices that are alike, with its report, which also goes to `html`. The exit status.
int tune_group(const TuneArgs& args, TuneOptions options, const RunHooks& hooks, const std::string& html) {
  std::vector<std::string> notes;
  if (Expected<void> known = args.from_log.empty() ? fill_shapes(args, options) : fill_uses(args, options, notes); !known) {
    return fail(known.error());
  }
  if (auto writable = check_output_files({html}); !writable) {
    return fail(writable.error());
  }
  auto summary = [&] {
    Progress progress;
    options.progress = progress.callback();
    return tune_with(options, hooks);
  }();
  if (!summary) {
    return fail(summary.error());
  }
  summary->notes.insert(summary->notes.begin(), notes.begin(), notes.end());
  const auto page =
      html.empty() ? Expected<void>() : write_html(html, tune_html(*summary, origin_of(args, options, *summary)));
  const auto written = write_stdout(tune_text(*summary));
  if (summary->failure.has_value()) {
    return fail({ErrorCode::failed, *summary->failure});
  }
  if (summary->interrupted_by != 0) {
    return interrupted_status(summary->interrupted_by);
  }
  for (const auto& outcome : {page, written}) {
    if (!outcome) {
      return fail(outcome.error());
    }
  }
  return kDone;
}

// Groups run one after the other, each with an equal share of the budget; the first that does not end well sets the status,
// an interrupt ends all.
int tune_groups(const TuneArgs& args, TuneOptions options, const DeviceGroups& groups, const RunHooks& hooks) {
  int status = kDone;
  options.time_budget_s /= static_cast<double>(groups.size());
  for (const std::vector<std::string>& group : groups) {
    options.device = group.front();
    options.devices = group;
    if (groups.size() > 1) {
      std::fputs(format("octile: tuning on {}\n", join(group, ", ")).c_str(), stderr);
    }
    const int of_group = tune_group(args, options, hooks, groups.size() > 1 ? html_of(args.html, group.front()) : args.html);
    status = status == kDone ? of_group : status;
    if (of_group > 128) {
      break;
    }
  }
  return status;
}

int tune_over_hosts(const TuneArgs& args, const TuneOptions& options) {
  const Expected<std::unique_ptr<MpiJob>> job = MpiJob::join(*args.mpi);
  if (!job) {
    return fail(job.error());
  }
  const auto tune_all = [&](HostedRun& run) {
    std::fputs(format("octile: tuning over MPI: {}\n", run.description()).c_str(), stderr);
    return tune_groups(args, options, run.groups(), run.hooks());
  };
  return run_over_mpi(**job, device_ids(args), options, default_hooks(), {tune_all, fail});
}

}  // namespace

int run_tune(const TuneArgs& args, const std::string& command_line) {
  TuneOptions options;
  fill_options(args.measure, command_line, options);
  options.m_list = args.measure.m_list;
  options.thorough = args.thorough;
  options.resume = args.resume;
  options.shard = args.shard;
  options.numerics = numerics_of(args, device_ids(args));
  if (args.mpi) {
    return tune_over_hosts(args, options);
  }
  const Expected<DeviceGroups> groups =
      args.devices.empty() ? DeviceGroups{{options.device}} : group_devices(device_ids(args), options);
  return groups ? tune_groups(args, options, *groups, default_hooks()) : fail(groups.error());
}

}  // namespace octile::cli
