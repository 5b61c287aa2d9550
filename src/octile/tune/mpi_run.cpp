// SPDX-License-Identifier: Apache-2.0
// Coordinator or lender; see mpi_run.h.
#include "octile/tune/mpi_run.h"

#include <algorithm>
#include <cstdio>

namespace octile {

namespace {

// A message that is looked for more often arrives sooner, and costs a core more: not on a CPU that is measured.
constexpr double kPollOnGpusS = 2e-4;
constexpr double kPollOnCpusS = 1e-3;

double poll_interval_s(const std::vector<std::string>& ids) {
  const auto is_gpu = [](const std::string& id) { return id.starts_with("cuda:"); };
  return std::ranges::all_of(ids, is_gpu) ? kPollOnGpusS : kPollOnCpusS;
}

}  // namespace

int run_over_mpi(MpiJob& job, const std::vector<std::string>& ids, const RunOptions& options, const RunHooks& hooks,
                 const MpiRunActions& actions) {
  const Postbox postbox = job.postbox(poll_interval_s(ids));
  int status = 0;
  bool all_are_there = true;
  if (job.rank() != 0) {
    if (const Expected<void> served = serve_devices(postbox, ids, options, hooks); !served) {
      status = actions.fail(served.error());
      all_are_there = false;
    }
  } else if (const auto run = HostedRun::open(postbox, ids, options, hooks); !run) {
    status = actions.fail(run.error());
    all_are_there = dismiss(postbox);
  } else {
    status = actions.tune(**run);
    all_are_there = (*run)->finish();
  }
  if (!all_are_there) {
    std::fflush(nullptr);
    job.end_job(std::max(status, 1));
  }
  const Expected<void> left = job.leave();
  return left || status != 0 ? status : actions.fail(left.error());
}

}  // namespace octile
