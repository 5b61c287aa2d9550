// SPDX-License-Identifier: Apache-2.0
// The cubin cache: every way a file can be wrong, and many processes at once.
#include "octile/kernels/cuda/cubin_cache.h"

#include "octile/core/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <filesystem>
#include <fstream>
#include <vector>

namespace octile::cuda {
namespace fs = std::filesystem;
namespace {

using testing::HasSubstr;

class CubinCache : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "octile_cache_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string file() const { return entry_path(directory_, key_); }
  void overwrite(const std::string& bytes) const { std::ofstream(file(), std::ios::binary) << bytes; }

  std::string directory_;
  CubinKey key_ = make_cubin_key("source a\narch sm_90a\n");
  CubinEntry entry_ = {std::string("\x7f"
                                   "ELF\0machine code",
                                   17),
                       "ptxas info: 40 registers"};
};

TEST_F(CubinCache, WhatWasWrittenComesBack) {
  EXPECT_FALSE(read_entry(directory_, key_)->has_value()) << "nothing is there yet";
  ASSERT_TRUE(write_entry(directory_, key_, entry_));
  const auto read = read_entry(directory_, key_);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_TRUE(read->has_value());
  EXPECT_EQ((*read)->cubin, entry_.cubin);
  EXPECT_EQ((*read)->log, entry_.log);
}

TEST_F(CubinCache, AMissingDirectoryIsMade) {
  const std::string deep = directory_ + "/a/b/c";
  EXPECT_FALSE(read_entry(deep, key_)->has_value());
  ASSERT_TRUE(write_entry(deep, key_, entry_));
  EXPECT_TRUE(read_entry(deep, key_)->has_value());
}

TEST_F(CubinCache, AChangeOfAnySingleByteIsDetected) {
  const std::string good = encode_entry(key_, entry_);
  ASSERT_TRUE(decode_entry(good, key_));
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xFF}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      const auto decoded = decode_entry(bad, key_);
      ASSERT_FALSE(decoded) << "byte " << at << " of " << good.size() << " changed by " << flip;
      EXPECT_EQ(decoded.error().code, ErrorCode::corrupt);
    }
  }
}

TEST_F(CubinCache, EveryTruncationAndEveryExtensionIsDetected) {
  const std::string good = encode_entry(key_, entry_);
  for (std::size_t length = 0; length < good.size(); ++length) {
    ASSERT_FALSE(decode_entry(std::string_view(good).substr(0, length), key_)) << length;
  }
  EXPECT_FALSE(decode_entry(good + '\0', key_));
  EXPECT_FALSE(decode_entry(good + good, key_));
}

TEST_F(CubinCache, LengthsThatDoNotFitAreDetectedEvenWithARightChecksum) {
  // A file whose checksum fits but whose first block claims more bytes than there are.
  const std::string good = encode_entry(key_, entry_);
  std::string content = good.substr(0, good.size() - 16);
  content[8] = '\xFF';
  content[15] = '\xFF';
  const std::string digits = digest_of(content);
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    content.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  const auto decoded = decode_entry(content, key_);
  ASSERT_FALSE(decoded);
  EXPECT_THAT(decoded.error().message, HasSubstr("lengths"));
}

TEST_F(CubinCache, AnEntryOfAnotherKeyUnderThisNameIsRefused) {
  const CubinKey other = make_cubin_key("source b\narch sm_90a\n");
  EXPECT_NE(other.digest, key_.digest);
  overwrite(encode_entry(other, entry_));
  const auto read = read_entry(directory_, key_);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::corrupt);
  EXPECT_THAT(read.error().message, HasSubstr(file()));
}

TEST_F(CubinCache, AnEntryWithoutMachineCodeIsRefused) { EXPECT_FALSE(decode_entry(encode_entry(key_, {"", "log"}), key_)); }

TEST_F(CubinCache, ABadFileIsReplacedByTheNextWrite) {
  overwrite("rubbish");
  EXPECT_FALSE(read_entry(directory_, key_));
  ASSERT_TRUE(write_entry(directory_, key_, entry_));
  EXPECT_TRUE(read_entry(directory_, key_)->has_value());
  // Nothing but the entry is left in the directory: no temporary files.
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST_F(CubinCache, ADirectoryThatIsAFileIsAnError) {
  const std::string blocked = directory_ + "/file";
  std::ofstream(blocked) << "x";
  const auto written = write_entry(blocked, key_, entry_);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::io);
}

TEST_F(CubinCache, AFullDiskIsAnErrorAndLeavesNoHalfOfAnEntry) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // A limit on file sizes fails writes in the middle of a file, as a full disk does, without being root.
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {100, 100};
    const bool limited = setrlimit(RLIMIT_FSIZE, &limit) == 0;
    const bool failed = limited && !write_entry(directory_, key_, {std::string(5000, 'c'), "log"});
    _exit(failed ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(read_entry(directory_, key_)->has_value());
  EXPECT_TRUE(fs::is_empty(directory_)) << "the temporary file was removed";
}

TEST_F(CubinCache, ManyProcessesWriteAndReadOneEntryAndSeeOnlyWholeOnes) {
  constexpr int kProcesses = 6;
  constexpr int kRounds = 40;
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      // Each process' machine code is one letter, repeated; a mixture or a part is what must not be seen.
      const CubinEntry own = {std::string(static_cast<std::size_t>(2000 + 1000 * process), static_cast<char>('a' + process)),
                              ""};
      for (int round = 0; round < kRounds; ++round) {
        if (!write_entry(directory_, key_, own)) {
          _exit(1);
        }
        const auto read = read_entry(directory_, key_);
        if (!read || !read->has_value()) {
          _exit(2);
        }
        const std::string& cubin = (*read)->cubin;
        const std::size_t wanted = 2000 + 1000 * static_cast<std::size_t>(cubin[0] - 'a');
        if (cubin != std::string(wanted, cubin[0])) {
          _exit(3);
        }
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 0) << "1: write failed, 2: read failed, 3: half of an entry";
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 1);
}

TEST(CubinCacheDirectory, TheOwnVariableComesFirst) {
  const env::ScopedOverride own("OCTILE_CACHE_DIR", "/somewhere");
  EXPECT_EQ(cubin_cache_directory(), "/somewhere/cubin");
}

TEST(CubinCacheDirectory, DigestsAreThirtyTwoHexadecimalDigits) {
  // XXH3-128 of nothing, as its specification gives it.
  EXPECT_EQ(digest_of(""), "99aa06d3014798d86001c324468d497f");
}

}  // namespace
}  // namespace octile::cuda
