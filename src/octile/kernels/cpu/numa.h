// SPDX-License-Identifier: Apache-2.0
// NUMA: which memory is near which threads, by hwloc where its component is there. Groups of columns of a weight are dealt
// out to the nodes in equal, contiguous shares; their pages lie on the node, and its threads take them first.
#pragma once

#include "octile/kernels/cpu/partition.h"

#include <cstdint>

namespace octile::cpu {

inline constexpr int kMostNodes = 64;

// A machine's nodes as kernels and packing see them.
class Numa {
 public:
  virtual ~Numa() = default;
  virtual int nodes() const noexcept = 0;  // 1 to kMostNodes.
  // The node, in [0, nodes()), that the calling thread runs on just now.
  virtual int node_of_this_thread() const noexcept = 0;
  // Wants [data, data + bytes), which nobody has touched yet, on `node`. Only advice: false where it cannot be had.
  virtual bool place(void* data, std::int64_t bytes, int node) const noexcept = 0;
};

// This machine's, found at the first call; one node without the component, or where the process's cores are all on one.
const Numa& numa();

// Tests see another machine as long as this lives.
class ScopedNuma {
 public:
  explicit ScopedNuma(const Numa& machine) noexcept;
  ~ScopedNuma();
  ScopedNuma(const ScopedNuma&) = delete;
  ScopedNuma& operator=(const ScopedNuma&) = delete;

 private:
  const Numa* before_;
};

// Groups [begin(node), begin(node) + size(node)) of a weight belong to `node`.
constexpr Partition groups_of_nodes(std::int64_t groups, int nodes) noexcept { return {groups, nodes}; }

}  // namespace octile::cpu
