// SPDX-License-Identifier: Apache-2.0
// The limit of the cache: what was used least recently goes first, and nothing that is not the cache's.
#include "octile/kernels/cuda/cubin_cache_limit.h"

#include "octile/core/env.h"
#include "octile/kernels/cuda/cubin_cache.h"
#include "support/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace octile::cuda {
namespace {

namespace fs = std::filesystem;

class CacheLimit : public testing::Test {
 protected:
  // An entry of `bytes` bytes of machine code that was last used so many seconds ago. Its path.
  std::string add(const std::string& name, std::size_t bytes, std::int64_t seconds_ago) const {
    const CubinKey key = make_cubin_key(name);
    EXPECT_TRUE(write_entry(directory_.path(), key, {std::string(bytes, 'c'), ""}));
    const std::string path = entry_path(directory_.path(), key);
    set_used(path, seconds_ago);
    return path;
  }
  static void set_used(const std::string& path, std::int64_t seconds_ago) {
    const timespec then{std::time(nullptr) - seconds_ago, 0};
    const timespec times[] = {then, then};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0) << path;
  }

  test::TemporaryDirectory directory_;
};

TEST_F(CacheLimit, ADirectoryThatIsNotThereHoldsNothing) {
  const auto use = cache_use(directory_.file("none"));
  ASSERT_TRUE(use) << use.error().message;
  EXPECT_EQ(use->entries, 0);
  EXPECT_EQ(use->bytes, 0);
  const auto removed = trim_cache(directory_.file("none"), 0);
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_EQ(removed->entries, 0);
}

TEST_F(CacheLimit, WhatWasUsedLeastRecentlyGoesFirst) {
  const std::string oldest = add("a", 1000, 3000);
  const std::string used_since = add("b", 1000, 2000);
  const std::string newest = add("c", 1000, 1000);
  note_use(oldest);
  const auto before = cache_use(directory_.path());
  ASSERT_TRUE(before);
  EXPECT_EQ(before->entries, 3);
  EXPECT_GT(before->bytes, 3000);
  const auto removed = trim_cache(directory_.path(), before->bytes - 1);
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_EQ(removed->entries, 1);
  EXPECT_TRUE(fs::exists(oldest)) << "it was used just now";
  EXPECT_FALSE(fs::exists(used_since));
  EXPECT_TRUE(fs::exists(newest));
  EXPECT_EQ(cache_use(directory_.path())->bytes, before->bytes - removed->bytes);
}

TEST_F(CacheLimit, WithinTheLimitNothingGoes) {
  add("a", 1000, 3000);
  const auto removed = trim_cache(directory_.path(), 1 << 20);
  ASSERT_TRUE(removed);
  EXPECT_EQ(removed->entries, 0);
  EXPECT_EQ(cache_use(directory_.path())->entries, 1);
}

TEST_F(CacheLimit, AnEntryOfTheFutureIsBroughtBackByItsUse) {
  const std::string path = add("a", 10, -100'000);
  note_use(path);
  struct stat status{};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_LE(status.st_mtim.tv_sec, std::time(nullptr) + 1);
}

TEST_F(CacheLimit, NothingOfOthersIsRemoved) {
  const std::string note = directory_.write("README", "mine");
  const std::string almost = directory_.write("0123.cubin", "mine");
  const std::string folder = directory_.write("0123456789abcdef0123456789abcdef.cubin/inside", "mine");
  const std::string link = directory_.file("00000000000000000000000000000000.cubin");
  fs::create_symlink(note, link);
  const auto removed = trim_cache(directory_.path(), 0);
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_EQ(removed->entries, 0);
  for (const std::string& path : {note, almost, folder, link}) {
    EXPECT_TRUE(fs::exists(path)) << path;
  }
}

TEST_F(CacheLimit, WhatAKilledWriterLeftGoesAfterAnHour) {
  const std::string fresh = directory_.write(".0123.cubin.1.0.tmp", "half");
  const std::string old = directory_.write(".0123.cubin.2.0.tmp", "half");
  set_used(old, 7200);
  ASSERT_TRUE(trim_cache(directory_.path(), 1 << 20));
  EXPECT_TRUE(fs::exists(fresh)) << "it may be being written";
  EXPECT_FALSE(fs::exists(old));
}

TEST_F(CacheLimit, TheVariableIsInMegabytesAndZeroMeansNone) {
  const env::ScopedOverride two("OCTILE_CACHE_LIMIT_MB", "2");
  EXPECT_EQ(*cache_limit_bytes(), 2'000'000);
  const env::ScopedOverride none("OCTILE_CACHE_LIMIT_MB", "0");
  EXPECT_EQ(*cache_limit_bytes(), 0);
  const env::ScopedOverride wrong("OCTILE_CACHE_LIMIT_MB", "much");
  EXPECT_FALSE(cache_limit_bytes());
}

TEST_F(CacheLimit, EntriesAndTheirDirectoryAreTheUsersAlone) {
  const CubinKey key = make_cubin_key("private");
  const std::string directory = directory_.file("made/cubin");
  const mode_t before = ::umask(0);
  const auto written = write_entry(directory, key, {"code", ""});
  ::umask(before);
  ASSERT_TRUE(written) << written.error().message;
  struct stat status{};
  ASSERT_EQ(::stat(directory.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700U);
  ASSERT_EQ(::stat(entry_path(directory, key).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
}

TEST_F(CacheLimit, ProcessesThatTrimWriteAndReadAtOnceSeeOnlyWholeEntries) {
  constexpr int kProcesses = 6;
  constexpr int kRounds = 60;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool good = true;
      for (int round = 0; round < kRounds && good; ++round) {
        const CubinKey key = make_cubin_key("entry " + std::to_string((process + round) % 7));
        good = write_entry(directory_.path(), key, {std::string(3000, 'c'), "log"}).has_value() &&
               trim_cache(directory_.path(), 8000).has_value();
        const auto read = read_entry(directory_.path(), key);
        good = good && read && (!read->has_value() || (*read)->cubin == std::string(3000, 'c'));
      }
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  ASSERT_TRUE(trim_cache(directory_.path(), 8000));
  EXPECT_LE(cache_use(directory_.path())->bytes, 8000);
}

}  // namespace
}  // namespace octile::cuda
