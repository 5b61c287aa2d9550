// SPDX-License-Identifier: Apache-2.0
// NUMA: work is dealt out by node and done once, weights are placed in shares that cover them, and neither changes a result.
// Machines with several nodes are made up here, or by hwloc from a description.
#include "octile/kernels/cpu/numa.h"

#include "octile/core/cores.h"
#include "octile/kernels/cpu/families.h"
#include "octile/kernels/cpu/host_memory.h"
#include "octile/kernels/cpu/packed_weight.h"
#include "octile/kernels/cpu/unit_queue.h"
#include "support/cpu_linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace octile::cpu {
namespace {

// Some number of nodes; threads belong to them in turn as they ask.
class FakeNuma final : public Numa {
 public:
  struct Placed {
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
    int node = 0;
  };

  explicit FakeNuma(int nodes, bool places = true) : nodes_(nodes), places_(places) {}

  int nodes() const noexcept override { return nodes_; }
  int node_of_this_thread() const noexcept override { return static_cast<int>(asked_.fetch_add(1) % nodes_); }
  bool place(void* data, std::int64_t bytes, int node) const noexcept override {
    if (placed.empty()) {
      first_ = static_cast<std::byte*>(data);
    }
    placed.push_back({static_cast<std::byte*>(data) - first_, bytes, node});
    return places_;
  }

  mutable std::vector<Placed> placed;

 private:
  int nodes_;
  bool places_;
  mutable std::atomic<int> asked_{0};
  mutable std::byte* first_ = nullptr;
};

TEST(UnitQueue, GivesEveryUnitOnceToAnyNumberOfThreadsAndNodes) {
  for (const int nodes : {1, 2, 3, kMostNodes}) {
    for (const std::int64_t units : {0, 1, 7, 1000}) {
      UnitQueue queue(nodes, [&](int node) { return units * node / nodes; });
      std::vector<std::atomic<int>> taken(static_cast<std::size_t>(units));
      std::vector<std::thread> threads;
      for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
          for (std::int64_t unit = 0; (unit = queue.take(thread % nodes)) >= 0;) {
            taken[static_cast<std::size_t>(unit)].fetch_add(1);
          }
        });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
      EXPECT_TRUE(std::ranges::all_of(taken, [](const std::atomic<int>& times) { return times == 1; }))
          << nodes << " nodes, " << units << " units";
      EXPECT_EQ(queue.take(0), -1);
    }
  }
}

TEST(UnitQueue, GivesAThreadItsOwnNodesUnitsFirst) {
  UnitQueue queue(3, [](int node) { return std::int64_t{10} * node; });
  for (std::int64_t unit = 10; unit < 20; ++unit) {
    EXPECT_EQ(queue.take(1), unit);
  }
  EXPECT_EQ(queue.take(1), 20) << "the next node's";
  EXPECT_EQ(queue.take(0), 0);
}

TEST(Numa, PlacesAWeightInSharesThatCoverItOnce) {
  const std::int64_t n = 2000;
  const std::int64_t k = 4100;
  const test::LinearOperands operands = test::LinearOperands::random(1, n, k);
  for (const int nodes : {2, 3, 5}) {
    const FakeNuma machine(nodes);
    const ScopedNuma scoped(machine);
    const auto weight = pack_cpu(operands.weight_source());
    ASSERT_TRUE(weight) << weight.error().message;
    ASSERT_FALSE(machine.placed.empty());
    std::int64_t next = 0;
    int last_node = -1;
    for (const FakeNuma::Placed& part : machine.placed) {
      EXPECT_EQ(part.offset, next);
      EXPECT_EQ(part.offset % kHugePageBytes, 0);
      EXPECT_GT(part.node, last_node);
      next = part.offset + part.bytes;
      last_node = part.node;
    }
    EXPECT_EQ(next, (*weight)->bytes());
  }
}

TEST(Numa, DoesNotPlaceMemoryThatSharesItsPages) {
  const test::LinearOperands operands = test::LinearOperands::random(1, 64, 64);
  const FakeNuma machine(2);
  const ScopedNuma scoped(machine);
  ASSERT_TRUE(pack_cpu(operands.weight_source()));
  EXPECT_TRUE(machine.placed.empty());
}

TEST(Numa, ChangesNoBitOfAResult) {
  SCOPED_TRACE(test::seed_text());
  const test::LinearOperands operands = test::LinearOperands::random(9, 1100, 2100);
  for (const test::CpuEngine& engine : test::cpu_engines()) {
    if (!engine.runs_here()) {
      continue;
    }
    const test::RunResult plain = test::run_linear(engine, operands, {});
    ASSERT_EQ(test::compare(operands, {}, plain), "") << engine.label;
    for (const int nodes : {2, 3, 40}) {
      for (const bool places : {true, false}) {
        const FakeNuma machine(nodes, places);
        const ScopedNuma scoped(machine);
        const test::RunResult result = test::run_linear(engine, operands, {});
        ASSERT_EQ(result.failure, "") << engine.label << ", " << nodes << " nodes";
        EXPECT_EQ(result.y, plain.y) << engine.label << ", " << nodes << " nodes";
      }
    }
  }
}

TEST(Numa, OfThisMachineIsWithinBounds) {
  EXPECT_GE(numa().nodes(), 1);
  EXPECT_LE(numa().nodes(), kMostNodes);
  EXPECT_GE(numa().node_of_this_thread(), 0);
  EXPECT_LT(numa().node_of_this_thread(), numa().nodes());
}

// Run in a process of its own by the test below: hwloc reads its description once.
TEST(NumaOfADescription, PlacesAndMultipliesOnItsNodes) {
  if (std::getenv("HWLOC_SYNTHETIC") == nullptr) {
    GTEST_SKIP() << "runs as a child of Numa.ReadsTheNodesThatHwlocSees";
  }
  ASSERT_EQ(numa().nodes(), 2);
  const test::LinearOperands operands = test::LinearOperands::random(3, 2000, 4100);
  const test::CpuEngine engine = test::cpu_engines().front();
  EXPECT_EQ(test::compare(operands, {}, test::run_linear(engine, operands, {})), "");
}

TEST(Numa, ReadsTheNodesThatHwlocSees) {
  const std::vector<int> cpus = affinity_cpus();
  if (cpus.size() < 2 || cpus[0] != 0 || cpus[1] != 1) {
    GTEST_SKIP() << "wants the first two cores, to call each a node";
  }
  if (std::getenv("HWLOC_SYNTHETIC") != nullptr) {
    GTEST_SKIP() << "is a child itself";
  }
#ifndef OCTILE_TEST_HAS_HWLOC
  GTEST_SKIP() << "built without hwloc";
#else
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  // Each core of the description is a node; as many as there are cores, so that none is unknown.
  const std::string command =
      "OCTILE_HWLOC_PATH='" OCTILE_TEST_BINARY_DIR "' HWLOC_SYNTHETIC='numa:2 pu:" + std::to_string((cpus.back() + 2) / 2) +
      "' taskset -c 0," + std::to_string(cpus.back()) + " '" + self + "' --gtest_filter='NumaOfADescription*' > /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
#endif
}

}  // namespace
}  // namespace octile::cpu
