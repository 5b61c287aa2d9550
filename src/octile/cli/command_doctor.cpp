// SPDX-License-Identifier: Apache-2.0
// `octile doctor`: one text for a bug report, with nothing private in it but paths.
#include "octile/cli/commands.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/output.h"
#include "octile/core/env.h"
#include "octile/core/format.h"
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/describe.h"
#include "octile/report/text_report.h"
#include "octile/report/text_table.h"
#include "octile/table/table_ops.h"
#include "octile/table/table_store.h"
#include "octile/tune/self_test.h"
#include "octile/tune/sweep.h"

#include <octile/octile.hpp>

#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <map>

namespace octile::cli {
namespace {

constexpr double kSelfTestSeconds = 10;

std::string heading(const std::string& title) { return format("\n{}\n{}\n", title, std::string(title.size(), '-')); }

std::string system_text() {
  utsname system{};
  const bool is_known = ::uname(&system) == 0;
  // Not nodename: the machine's name is its owner's affair.
  return format("octile {}, {}\nsystem: {}\n", version(), utc_now(),
                is_known ? format("{} {} {}", system.sysname, system.release, system.machine) : "unknown");
}

std::string environment_text() {
  std::string text;
  for (const env::Variable& variable : env::variables()) {
    const auto value = env::value_of(variable.name);
    if (!value) {
      text += format("wrong: {}\n", value.error().message);
    } else if (value->source != "default") {
      text += format("{} = {}  ({})\n", variable.name, value->text, value->source);
    }
  }
  for (const env::Misspelt& found : env::misspelt()) {
    text += format("wrong: {}\n", to_string(found));
  }
  return text.empty() ? "nothing of Octile's is set\n" : text;
}

// Table files in a directory, flat or in folders of device names, by device.
std::map<std::string, int> count_tables(const std::string& directory) {
  std::map<std::string, int> counts;
  std::error_code failed;
  for (std::filesystem::recursive_directory_iterator file(directory, failed), end; !failed && file != end;
       file.increment(failed)) {
    if (file.depth() > 1) {
      file.disable_recursion_pending();
    }
    if (const auto name = parse_table_file_name(file->path().filename().string())) {
      ++counts[name->key.device_name];
    }
  }
  return counts;
}

std::string tables_text() {
  std::string text;
  for (const std::string& directory : table_search_path({})) {
    std::error_code missing;
    if (!std::filesystem::is_directory(directory, missing)) {
      text += format("{}: is not there\n", directory);
      continue;
    }
    const auto counts = count_tables(directory);
    std::string devices;
    for (const auto& [device, count] : counts) {
      devices += format("{}{} for {}", devices.empty() ? "" : ", ", count, device);
    }
    text += format("{}: {}\n", directory, devices.empty() ? "no tables" : devices);
    if (!counts.empty()) {
      const LintReport lint = lint_tables({directory});
      text += lint.ok() ? "" : findings_text(lint.findings);
    }
  }
  return text;
}

std::vector<Device> every_device() {
  std::vector<Device> devices;
  for (const Backend* backend : backends()) {
    for (const DeviceInfo& info : backend->devices()) {
      devices.push_back({backend, info});
    }
  }
  return devices;
}

}  // namespace

int run_doctor() {
  std::string text = system_text();
  text += heading("Devices") + devices_text(describe_devices());
  if (const std::string reason = cuda::no_device_reason(); !reason.empty()) {
    text += format("\nno CUDA device: {}\n", reason);
  }
  text += heading("Environment") + environment_text();
  text += heading("Tables, in the order in which they are searched") + tables_text();
  text += heading("Self-test");
  const std::vector<SelfTestRow> rows = self_test(every_device(), default_hooks(), kSelfTestSeconds);
  TextTable table{{{"device"}, {"kernels"}, {"result"}}, {}};
  for (const SelfTestRow& row : rows) {
    table.rows.push_back({row.device, row.family, row.result});
  }
  const bool is_wrong = std::ranges::any_of(rows, &SelfTestRow::is_wrong);
  text += table.to_string();
  const auto written = write_stdout(text);
  if (!written) {
    return fail(written.error());
  }
  return is_wrong ? kFailed : kDone;
}

}  // namespace octile::cli
