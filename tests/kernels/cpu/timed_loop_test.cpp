// SPDX-License-Identifier: Apache-2.0
// A timed sequence makes its calls in order, each once, and reports the first that fails.
#include "octile/kernels/cpu/timed_loop.h"

#include "octile/core/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace octile::cpu {
namespace {

TEST(TimedLoop, MakesEveryCallOnceAndInOrderEachTime) {
  std::vector<int> order;
  std::vector<TimedCall> calls;
  for (int i = 0; i < 5; ++i) {
    calls.emplace_back([&order, i](void* stream) -> Expected<void> {
      EXPECT_EQ(stream, nullptr);
      order.push_back(i);
      return {};
    });
  }
  Expected<std::unique_ptr<TimedSequence>> loop = make_timed_loop(std::move(calls));
  ASSERT_TRUE(loop);
  ASSERT_TRUE((*loop)->time_us());
  ASSERT_TRUE((*loop)->time_us());
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 3, 4));
}

TEST(TimedLoop, ReportsTheMeanOfOneCall) {
  const TimedCall sleep = [](void*) -> Expected<void> {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return {};
  };
  Expected<std::unique_ptr<TimedSequence>> loop = make_timed_loop({sleep, sleep, sleep});
  ASSERT_TRUE(loop);
  const Expected<double> us = (*loop)->time_us();
  ASSERT_TRUE(us);
  EXPECT_GE(*us, 2000.0);  // A sleep is never shorter than asked for; how much longer is the machine's business.
}

TEST(TimedLoop, AFailingCallEndsItAndIsNamed) {
  int later = 0;
  Expected<std::unique_ptr<TimedSequence>> loop = make_timed_loop({
      [](void*) -> Expected<void> { return {}; },
      [](void*) -> Expected<void> { return make_error(ErrorCode::not_prepared, "no kernel"); },
      [&later](void*) -> Expected<void> {
        ++later;
        return {};
      },
  });
  ASSERT_TRUE(loop);
  const Expected<double> us = (*loop)->time_us();
  ASSERT_FALSE(us);
  EXPECT_EQ(us.error().code, ErrorCode::not_prepared);
  EXPECT_EQ(us.error().message, "timed call 2 of 3: no kernel");
  EXPECT_EQ(later, 0);
}

TEST(TimedLoop, RefusesAnEmptySequenceAndAnEmptyCall) {
  EXPECT_FALSE(make_timed_loop({}));
  const Expected<std::unique_ptr<TimedSequence>> loop = make_timed_loop({TimedCall()});
  ASSERT_FALSE(loop);
  EXPECT_EQ(loop.error().message, "timed call 1 of 1 is empty");
}

}  // namespace
}  // namespace octile::cpu
