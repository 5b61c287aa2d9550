// SPDX-License-Identifier: Apache-2.0
// The thread pool: every part once, nested and concurrent callers, fork, restart.
#include "octile/kernels/cpu/thread_pool.h"

#include "octile/core/env.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace octile::cpu {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;  // It ends a forked child that starts threads.
#else
constexpr bool kThreadSanitizer = false;
#endif

// Runs `parts` parts and returns how often each was called. Plain ints: a part that ran twice at once, or a missing
// happens-before edge, is a race that TSan reports.
std::vector<int> counts_of(ThreadPool& pool, int parts) {
  std::vector<int> counts(static_cast<std::size_t>(parts), 0);
  const auto count = [&](int part) { ++counts[static_cast<std::size_t>(part)]; };
  pool.run(parts, count);
  return counts;
}

class ThreadPoolOfSize : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolOfSize, testing::Range(1, 9));

TEST_P(ThreadPoolOfSize, CallsEveryPartExactlyOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (const int parts : {0, 1, 2, 3, 7, 8, 9, 64, 1000}) {
    for (int round = 0; round < 20; ++round) {
      EXPECT_EQ(counts_of(pool, parts), std::vector<int>(static_cast<std::size_t>(parts), 1)) << parts << " parts";
    }
  }
}

// As arithmetic shows it: on x86, std::fegetround() reads the mode of another unit than the one that floats use.
bool rounds_to_nearest() {
  const volatile float one = 1.0F;
  const volatile float little = 1e-10F;
  return one - little == one;
}

// Rounding stands for the whole mode.
TEST_P(ThreadPoolOfSize, PartsRunInTheDefaultFloatingPointModeAndTheCallerKeepsItsOwn) {
  std::thread([size = GetParam()] {
    ASSERT_EQ(std::fesetround(FE_TOWARDZERO), 0);
    ThreadPool pool(size);  // Its threads start with this one's mode.
    for (const int parts : {1, 64}) {
      std::vector<int> nearest(static_cast<std::size_t>(parts), -1);
      const auto note = [&](int part) { nearest[static_cast<std::size_t>(part)] = static_cast<int>(rounds_to_nearest()); };
      pool.run(parts, note);
      EXPECT_EQ(nearest, std::vector<int>(static_cast<std::size_t>(parts), 1));
      EXPECT_FALSE(rounds_to_nearest());
    }
  }).join();
}

TEST_P(ThreadPoolOfSize, UsesNoMoreThreadsThanItsSize) {
  ThreadPool pool(GetParam());
  std::mutex mutex;
  std::set<std::thread::id> threads;
  const auto note = [&](int) {
    const std::scoped_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
  };
  for (int round = 0; round < 50; ++round) {
    pool.run(16, note);
  }
  EXPECT_LE(threads.size(), static_cast<std::size_t>(GetParam()));
  EXPECT_GE(threads.size(), 1U);
}

TEST_P(ThreadPoolOfSize, CanBeMadeAndEndedAgainAndAgain) {
  for (int round = 0; round < 20; ++round) {
    ThreadPool pool(GetParam());
    if (round % 2 == 0) {  // Ending a pool that never ran must work as well.
      EXPECT_EQ(counts_of(pool, 5), std::vector<int>(5, 1));
    }
  }
}

TEST(ThreadPool, AllThreadsWorkAtTheSameTime) {
  ThreadPool pool(3);
  std::atomic<int> arrived{0};
  // No part ends before all three have begun: with fewer than three threads this would hang.
  const auto meet = [&](int) {
    arrived.fetch_add(1);
    while (arrived.load() < 3) {
      std::this_thread::yield();
    }
  };
  pool.run(3, meet);
  EXPECT_EQ(arrived.load(), 3);
}

TEST(ThreadPool, WorkersThatSleepAreWoken) {
  ThreadPool pool(4);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // Far longer than an idle worker watches.
    EXPECT_EQ(counts_of(pool, 8), std::vector<int>(8, 1));
  }
}

TEST(ThreadPool, ASizeBelowOneMeansOne) {
  ThreadPool pool(-3);
  EXPECT_EQ(pool.size(), 1);
  EXPECT_EQ(counts_of(pool, 4), std::vector<int>(4, 1));
}

TEST(ThreadPool, ANestedCallRunsInline) {
  ThreadPool pool(4);
  std::vector<std::vector<int>> counts(6, std::vector<int>(10, 0));
  std::vector<int> strangers(6, 0);
  const auto outer = [&](int i) {
    const auto self = std::this_thread::get_id();
    const auto inner = [&, i](int part) {
      ++counts[static_cast<std::size_t>(i)][static_cast<std::size_t>(part)];
      strangers[static_cast<std::size_t>(i)] += std::this_thread::get_id() == self ? 0 : 1;
    };
    pool.run(10, inner);
  };
  pool.run(6, outer);
  EXPECT_EQ(counts, std::vector<std::vector<int>>(6, std::vector<int>(10, 1)));
  EXPECT_EQ(strangers, std::vector<int>(6, 0));
}

TEST(ThreadPool, ConcurrentCallersEachGetTheirOwnParts) {
  ThreadPool pool(3);
  constexpr int callers = 4;
  std::vector<int> failures(callers, 0);
  std::vector<std::thread> threads;
  for (int caller = 0; caller < callers; ++caller) {
    threads.emplace_back([&pool, &failures, caller] {
      for (int round = 0; round < 200; ++round) {
        const int parts = 1 + (round + caller) % 13;
        failures[static_cast<std::size_t>(caller)] +=
            counts_of(pool, parts) == std::vector<int>(static_cast<std::size_t>(parts), 1) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(failures, std::vector<int>(callers, 0));
}

TEST(ThreadPool, ResultsWrittenByPartsAreSeenByTheCaller) {
  ThreadPool pool(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::int64_t> sums(7, -1);
    const auto sum = [&](int part) { sums[static_cast<std::size_t>(part)] = std::int64_t{round} * part; };
    pool.run(7, sum);
    EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::int64_t{0}), std::int64_t{round} * 21);
  }
}

// Runs `check` in a forked child; its exit status is 0 where it returned true.
template <class Check>
int exit_status_of_child(Check check) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // A pool that waits for threads it has not inherited would hang.
    _exit(check() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(ThreadPool, WorksInAForkedChildAndStillInItsParent) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "ThreadSanitizer does not allow threads in a forked child";
  }
  ThreadPool pool(4);
  EXPECT_EQ(counts_of(pool, 8), std::vector<int>(8, 1));
  const auto check = [&] { return counts_of(pool, 8) == std::vector<int>(8, 1); };
  EXPECT_EQ(exit_status_of_child(check), 0);
  EXPECT_TRUE(check());
}

TEST(ThreadPool, WorksInAChildThatWasForkedDuringARunOfAnotherThread) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "ThreadSanitizer does not allow threads in a forked child";
  }
  ThreadPool pool(3);
  std::atomic<bool> done{false};
  // It must not allocate: AddressSanitizer's allocator (GCC 12) does not survive a fork while another thread holds its lock.
  std::thread busy([&] {
    std::vector<int> counts(6, 0);
    const auto count = [&](int part) { ++counts[static_cast<std::size_t>(part)]; };
    while (!done.load()) {
      pool.run(6, count);
    }
  });
  for (int round = 0; round < 10; ++round) {
    EXPECT_EQ(exit_status_of_child([&] {
                return counts_of(pool, 8) == std::vector<int>(8, 1) && counts_of(pool, 3) == std::vector<int>(3, 1);
              }),
              0);
  }
  done.store(true);
  busy.join();
}

TEST(ThreadPool, AChildOfAChildWorksToo) {
  if (kThreadSanitizer) {
    GTEST_SKIP() << "ThreadSanitizer does not allow threads in a forked child";
  }
  ThreadPool& pool = ThreadPool::instance();
  const auto check = [&] { return counts_of(pool, 8) == std::vector<int>(8, 1); };
  EXPECT_TRUE(check());
  EXPECT_EQ(exit_status_of_child([&] { return check() && exit_status_of_child(check) == 0; }), 0);
}

TEST(ThreadPoolDeathTest, ExitInsideAPartEndsTheProcess) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        alarm(20);
        ThreadPool::instance().run(4, [](int part) {
          if (part == 0) {
            exit(7);
          }
        });
        _exit(1);
      },
      testing::ExitedWithCode(7), "");
}

TEST(ThreadPoolDeathTest, TheSizeOfTheProcessesPoolIsTheVariables) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const env::ScopedOverride three("OCTILE_NUM_THREADS", "3");
        exit(ThreadPool::instance().size());
      },
      testing::ExitedWithCode(3), "");
}

TEST(ThreadPoolDeathTest, AnUnreadableSizeIsSaidAndTheCoresServe) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const env::ScopedOverride bad("OCTILE_NUM_THREADS", "three");
        exit(ThreadPool::instance().size() == usable_cores() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "OCTILE_NUM_THREADS");
}

}  // namespace
}  // namespace octile::cpu
