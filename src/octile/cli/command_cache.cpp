// SPDX-License-Identifier: Apache-2.0
// `octile cache`: what the cache of compiled kernels holds, and how it is emptied.
#include "octile/cli/commands.h"
#include "octile/cli/exit_status.h"
#include "octile/cli/output.h"
#include "octile/core/format.h"
#include "octile/kernels/cuda/cubin_cache.h"
#include "octile/kernels/cuda/cubin_cache_limit.h"
#include "octile/report/json_report.h"

namespace octile::cli {
namespace {

constexpr double kMegabyte = 1e6;

std::string text_of(const CacheReport& report) {
  if (report.directory.empty()) {
    return "no cache: neither OCTILE_CACHE_DIR, XDG_CACHE_HOME nor HOME is set\n";
  }
  std::string text =
      format("{}: {} kernels, {:.1f} MB, ", report.directory, report.entries, static_cast<double>(report.bytes) / kMegabyte);
  text += report.limit_bytes == 0
              ? std::string("no limit\n")
              : format("at most {:.0f} MB (OCTILE_CACHE_LIMIT_MB)\n", static_cast<double>(report.limit_bytes) / kMegabyte);
  if (report.removed > 0) {
    text += format("{} kernels removed, {:.1f} MB\n", report.removed, static_cast<double>(report.removed_bytes) / kMegabyte);
  }
  return text;
}

}  // namespace

int run_cache(const CacheArgs& args) {
  const auto limit = cuda::cache_limit_bytes();
  if (!limit) {
    return fail(limit.error());
  }
  CacheReport report;
  report.directory = cuda::cubin_cache_directory();
  report.limit_bytes = *limit;
  if (!report.directory.empty()) {
    if (args.clear || args.keep_mb) {
      const std::int64_t keep = args.clear ? 0 : *args.keep_mb * static_cast<std::int64_t>(kMegabyte);
      const auto removed = cuda::trim_cache(report.directory, keep);
      if (!removed) {
        return fail(removed.error());
      }
      report.removed = removed->entries;
      report.removed_bytes = removed->bytes;
    }
    const auto use = cuda::cache_use(report.directory);
    if (!use) {
      return fail(use.error());
    }
    report.entries = use->entries;
    report.bytes = use->bytes;
  }
  const auto written = write_result(text_of(report), args.json, [&] { return cache_json(report); });
  return written ? kDone : fail(written.error());
}

}  // namespace octile::cli
