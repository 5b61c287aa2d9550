// SPDX-License-Identifier: Apache-2.0
// hwloc behind Octile's interface: the machine's NUMA nodes, read once, and binding of memory to one.
#include "octile/kernels/cpu/hwloc_abi.h"

#include <hwloc.h>

#include <cerrno>
#include <string>
#include <vector>

namespace {

struct Nodes {
  hwloc_topology_t topology = nullptr;
  std::vector<hwloc_obj_t> nodes;  // Those that have cores.
  std::vector<int> of_cpu;         // By the kernel's number.

  Nodes() {
    if (hwloc_topology_init(&topology) != 0) {
      topology = nullptr;
      return;
    }
    if (hwloc_topology_load(topology) != 0) {
      hwloc_topology_destroy(topology);
      topology = nullptr;
      return;
    }
    for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
      if (hwloc_bitmap_iszero(node->cpuset) == 0) {
        add(node);
      }
    }
  }

  void add(hwloc_obj_t node) {
    const int index = static_cast<int>(nodes.size());
    nodes.push_back(node);
    for (int cpu = hwloc_bitmap_first(node->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(node->cpuset, cpu)) {
      if (static_cast<std::size_t>(cpu) >= of_cpu.size()) {
        of_cpu.resize(static_cast<std::size_t>(cpu) + 1, 0);
      }
      of_cpu[static_cast<std::size_t>(cpu)] = index;
    }
  }
};

// Lives as long as the process: a thread may still ask while it exits. Without memory there is one node.
const Nodes* machine() noexcept {
  static const Nodes* const nodes = []() noexcept -> const Nodes* {
    try {
      return new Nodes;
    } catch (...) {
      return nullptr;
    }
  }();
  return nodes;
}

int nodes() noexcept {
  const Nodes* m = machine();
  return m == nullptr || m->nodes.empty() ? 1 : static_cast<int>(m->nodes.size());
}

int node_of_cpu(int cpu) noexcept {
  const Nodes* m = machine();
  const bool known = m != nullptr && cpu >= 0 && static_cast<std::size_t>(cpu) < m->of_cpu.size();
  return known ? m->of_cpu[static_cast<std::size_t>(cpu)] : 0;
}

int place(void* data, std::size_t bytes, int node) noexcept {
  const Nodes* m = machine();
  if (m == nullptr || node < 0 || static_cast<std::size_t>(node) >= m->nodes.size()) {
    return EINVAL;
  }
  const hwloc_const_bitmap_t set = m->nodes[static_cast<std::size_t>(node)]->nodeset;
  return hwloc_set_area_membind(m->topology, data, bytes, set, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) == 0 ? 0 : errno;
}

const char* version() noexcept {
  static const std::string text = [] {
    const unsigned number = hwloc_get_api_version();
    return std::to_string(number >> 16U) + "." + std::to_string((number >> 8U) & 0xFFU) + "." +
           std::to_string(number & 0xFFU);
  }();
  return text.c_str();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const OctileHwlocApi* octile_hwloc_api() {
  static const OctileHwlocApi api = {OCTILE_HWLOC_ABI, version(), nodes, node_of_cpu, place};
  // Another major version has other structures than those this file was compiled with.
  return hwloc_get_api_version() >> 16U == HWLOC_API_VERSION >> 16U ? &api : nullptr;
}
