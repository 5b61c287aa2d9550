// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint, and that none outside of its directory is opened.
#include "octile/model/checkpoint_files.h"

#include "support/tiny_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>

namespace octile {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string problem_of(const std::string& directory) {
  const auto files = CheckpointFiles::open(directory);
  return files ? "opened" : files.error().message;
}

void expect_all_there(const CheckpointFiles& files, const test::TinyCheckpoint& checkpoint) {
  for (const test::TensorToWrite& tensor : checkpoint.tensors) {
    const FoundTensor found = files.find(tensor.name);
    ASSERT_TRUE(found) << tensor.name;
    std::string bytes(static_cast<std::size_t>(found.tensor->bytes), '\0');
    ASSERT_TRUE(found.file->read(*found.tensor, 0, std::as_writable_bytes(std::span(bytes))));
    EXPECT_EQ(bytes, tensor.bytes) << tensor.name;
  }
  EXPECT_FALSE(files.find("model.layers.0"));
}

TEST(CheckpointFiles, OneFileHoldsEveryTensor) {
  const test::TemporaryDirectory directory;
  const test::TinyCheckpoint checkpoint = test::tiny_checkpoint();
  checkpoint.write(directory);
  auto opened = CheckpointFiles::open(directory.path());
  ASSERT_TRUE(opened) << opened.error().message;
  // What is found stays valid when the object moves.
  const CheckpointFiles files = *std::move(opened);
  expect_all_there(files, checkpoint);
  EXPECT_EQ(files.config(), checkpoint.config);
  EXPECT_EQ(files.hf_quant_config(), nullptr);
}

TEST(CheckpointFiles, ShardsAreFoundByTheirIndex) {
  const test::TemporaryDirectory directory;
  const test::TinyCheckpoint checkpoint = test::tiny_checkpoint();
  checkpoint.write(directory, 3);
  directory.write("hf_quant_config.json", R"({"quantization": {}})");
  const auto files = CheckpointFiles::open(directory.path());
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->files().size(), 3U);
  expect_all_there(*files, checkpoint);
  ASSERT_NE(files->hf_quant_config(), nullptr);
}

TEST(CheckpointFiles, WhatIsMissingIsNamed) {
  const test::TemporaryDirectory directory;
  EXPECT_THAT(problem_of(directory.file("missing")), HasSubstr("which is no directory"));
  EXPECT_THAT(problem_of(directory.path()), AllOf(HasSubstr("config.json"), HasSubstr("No such file")));
  directory.write("config.json", "{}");
  EXPECT_THAT(problem_of(directory.path()), HasSubstr("holds neither model.safetensors nor model.safetensors.index.json"));
  EXPECT_THAT(problem_of(directory.file("config.json")), HasSubstr("which is no directory"));
  EXPECT_THAT(problem_of(""), HasSubstr("which is no directory"));
  EXPECT_THAT(problem_of(directory.path() + '\0' + "x"), HasSubstr("which is no directory"));
}

TEST(CheckpointFiles, AnIndexThatIsBrokenIsRefusedWithTheReason) {
  const test::TemporaryDirectory directory;
  test::tiny_checkpoint().write(directory, 1);
  const std::pair<const char*, const char*> table[] = {
      {"", "the file is empty"},
      {"[]", "\"weight_map\": wanted an object of tensors and files, got nothing"},
      {"{}", "got nothing"},
      {R"({"weight_map": []})", "got an array of 0 values"},
      {R"({"weight_map": {"a": 1}})", "\"a\": wanted the name of a file, got the number 1"},
      {R"({"weight_map": {"a": null}})", "\"a\": wanted the name of a file, got null"},
      {R"({"weight_map": {"a": "model-0.safetensors", "a": "model-0.safetensors"}})", "stands twice"},
      {R"({"weight_map": {"a": "model-0.safetensors"}})", "wanted tensor \"a\" in"},
      {R"({"weight_map": {"a": "model-9.safetensors"}})", "No such file"},
      {R"({"weight_map": {"a": "config.json"}})", "is this a safetensors file?"},
  };
  for (const auto& [index, message] : table) {
    SCOPED_TRACE(index);
    directory.write("model.safetensors.index.json", index);
    EXPECT_THAT(problem_of(directory.path()), AllOf(HasSubstr(directory.path()), HasSubstr(message)));
  }
}

TEST(CheckpointFiles, AnIndexCannotNameAFileElsewhere) {
  const test::TemporaryDirectory directory;
  directory.write("checkpoint/config.json", "{}");
  directory.write("outside.safetensors", test::safetensors_file({{"a", "U8", {1}, "x"}}));
  directory.write("checkpoint/inside/a.safetensors", test::safetensors_file({{"a", "U8", {1}, "x"}}));
  const std::string checkpoint = directory.file("checkpoint");
  const auto with_shard = [&](const std::string& name) {
    directory.write("checkpoint/model.safetensors.index.json", nlohmann::ordered_json{{"weight_map", {{"a", name}}}}.dump());
    return problem_of(checkpoint);
  };
  EXPECT_EQ(with_shard("inside/a.safetensors"), "opened");
  const std::string bad[] = {"../outside.safetensors",
                             "inside/../../outside.safetensors",
                             "inside/../inside/a.safetensors",
                             directory.file("outside.safetensors"),
                             "/etc/passwd",
                             "..",
                             "",
                             std::string("inside/a.safetensors\0.x", 23)};
  for (const std::string& name : bad) {
    SCOPED_TRACE(name);
    EXPECT_THAT(with_shard(name), AllOf(HasSubstr("index.json"), HasSubstr("wanted the name of a file in this directory")));
  }
  EXPECT_THAT(with_shard("."), HasSubstr("outside of the checkpoint's directory"));
  EXPECT_THAT(with_shard("inside"), HasSubstr("it is a directory"));
}

TEST(CheckpointFiles, ASymbolicLinkToElsewhereIsRefused) {
  const test::TemporaryDirectory directory;
  directory.write("checkpoint/config.json", "{}");
  const std::string content = test::safetensors_file({{"a", "U8", {1}, "x"}});
  directory.write("elsewhere/model.safetensors", content);
  directory.write("checkpoint/data/real.safetensors", content);
  const fs::path link = directory.file("checkpoint/model.safetensors");
  fs::create_symlink("data/real.safetensors", link);
  EXPECT_EQ(problem_of(directory.file("checkpoint")), "opened");
  for (const fs::path& target : {fs::path("../elsewhere/model.safetensors"), fs::path("/etc/passwd"), fs::path("..")}) {
    fs::remove(link);
    fs::create_symlink(target, link);
    EXPECT_THAT(problem_of(directory.file("checkpoint")), HasSubstr("outside of the checkpoint's directory")) << target;
  }
  // A folder that links elsewhere is no way out either.
  fs::remove(link);
  fs::create_directory_symlink("../elsewhere", directory.file("checkpoint/folder"));
  directory.write("checkpoint/model.safetensors.index.json", R"({"weight_map": {"a": "folder/model.safetensors"}})");
  EXPECT_THAT(problem_of(directory.file("checkpoint")), HasSubstr("outside of the checkpoint's directory"));
  fs::create_symlink("nowhere", link);
  EXPECT_THAT(problem_of(directory.file("checkpoint")), HasSubstr("No such file"));
  fs::remove(link);
  fs::create_symlink("model.safetensors", link);
  EXPECT_THAT(problem_of(directory.file("checkpoint")), HasSubstr("cannot open"));  // A circle.
}

TEST(CheckpointFiles, TheDirectoryItselfMayBeALink) {
  const test::TemporaryDirectory directory;
  test::tiny_checkpoint().write(directory);
  const test::TemporaryDirectory other;
  fs::create_directory_symlink(directory.path(), other.file("link"));
  EXPECT_EQ(problem_of(other.file("link")), "opened");
  EXPECT_EQ(problem_of(other.file("link") + "/"), "opened");
}

// .../models--ORG--NAME/snapshots/REVISION/FILE is a link to ../../blobs/HASH.
TEST(CheckpointFiles, TheCacheOfTheHubIsRead) {
  const test::TemporaryDirectory directory;
  directory.write("models--a--b/blobs/0123", "{}");
  directory.write("models--a--b/blobs/4567", test::safetensors_file({{"a", "U8", {1}, "x"}}));
  directory.write("models--a--b/refs/main", test::safetensors_file({{"a", "U8", {1}, "x"}}));
  const std::string snapshot = directory.file("models--a--b/snapshots/abcdef");
  fs::create_directories(snapshot);
  fs::create_symlink("../../blobs/0123", fs::path(snapshot) / "config.json");
  fs::create_symlink("../../blobs/4567", fs::path(snapshot) / "model.safetensors");
  EXPECT_EQ(problem_of(snapshot), "opened");
  fs::remove(fs::path(snapshot) / "model.safetensors");
  fs::create_symlink("../../refs/main", fs::path(snapshot) / "model.safetensors");
  EXPECT_THAT(problem_of(snapshot), HasSubstr("outside of the checkpoint's directory"));
}

TEST(CheckpointFiles, FilesThatAreNoneAreRefusedWithoutWaiting) {
  const test::TemporaryDirectory directory;
  directory.write("config.json", "{}");
  ASSERT_EQ(::mkfifo(directory.file("model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(problem_of(directory.path()), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace octile
