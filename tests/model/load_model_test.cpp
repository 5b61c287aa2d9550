// SPDX-License-Identifier: Apache-2.0
// config.json files as they are found, and as they are broken: a clear error, quickly, in bounded memory.
#include "octile/model/model.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace octile {
namespace {

constexpr const char* kConfig = R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288, "max_window_layers": 36,
  "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
  "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true, "vocab_size": 151936
})";

class LoadModel : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "octile-model-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& content, const std::string& name = "config.json") {
    const std::string path = (directory_ / name).string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  // Loading must fail, name the file, and hold `message`.
  void expect_error(const std::string& path, const std::string& message) {
    const auto model = load_model(path);
    ASSERT_FALSE(model) << "loaded " << path;
    EXPECT_THAT(model.error().message, testing::HasSubstr(path));
    EXPECT_THAT(model.error().message, testing::HasSubstr(message));
    EXPECT_LT(model.error().message.size(), 1000U);
  }

  std::filesystem::path directory_;
};

long peak_memory_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST_F(LoadModel, ReadsAConfigAsPublished) {
  const auto model = load_model(write(kConfig), 2);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->source, "qwen3");
  EXPECT_EQ(model->tp, 2);
  ASSERT_EQ(model->linears.size(), 4U);
  EXPECT_EQ(model->linears[0].n, 3072);
  EXPECT_EQ(model->linears[3].k, 6144);
}

TEST_F(LoadModel, TakesTheDirectoryOfACheckpoint) {
  write(kConfig);
  const auto model = load_model(directory_.string());
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->linears[2].n, 24576);
}

TEST_F(LoadModel, TakesAConfigOfAnyName) { EXPECT_TRUE(load_model(write(kConfig, "my config"))); }

TEST_F(LoadModel, AMissingFileIsNamed) { expect_error((directory_ / "missing.json").string(), "No such file"); }

TEST_F(LoadModel, ADirectoryWithoutAConfigIsNamed) {
  const auto model = load_model(directory_.string());
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, testing::HasSubstr((directory_ / "config.json").string()));
}

TEST_F(LoadModel, WhatDoesNotDivideIsSaidOfTheFile) {
  const auto model = load_model(write(kConfig), 5);
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, testing::HasSubstr("32 attention heads do not divide by 5 ranks"));
}

TEST_F(LoadModel, AnEmptyFileIsAnError) { expect_error(write(""), "the file is empty"); }

TEST_F(LoadModel, EveryTruncationIsAnError) {
  const std::string whole = kConfig;
  for (std::size_t length = 0; length + 1 < whole.size(); length += 7) {
    EXPECT_FALSE(load_model(write(whole.substr(0, length)))) << length;
  }
}

TEST_F(LoadModel, BinaryIsAnError) {
  std::string binary =
      "\x7F"
      "ELF";
  for (int i = 0; i < 4096; ++i) {
    binary += static_cast<char>(i * 37);
  }
  expect_error(write(binary), "binary data");
  expect_error(write(std::string(4096, '\0')), "a zero byte");
}

TEST_F(LoadModel, Utf16IsAnError) {
  std::string utf16 = "\xFF\xFE";
  for (const char* c = kConfig; *c != '\0'; ++c) {
    utf16 += *c;
    utf16 += '\0';
  }
  expect_error(write(utf16), "UTF-16");
  expect_error(write(utf16.substr(2)), "UTF-16");
}

TEST_F(LoadModel, ADuplicateKeyIsAnError) {
  std::string twice = kConfig;
  twice.insert(1, "\"hidden_size\": 1024,");
  expect_error(write(twice), "hidden_size");
}

TEST_F(LoadModel, DeepNestingIsAnErrorAndNoStackOverflow) {
  expect_error(write(std::string(1000000, '[')), "nested deeper than 32");
  std::string objects;
  for (int i = 0; i < 200000; ++i) {
    objects += "{\"text_config\":";
  }
  expect_error(write(objects), "nested deeper than 32");
}

TEST_F(LoadModel, AHugeFileIsRefusedUnread) {
  const std::string path = write("{");
  // Sparse: 200 MB of zeros after the brace.
  std::filesystem::resize_file(path, std::uintmax_t{200} << 20);
  const long before = peak_memory_kib();
  expect_error(path, "209715200 bytes");
  EXPECT_LT(peak_memory_kib() - before, 64 * 1024) << "KiB more than before";
}

TEST_F(LoadModel, AFifoDoesNotHang) {
  const std::string path = (directory_ / "config.json").string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_error(path, "not a regular file");
}

}  // namespace
}  // namespace octile
