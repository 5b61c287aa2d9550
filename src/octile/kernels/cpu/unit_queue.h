// SPDX-License-Identifier: Apache-2.0
// Units of work in ranges, one a NUMA node: a thread takes from its own node's and, when that is empty, from the others'.
#pragma once

#include "octile/kernels/cpu/numa.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

namespace octile::cpu {

class UnitQueue {
 public:
  // begin_of(node) for node in [0, nodes]: where its range begins; ascending, the last one is the number of all units.
  template <class BeginOf>
  UnitQueue(int nodes, const BeginOf& begin_of) noexcept : nodes_(nodes) {
    for (int node = 0; node < nodes; ++node) {
      std::construct_at(&slots_[static_cast<std::size_t>(node)].range, begin_of(node), begin_of(node + 1));
    }
  }

  // A unit that nobody else gets, or -1 where none is left.
  std::int64_t take(int own_node) noexcept {
    for (int i = 0; i < nodes_; ++i) {
      Range& range = slots_[static_cast<std::size_t>((own_node + i) % nodes_)].range;
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
    Range(std::int64_t begin, std::int64_t its_end) noexcept : next(begin), end(its_end) {}
    std::atomic<std::int64_t> next;
    std::int64_t end;
  };
  // Room for a range. Every call makes a queue, and nearly every machine has one node: the other 63 lines stay untouched.
  union Slot {
    Slot() noexcept {}  // NOLINT(modernize-use-equals-default): the range begins with the queue's constructor.
    Range range;
  };
  int nodes_;
  std::array<Slot, kMostNodes> slots_;
};

}  // namespace octile::cpu
