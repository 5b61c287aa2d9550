// SPDX-License-Identifier: Apache-2.0
// The devices of a run over several hosts: what each rank has, which of them are one and the same, and which are alike.
#pragma once

#include <octile/error.hpp>

#include "octile/tune/journal.h"
#include "octile/tune/postbox.h"
#include "octile/tune/remote_workers.h"
#include "octile/tune/run_hooks.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace octile {

// A device as its rank describes it.
struct HostDevice {
  int rank = 0;
  std::string host;
  std::string id;        // There: "cuda:0".
  std::string identity;  // Equal for two ranks that see the same device.
  std::string name;      // In this run: the id on rank 0, "node7/cuda:0" elsewhere.
  HardKeys keys;
};

// Error (invalid_argument, unavailable): a device that is not here or is named twice.
Expected<std::vector<HostDevice>> devices_of_host(const std::vector<std::string>& ids, const std::string& host, int rank,
                                                  const RunOptions& options, const RunHooks& hooks);
// Each device once, with a name of its own: where several ranks see it, the first of them drives it.
std::vector<HostDevice> each_once(std::vector<HostDevice> seen);
// Of those that are alike together, by their names, one of rank 0 first in each. Error (invalid_argument): a device that
// none of rank 0 is like, with the key that differs.
Expected<DeviceGroups> group_by_keys(const std::vector<HostDevice>& devices);

// OCTILE_MPI_HOST, or the system's name of this host.
std::string host_name();

// Rank 0's side of the run: workers of the other ranks, which are dismissed with the object.
class HostedRun {
 public:
  // `ids`: the devices of this rank; every other rank serves with its own. Errors: of any rank, named;
  // the others then still wait to be dismissed.
  static Expected<std::unique_ptr<HostedRun>> open(Postbox postbox, const std::vector<std::string>& ids,
                                                   const RunOptions& options, const RunHooks& hooks);

  const DeviceGroups& groups() const noexcept { return groups_; }
  // For tune_with() on the devices of one group.
  RunHooks hooks();
  // "4 devices on 2 hosts"; ranks without one of their own are named.
  std::string description() const;
  // False: some rank did not answer, so that nothing that waits for it must be called.
  bool finish() { return workers_.finish(); }

 private:
  HostedRun(Postbox postbox, RunHooks hooks, std::vector<std::string> worker_command, std::vector<HostDevice> devices,
            DeviceGroups groups);

  RunHooks hooks_;
  std::vector<std::string> worker_command_;  // Here.
  int ranks_;
  std::map<std::string, HostDevice> devices_;  // By name.
  DeviceGroups groups_;
  RemoteWorkers workers_;
};

// Any other rank: says what it has and serves until the run is over.
Expected<void> serve_devices(const Postbox& postbox, const std::vector<std::string>& ids, const RunOptions& options,
                             const RunHooks& hooks);

}  // namespace octile
