// SPDX-License-Identifier: Apache-2.0
// Reading a file at places, whole or not at all.
#include "octile/core/regular_file.h"

#include "support/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace octile {
namespace {

using ::testing::HasSubstr;

TEST(RegularFile, ReadsAtAnyPlace) {
  const test::TemporaryDirectory directory;
  const auto file = RegularFile::open(directory.write("digits", "0123456789"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->size(), 10);
  std::string text(3, ' ');
  ASSERT_TRUE(file->read(7, std::as_writable_bytes(std::span(text))));
  EXPECT_EQ(text, "789");
  ASSERT_TRUE(file->read(0, std::as_writable_bytes(std::span(text))));
  EXPECT_EQ(text, "012");
}

TEST(RegularFile, AReadBeyondTheEndIsAnErrorThatSaysWhereItEnds) {
  const test::TemporaryDirectory directory;
  const auto file = RegularFile::open(directory.write("digits", "0123456789"));
  ASSERT_TRUE(file) << file.error().message;
  std::string text(3, ' ');
  const auto read = file->read(8, std::as_writable_bytes(std::span(text)));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::corrupt);
  EXPECT_THAT(read.error().message, HasSubstr("wanted bytes 8 to 11, but the file ends at byte 10"));
  const auto some = file->read_some(8, std::as_writable_bytes(std::span(text)));
  ASSERT_TRUE(some);
  EXPECT_EQ(*some, 2);
}

TEST(RegularFile, MovesWithItsDescriptor) {
  const test::TemporaryDirectory directory;
  auto first = RegularFile::open(directory.write("a", "first"));
  auto second = RegularFile::open(directory.write("b", "second"));
  ASSERT_TRUE(first && second);
  RegularFile moved = *std::move(first);
  moved = *std::move(second);
  std::string text(6, ' ');
  ASSERT_TRUE(moved.read(0, std::as_writable_bytes(std::span(text))));
  EXPECT_EQ(text, "second");
  EXPECT_THAT(moved.path(), HasSubstr("/b"));
  EXPECT_TRUE(moved.check_unchanged());
}

TEST(RegularFile, AChangeAfterOpeningIsNoticed) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.write("digits", "0123456789");
  const auto file = RegularFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  std::filesystem::resize_file(path, 4);
  const auto changed = file->check_unchanged();
  ASSERT_FALSE(changed);
  EXPECT_THAT(changed.error().message, HasSubstr("it had 10 bytes, now it has 4"));
}

}  // namespace
}  // namespace octile
