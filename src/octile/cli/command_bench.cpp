// SPDX-License-Identifier: Apache-2.0
// `octile bench`: baseline, best vendor and dispatched choice, interleaved in one run.
#include "octile/tune/bench.h"

#include "octile/cli/commands.h"
#include "octile/cli/context.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/output.h"
#include "octile/cli/progress.h"
#include "octile/core/format.h"
#include "octile/kernels/backend.h"
#include "octile/report/html_report.h"
#include "octile/report/json_report.h"
#include "octile/report/published.h"
#include "octile/report/text_report.h"

namespace octile::cli {
namespace {

std::string record_path(const std::string& device_name, const std::string& record) {
  return format("bench/results/{}/{}.json", device_name, record);
}

Expected<void> check_files(const BenchArgs& args) {
  std::vector<std::string> paths = {args.csv, args.html, args.measure.json.value_or("")};
  // Without the device bench() says what is wrong.
  if (const auto device = find_device(args.measure.device); device && !args.record.empty()) {
    paths.push_back(record_path(device->info.name, args.record));
  }
  return check_output_files(paths);
}

Expected<void> write_files(const BenchArgs& args, const std::string& command_line, const BenchResult& result) {
  if (!args.csv.empty()) {
    if (auto written = write_output_file(args.csv, bench_csv(result)); !written) {
      return written;
    }
  }
  const RecordedContext context = context_of(args.measure.device, command_line);
  if (!args.record.empty()) {
    const std::string path = record_path(result.device_name, args.record);
    if (auto written = write_output_file(path, recorded_bench_json(result, context)); !written) {
      return written;
    }
  }
  if (!args.html.empty()) {
    const HtmlOrigin origin = html_origin(context);
    return write_html(args.html, bench_html({result, origin.commit, origin.commands, origin.facts}, ""));
  }
  return {};
}

}  // namespace

int run_bench(const BenchArgs& args, const std::string& command_line) {
  BenchOptions options;
  auto shapes = shapes_of(args.measure.shape);
  if (!shapes) {
    return fail(shapes.error());
  }
  options.shapes = *std::move(shapes);
  fill_options(args.measure, command_line, options);
  options.m_list = args.measure.m_list;
  options.all_m = args.all_m;
  options.max_m = args.max_m;
  PublishedTimes published;
  if (!args.compare.empty()) {
    auto read = read_published_times(args.compare);
    if (!read) {
      return fail({ErrorCode::invalid_argument, "--compare: " + read.error().message});
    }
    published = *std::move(read);
  }
  if (auto writable = check_files(args); !writable) {
    return fail(writable.error());
  }

  auto result = [&] {
    Progress progress;
    options.progress = progress.callback();
    return bench(options);
  }();
  if (!result) {
    return fail(result.error());
  }
  if (!args.compare.empty()) {
    add_published(published, *result);
  }
  const auto files = write_files(args, command_line, *result);
  const auto written = write_result(bench_text(*result), args.measure.json, [&] { return bench_json(*result); });
  if (result->interrupted_by != 0) {
    return interrupted_status(result->interrupted_by);
  }
  for (const auto& outcome : {files, written}) {
    if (!outcome) {
      return fail(outcome.error());
    }
  }
  if (result->rows.empty()) {
    return fail({ErrorCode::failed, result->missing.empty() ? "nothing was measured" : result->missing.front()});
  }
  return kDone;
}

}  // namespace octile::cli
