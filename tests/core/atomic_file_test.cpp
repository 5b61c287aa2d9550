// SPDX-License-Identifier: Apache-2.0
// Atomic replacement and locks.
#include "octile/core/atomic_file.h"

#include "support/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>
#include <vector>

namespace octile {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::size_t files_in(const std::string& directory) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

TEST(AtomicFile, WritesANewFileAndMissingDirectoriesAndLeavesNothingElse) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("a/b/c.json");
  const auto wrote = write_file_atomically(path, "content");
  ASSERT_TRUE(wrote) << wrote.error().message;
  EXPECT_EQ(test::read_text(path), "content");
  EXPECT_EQ(files_in(directory.file("a/b")), 1U);
}

TEST(AtomicFile, AskingWhetherAPlaceCanBeWrittenLeavesNothingButDirectories) {
  const test::TemporaryDirectory directory;
  const auto writable = check_writable(directory.file("a/b/c.json"));
  EXPECT_TRUE(writable) << writable.error().message;
  EXPECT_EQ(files_in(directory.file("a/b")), 0U);
  const std::string old = directory.write("old.json", "old");
  EXPECT_TRUE(check_writable(old));
  EXPECT_EQ(test::read_text(old), "old");
  EXPECT_EQ(files_in(directory.path()), 2U);
}

TEST(AtomicFile, APlaceThatCannotBeWrittenIsKnownBeforehand) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.write("file", "");
  for (const std::string& path : {file + "/below", directory.path(), std::string("/proc/octile.json")}) {
    const auto writable = check_writable(path);
    ASSERT_FALSE(writable) << path;
    EXPECT_EQ(writable.error().code, ErrorCode::io);
    EXPECT_THAT(writable.error().message, HasSubstr(path == file + "/below" ? file : fs::path(path).parent_path().string()));
  }
}

TEST(AtomicFile, ReplacesTheContentAndKeepsThePermissions) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.write("c.json", "old and longer");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  ASSERT_TRUE(write_file_atomically(path, "new"));
  EXPECT_EQ(test::read_text(path), "new");
  struct stat status{};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0640U);
}

TEST(AtomicFile, ASymbolicLinkStaysAndItsTargetIsReplaced) {
  const test::TemporaryDirectory directory;
  const std::string target = directory.write("real/c.json", "old");
  const std::string link = directory.file("link.json");
  fs::create_symlink(target, link);
  ASSERT_TRUE(write_file_atomically(link, "new"));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(test::read_text(target), "new");
}

TEST(AtomicFile, ALinkWhoseTargetIsNotThereYetStaysAndItsTargetIsMade) {
  const test::TemporaryDirectory directory;
  const std::string target = directory.file("elsewhere/c.json");
  const std::string relative = directory.file("relative.json");
  fs::create_symlink("elsewhere/c.json", relative);
  const std::string chain = directory.file("chain.json");
  fs::create_symlink(relative, chain);
  for (const std::string& link : {relative, chain}) {
    ASSERT_TRUE(write_file_atomically(link, "new"));
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_EQ(test::read_text(target), "new");
    fs::remove_all(directory.file("elsewhere"));
  }
}

TEST(AtomicFile, ALinkThatLeadsToItselfIsAnErrorAndStays) {
  const test::TemporaryDirectory directory;
  const std::string loop = directory.file("loop.json");
  fs::create_symlink("loop.json", loop);
  for (const auto& refused : {write_file_atomically(loop, "new"), check_writable(loop)}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::io);
    EXPECT_THAT(refused.error().message, HasSubstr(loop));
  }
  EXPECT_TRUE(fs::is_symlink(loop));
}

TEST(AtomicFile, AFailureNamesPathAndReasonAndLeavesNoTemporaryFile) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("folder");
  fs::create_directory(path);
  const auto onto_directory = write_file_atomically(path, "x");
  ASSERT_FALSE(onto_directory);
  EXPECT_THAT(onto_directory.error().message, HasSubstr(path));
  const auto below_file = write_file_atomically(directory.write("plain", "p") + "/c.json", "x");
  ASSERT_FALSE(below_file);
  EXPECT_EQ(below_file.error().code, ErrorCode::io);
  EXPECT_EQ(files_in(directory.path()), 2U);
}

TEST(AtomicFile, AReaderNeverSeesHalfAFile) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("c.json");
  const std::string a(100'000, 'a');
  const std::string b(50'000, 'b');
  ASSERT_TRUE(write_file_atomically(path, a));
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int i = 0; i < 40; ++i) {
      EXPECT_TRUE(write_file_atomically(path, i % 2 == 0 ? b : a));
    }
    done = true;
  });
  while (!done) {
    const std::string seen = test::read_text(path);
    EXPECT_TRUE(seen == a || seen == b) << seen.size() << " bytes";
  }
  writer.join();
}

TEST(FileLock, ExcludesAnotherHolderUntilItIsReleased) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("x/.lock");
  {
    const auto held = FileLock::acquire(path);
    ASSERT_TRUE(held) << held.error().message;
    const auto second = FileLock::acquire(path, std::chrono::milliseconds(20));
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message, HasSubstr(path));
  }
  EXPECT_TRUE(FileLock::acquire(path, std::chrono::milliseconds(0)));
}

TEST(FileLock, MovesWithItsHolder) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file(".lock");
  auto first = FileLock::acquire(path);
  ASSERT_TRUE(first);
  FileLock moved = std::move(*first);
  EXPECT_FALSE(FileLock::acquire(path, std::chrono::milliseconds(0)));
  {
    const FileLock gone = std::move(moved);
  }
  EXPECT_TRUE(FileLock::acquire(path, std::chrono::milliseconds(0)));
}

TEST(FileLock, IsReleasedWhenItsProcessIsKilled) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file(".lock");
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto held = FileLock::acquire(path);
    const char byte = held ? 'y' : 'n';
    const bool told = ::write(ready[1], &byte, 1) == 1;
    ::pause();
    ::_exit(told ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_FALSE(FileLock::acquire(path, std::chrono::milliseconds(0)));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(FileLock::acquire(path, std::chrono::milliseconds(1000)));
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace octile
