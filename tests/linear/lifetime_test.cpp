// SPDX-License-Identifier: Apache-2.0
// Lives of linears: thousands made and destroyed, destroyed while others run, used in a forked child.
#include "cpu_table.h"
#include "layer.h"
#include "support/process_memory.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace octile {
namespace {

using test::CpuTable;
using test::Inputs;
using test::run_guarded;
using test::Weights;

constexpr std::int64_t kN = 48;
constexpr std::int64_t kK = 64;
constexpr std::int64_t kM = 8;

constexpr int kCycles = test::kSanitized ? 300 : 10'000;

Expected<Fp8Linear> linear_of(const Fp8Weight& weight) {
  auto linear = Fp8Linear::create(weight);
  if (linear) {
    if (auto ready = linear->prepare(kM); !ready) {
      return ready.error();
    }
  }
  return linear;
}

class Lifetime : public testing::Test {
 protected:
  static std::string kernel() { return CpuTable({kN, kK}, "avx2").available() ? "avx2" : "reference"; }

  // A kernel of ours: a vendor's library compiles for milliseconds.
  CpuTable table_{{kN, kK}, kernel()};
  Weights weights_{kN, kK};
  Inputs x_{kM, kK};
};

TEST_F(Lifetime, TenThousandCyclesTakeNoMemoryAway) {
  const auto cycle = [&] {
    const auto weight = Fp8Weight::create(weights_.source(), table_.options());
    ASSERT_TRUE(weight) << weight.error().message;
    const auto linear = linear_of(*weight);
    ASSERT_TRUE(linear) << linear.error().message;
    run_guarded(*linear, x_.view(), DType::bf16, kN);
  };
  for (int i = 0; i < kCycles / 10; ++i) {
    cycle();
  }
  const std::int64_t before = test::resident_bytes();
  for (int i = 0; i < kCycles; ++i) {
    cycle();
  }
  if (!test::kSanitized) {
    // A leak of 64 bytes a cycle would be 640,000.
    EXPECT_LT(test::resident_bytes() - before, 600'000);
  }
}

TEST_F(Lifetime, OthersAreDestroyedWhileOneRuns) {
  auto weight = Fp8Weight::create(weights_.source(), table_.options());
  ASSERT_TRUE(weight) << weight.error().message;
  const auto serving = linear_of(*weight);
  ASSERT_TRUE(serving) << serving.error().message;
  const auto wanted = run_guarded(*serving, x_.view(), DType::bf16, kN);
  std::atomic<bool> ends{false};
  std::atomic<int> wrong{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!ends) {
        wrong += run_guarded(*serving, x_.view(), DType::bf16, kN) == wanted ? 0 : 1;
      }
    });
  }
  // Linears of the same weight, then the weight's own handle: the one that runs keeps what it needs.
  for (int i = 0; i < 50; ++i) {
    const auto other = linear_of(*weight);
    ASSERT_TRUE(other) << other.error().message;
  }
  weight = Error{ErrorCode::failed, "gone"};
  const auto unrelated = Fp8Weight::create(weights_.source(), table_.options());
  ends = true;
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Lifetime, AForkedChildGoesOnWithTheBitsOfItsParent) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not allow threads in a forked child";
#endif
  const auto weight = Fp8Weight::create(weights_.source(), table_.options());
  ASSERT_TRUE(weight) << weight.error().message;
  const auto linear = linear_of(*weight);
  ASSERT_TRUE(linear) << linear.error().message;
  const auto wanted = run_guarded(*linear, x_.view(), DType::bf16, kN);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool old_is_right = run_guarded(*linear, x_.view(), DType::bf16, kN) == wanted;
    const auto fresh = linear_of(*weight);
    ::_exit(old_is_right && fresh && run_guarded(*fresh, x_.view(), DType::bf16, kN) == wanted ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(run_guarded(*linear, x_.view(), DType::bf16, kN), wanted);
}

}  // namespace
}  // namespace octile
