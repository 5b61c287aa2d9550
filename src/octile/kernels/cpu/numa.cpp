// SPDX-License-Identifier: Apache-2.0
// The machine's nodes by the hwloc component. Nodes on which this process has no core are left out, so that a process bound
// to one socket sees one node.
#include "octile/kernels/cpu/numa.h"

#include "octile/core/component.h"
#include "octile/core/cores.h"
#include "octile/core/env.h"
#include "octile/core/format.h"
#include "octile/core/log.h"
#include "octile/kernels/cpu/hwloc_abi.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include <sched.h>

namespace octile::cpu {
namespace {

std::string problem_of(const OctileHwlocApi* api, const std::string& path) {
  if (api == nullptr) {
    return format("{}: the hwloc that was loaded is of another major version than the one it was built with", path);
  }
  if (api->abi != OCTILE_HWLOC_ABI) {
    return format("{}: want component interface {}, got {}", path, OCTILE_HWLOC_ABI, api->abi);
  }
  return {};
}

class OneNode final : public Numa {
 public:
  int nodes() const noexcept override { return 1; }
  int node_of_this_thread() const noexcept override { return 0; }
  bool place(void*, std::int64_t, int) const noexcept override { return true; }
};

class HwlocNodes final : public Numa {
 public:
  HwlocNodes(const OctileHwlocApi& api, const std::vector<int>& cpus) : api_(api) {
    for (const int cpu : cpus) {
      used_.push_back(api.node_of_cpu(cpu));
    }
    std::ranges::sort(used_);
    used_.erase(std::ranges::unique(used_).begin(), used_.end());
    if (used_.size() > static_cast<std::size_t>(kMostNodes)) {
      used_.resize(static_cast<std::size_t>(kMostNodes));
    }
    node_of_cpu_.resize(static_cast<std::size_t>(cpus.back()) + 1, 0);
    for (const int cpu : cpus) {
      const auto found = std::ranges::find(used_, api.node_of_cpu(cpu));
      node_of_cpu_[static_cast<std::size_t>(cpu)] = found == used_.end() ? 0 : static_cast<int>(found - used_.begin());
    }
  }

  int nodes() const noexcept override { return static_cast<int>(used_.size()); }

  int node_of_this_thread() const noexcept override {
    const int cpu = sched_getcpu();
    const bool known = cpu >= 0 && static_cast<std::size_t>(cpu) < node_of_cpu_.size();
    return known ? node_of_cpu_[static_cast<std::size_t>(cpu)] : 0;
  }

  bool place(void* data, std::int64_t bytes, int node) const noexcept override {
    const int error = api_.place(data, static_cast<std::size_t>(bytes), used_[static_cast<std::size_t>(node)]);
    if (error != 0) {
      log_once(
          LogLevel::warning, "numa.place",
          format("weights cannot be placed on NUMA nodes and lie where they are first written: {}", std::strerror(error)));
    }
    return error == 0;
  }

 private:
  const OctileHwlocApi& api_;
  std::vector<int> used_;         // hwloc's numbers of the nodes that count, ascending.
  std::vector<int> node_of_cpu_;  // Indices into used_.
};

// Whether the kernel knows of one node alone: then hwloc, which takes milliseconds to look at a machine, is not asked,
// unless its component was named on purpose.
bool is_plain_machine() {
  const Expected<std::string> named = env::get_text("OCTILE_HWLOC_PATH");
  const std::optional<std::string> online = read_small_file("/sys/devices/system/node/online");
  return named && named->empty() && online && online->find_first_of(",-") == std::string::npos;
}

const Numa& this_machine() {
  static const OneNode one;
  static const Numa* const machine = []() -> const Numa* {
    if (is_plain_machine()) {
      return &one;
    }
    const auto component = open_component_api<OctileHwlocApi>(
        component_candidates("OCTILE_HWLOC_PATH", "liboctile_hwloc.so"), OCTILE_HWLOC_ENTRY, problem_of);
    if (component.api == nullptr || component.api->nodes() < 2) {
      return &one;
    }
    return new HwlocNodes(*component.api, affinity_cpus());  // Threads may ask while the process exits.
  }();
  return *machine;
}

std::atomic<const Numa*> replaced{nullptr};

}  // namespace

const Numa& numa() {
  const Numa* other = replaced.load(std::memory_order_acquire);
  return other != nullptr ? *other : this_machine();
}

ScopedNuma::ScopedNuma(const Numa& machine) noexcept : before_(replaced.exchange(&machine)) {}
ScopedNuma::~ScopedNuma() { replaced.store(before_); }

}  // namespace octile::cpu
