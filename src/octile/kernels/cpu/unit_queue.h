// SPDX-License-Identifier: Apache-2.0
// Units of work in ranges, one a NUMA node: a thread takes from its own node's and, when that is empty, from the others'.
#pragma once

#include "octile/kernels/cpu/numa.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace octile::cpu {

class UnitQueue {
 public:
  // begin_of(node) for node in [0, nodes]: where its range begins; ascending, the last one is the number of all units.
  template <class BeginOf>
  UnitQueue(int nodes, const BeginOf& begin_of) noexcept : nodes_(nodes) {
    for (int node = 0; node < nodes; ++node) {
      ranges_[static_cast<std::size_t>(node)].next.store(begin_of(node), std::memory_order_relaxed);
      ranges_[static_cast<std::size_t>(node)].end = begin_of(node + 1);
    }
  }

  // A unit that nobody else gets, or -1 where none is left.
  std::int64_t take(int own_node) noexcept {
    for (int i = 0; i < nodes_; ++i) {
      Range& range = ranges_[static_cast<std::size_t>((own_node + i) % nodes_)];
      // Looked at first, so that an empty range's counter is not written by every thread for every unit.
      if (range.next.load(std::memory_order_relaxed) < range.end) {
        if (const std::int64_t unit = range.next.fetch_add(1, std::memory_order_relaxed); unit < range.end) {
          return unit;
        }
      }
    }
    return -1;
  }

 private:
  struct alignas(64) Range {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };
  int nodes_;
  std::array<Range, kMostNodes> ranges_;
};

}  // namespace octile::cpu
