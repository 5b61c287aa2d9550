// SPDX-License-Identifier: Apache-2.0
// One process' part in a run over MPI: rank 0 tunes and writes, the others lend their devices.
#pragma once

#include "octile/tune/host_devices.h"
#include "octile/tune/mpi_job.h"

#include <functional>
#include <string>
#include <vector>

namespace octile {

// What rank 0 does with the devices of all, and how any rank says what failed; each returns the exit status.
struct MpiRunActions {
  std::function<int(HostedRun& run)> tune;
  std::function<int(const Error& error)> fail;
};

// `ids`: the devices of this process. Returns the exit status once all have left; where some rank does not answer, the whole
// job is ended instead and this does not return.
int run_over_mpi(MpiJob& job, const std::vector<std::string>& ids, const RunOptions& options, const RunHooks& hooks,
                 const MpiRunActions& actions);

}  // namespace octile
