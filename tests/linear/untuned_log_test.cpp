// SPDX-License-Identifier: Apache-2.0
// Untuned calls: counted, written, read back; whatever becomes of the file, the process or its child.
#include "octile/linear/untuned_log.h"

#include "octile/core/env.h"
#include "support/files.h"
#include "support/log_capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <thread>

namespace octile {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

constexpr const char* kVariable = "OCTILE_UNTUNED_LOG";

TEST(UntunedCounter, CountsEveryMUpTo16384ByItselfAndLargerOnesInSteps) {
  for (const auto& [m, counted] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                   {2, 2},
                                   {16383, 16383},
                                   {16384, 16384},
                                   {16385, 17408},
                                   {17408, 17408},
                                   {17409, 18432},
                                   {1 << 20, 1 << 20},
                                   {(1 << 20) + 1, 1 << 20},
                                   {std::numeric_limits<std::int64_t>::max(), 1 << 20}}) {
    EXPECT_EQ(UntunedCounter::counted_as(m), counted) << m;
    UntunedCounter counter;
    counter.add(m);
    EXPECT_THAT(counter.take(), ElementsAre(Pair(counted, 1))) << m;
    EXPECT_THAT(counter.take(), IsEmpty()) << "taken is taken";
  }
}

TEST(UntunedCounter, GivesBackWhatCouldNotBeWritten) {
  UntunedCounter counter;
  counter.add(7);
  counter.add(20000);
  const auto calls = counter.take();
  counter.add(7);
  counter.put_back(calls);
  EXPECT_THAT(counter.take(), ElementsAre(Pair(7, 2), Pair(20480, 1)));
}

TEST(UntunedCounter, LosesNothingAmongThreads) {
  UntunedCounter counter;
  std::uint64_t taken = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&counter] {
        for (int i = 0; i < 10000; ++i) {
          counter.add(1 + i % 3);
        }
      });
    }
    for (int i = 0; i < 20; ++i) {
      for (const auto& [m, count] : counter.take()) {
        taken += count;
      }
    }
  }
  for (const auto& [m, count] : counter.take()) {
    taken += count;
  }
  EXPECT_EQ(taken, 40000U);
}

class UntunedLogFile : public testing::Test {
 protected:
  UntunedLogFile() : path(directory.file("untuned.jsonl")), variable(kVariable, path) {}
  void write(const std::string& text) const { directory.write("untuned.jsonl", text); }
  std::string text() const { return test::read_text(path); }
  UntunedShape shape(std::int64_t n) const { return {"A_Device", n, 64, "bf16", false}; }

  test::TemporaryDirectory directory;
  std::string path;
  env::ScopedOverride variable;
};

TEST_F(UntunedLogFile, HoldsALineForEachPointWithTheCallsSinceTheLast) {
  const auto a = untuned_counter(shape(1));
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(untuned_counter(shape(1)), a) << "linears of one shape share a counter";
  const auto with_bias = untuned_counter({"A_Device", 1, 64, "fp16", true});
  a->add(5);
  with_bias->add(9);
  ASSERT_TRUE(flush_untuned_log());
  EXPECT_EQ(text(),
            "{\"device_name\":\"A_Device\",\"n\":1,\"k\":64,\"m\":5,\"count\":1,\"out_dtype\":\"bf16\",\"bias\":false}\n"
            "{\"device_name\":\"A_Device\",\"n\":1,\"k\":64,\"m\":9,\"count\":1,\"out_dtype\":\"fp16\",\"bias\":true}\n");
  ASSERT_TRUE(flush_untuned_log());
  a->add(5);
  a->add(5);
  ASSERT_TRUE(flush_untuned_log());
  const auto log = read_untuned_log(path);
  ASSERT_TRUE(log) << log.error().message;
  ASSERT_THAT(log->points, SizeIs(2));
  EXPECT_EQ(log->points[0].shape, shape(1));
  EXPECT_EQ(log->points[0].m, 5);
  EXPECT_EQ(log->points[0].count, 3U) << "lines of one point add up";
  EXPECT_EQ(log->points[1].shape.bias, true);
  EXPECT_THAT(log->notes, IsEmpty());
}

TEST_F(UntunedLogFile, IsNotMadeWithoutTheVariable) {
  const env::ScopedOverride unset(kVariable, std::nullopt);
  EXPECT_EQ(untuned_counter(shape(2)), nullptr);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(UntunedLogFile, ThatCannotBeOpenedIsSaidOnceAndCountsNothing) {
  const test::LogCapture log;
  const env::ScopedOverride missing(kVariable, directory.path() + "/no/such/place");
  EXPECT_EQ(untuned_counter(shape(3)), nullptr);
  EXPECT_EQ(untuned_counter(shape(3)), nullptr);
  EXPECT_EQ(log.warnings_with("no/such/place"), 1);
  const std::string fifo = directory.path() + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const env::ScopedOverride pipe(kVariable, fifo);
  EXPECT_EQ(untuned_counter(shape(3)), nullptr) << "a FIFO that nobody reads must not hang";
}

TEST_F(UntunedLogFile, ThatVanishesOrFillsUpKeepsTheCallsForTheNextTime) {
  const auto counter = untuned_counter(shape(4));
  ASSERT_NE(counter, nullptr);
  counter->add(8);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  const auto failed = flush_untuned_log();
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr(path));
  std::filesystem::remove(path);
  ASSERT_TRUE(flush_untuned_log());
  EXPECT_THAT(text(), HasSubstr("\"m\":8,\"count\":1"));
}

TEST_F(UntunedLogFile, GetsTheCallsOfAChildAtItsExitAndTheParentsOnce) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer allows a child of a process with threads no thread of its own";
#endif
  const auto counter = untuned_counter(shape(5));
  ASSERT_NE(counter, nullptr);
  counter->add(1);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto mine = untuned_counter(shape(5));
    mine->add(2);
    std::exit(mine == counter ? 0 : 3);  // As a program ends: destructors of statics run, the recorder's too.
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(flush_untuned_log());
  const auto log = read_untuned_log(path);
  ASSERT_TRUE(log) << log.error().message;
  ASSERT_THAT(log->points, SizeIs(2));
  EXPECT_EQ(log->points[0].count, 1U);
  EXPECT_EQ(log->points[1].m, 2);
  EXPECT_EQ(log->points[1].count, 1U);
}

TEST_F(UntunedLogFile, IsReadDespiteBrokenLinesWhichAreNoted) {
  write(
      "{\"device_name\": \"A\", \"n\": 8, \"k\": 16, \"m\": 4, \"count\": 2}\n"
      "\n"
      "{\"device_name\": \"A\", \"n\": 8, \"k\": 16, \"m\": 4, \"cou\n"
      "{\"device_name\": \"A\", \"n\": 8, \"k\": 16, \"m\": 4, \"count\": 5, \"more\": []}\r\n"
      "{\"device_name\": \"A\", \"n\": 8, \"k\": 16, \"m\"");
  const auto log = read_untuned_log(path);
  ASSERT_TRUE(log) << log.error().message;
  ASSERT_THAT(log->points, SizeIs(1));
  EXPECT_EQ(log->points[0].count, 7U);
  EXPECT_EQ(log->points[0].shape.out_dtype, "bf16");
  ASSERT_THAT(log->notes, SizeIs(1));
  EXPECT_THAT(log->notes[0], testing::AllOf(HasSubstr(path), HasSubstr("2 of 5 lines"), HasSubstr("line 3")));
}

TEST_F(UntunedLogFile, OfWhichNoLineCanBeReadIsAnErrorThatSaysWhatWasWanted) {
  for (const char* line :
       {"", "null", "[]", "{}", "{\"device_name\": 3, \"n\": 8, \"k\": 16, \"m\": 4, \"count\": 2}",
        "{\"device_name\": \"\", \"n\": 8, \"k\": 16, \"m\": 4, \"count\": 2}",
        "{\"device_name\": \"A\", \"n\": 0, \"k\": 16, \"m\": 4, \"count\": 2}",
        "{\"device_name\": \"A\", \"n\": 8, \"k\": -16, \"m\": 4, \"count\": 2}",
        "{\"device_name\": \"A\", \"n\": 8, \"k\": 16, \"m\": 4.5, \"count\": 2}",
        "{\"device_name\": \"A\", \"n\": 8, \"k\": 16, \"m\": 18446744073709551615, \"count\": 2}",
        "{\"device_name\": \"A\", \"n\": 8, \"k\": 16, \"m\": 4, \"count\": \"2\"}", "\xFF\xFE", "{{{{"}) {
    write(line);
    const auto log = read_untuned_log(path);
    ASSERT_FALSE(log) << line;
    EXPECT_EQ(log.error().code, ErrorCode::corrupt) << line;
    EXPECT_THAT(log.error().message, HasSubstr(path));
  }
  EXPECT_EQ(read_untuned_log(directory.path()).error().code, ErrorCode::io);
  EXPECT_EQ(read_untuned_log(path + ".not").error().code, ErrorCode::io);
}

}  // namespace
}  // namespace octile
