// SPDX-License-Identifier: Apache-2.0
#include "octile/core/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace octile {
namespace {

std::vector<std::string> g_seen;

void remember(LogLevel /*level*/, std::string_view message) { g_seen.emplace_back(message); }

class Log : public ::testing::Test {
 protected:
  void SetUp() override {
    g_seen.clear();
    previous_ = set_log_sink(remember);
  }
  void TearDown() override {
    set_log_sink(previous_);
    for (const char* name : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
      ::unsetenv(name);
    }
  }
  LogSink previous_ = nullptr;
};

TEST_F(Log, InfoIsSaidOnlyOnRankZeroOfADistributedRun) {
  for (const char* name : {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    g_seen.clear();
    ::setenv(name, "3", 1);
    log_info("from rank {}", 3);
    EXPECT_TRUE(g_seen.empty()) << name;
    log_warning("a warning from rank {}", 3);
    EXPECT_EQ(g_seen.size(), 1U) << name;
    ::setenv(name, "0", 1);
    log_info("from rank {}", 0);
    EXPECT_EQ(g_seen.back(), "from rank 0") << name;
    ::unsetenv(name);
  }
}

TEST_F(Log, ARankThatIsNoNumberDoesNotSilenceTheLog) {
  ::setenv("RANK", "none", 1);
  log_info("still said");
  EXPECT_EQ(g_seen.size(), 1U);
}

TEST_F(Log, OnceMeansOncePerKey) {
  log_once(LogLevel::warning, "log_test.a", "first");
  log_once(LogLevel::warning, "log_test.a", "second");
  log_once(LogLevel::warning, "log_test.b", "third");
  EXPECT_EQ(g_seen, (std::vector<std::string>{"first", "third"}));
}

// Counts how often a message with it is formatted.
struct Counted {
  int* formatted;
};

}  // namespace
}  // namespace octile

template <>
struct fmt::formatter<octile::Counted> {
  static constexpr auto parse(format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(const octile::Counted& value, Context& context) const {
    ++*value.formatted;
    return context.out();
  }
};

namespace octile {
namespace {

TEST(LogLevels, AMessageBelowTheLevelIsNotFormatted) {
  ASSERT_FALSE(is_logged(LogLevel::debug)) << "this test wants OCTILE_LOG_LEVEL unset, or info";
  ASSERT_TRUE(is_logged(LogLevel::error));
  int formatted = 0;
  log_debug("{}", Counted{&formatted});
  EXPECT_EQ(formatted, 0);
  const LogSink previous = set_log_sink([](LogLevel /*level*/, std::string_view /*message*/) {});
  EXPECT_TRUE(is_logged(LogLevel::debug));
  formatted = 0;
  log_debug("{}", Counted{&formatted});
  EXPECT_EQ(formatted, 1) << "a sink hears everything";
  ::setenv("RANK", "3", 1);
  EXPECT_FALSE(is_logged(LogLevel::info));
  EXPECT_TRUE(is_logged(LogLevel::warning));
  formatted = 0;
  log_info("{}", Counted{&formatted});
  EXPECT_EQ(formatted, 0) << "only rank 0 says it";
  log_warning("{}", Counted{&formatted});
  EXPECT_EQ(formatted, 1);
  ::unsetenv("RANK");
  set_log_sink(previous);
}

}  // namespace
}  // namespace octile
