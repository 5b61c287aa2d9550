// SPDX-License-Identifier: Apache-2.0
// Compiling ahead for a device that is not here, and serving what was exported.
#include "octile/kernels/cuda/warmup.h"

#include "octile/core/env.h"
#include "octile/kernels/cuda/ada_mma_family.h"
#include "octile/kernels/cuda/cublaslt_family.h"
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/cuda/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp

#include <algorithm>
#include <filesystem>
#include <optional>

namespace octile::cuda {
namespace fs = std::filesystem;
namespace {

using testing::HasSubstr;

class Warmup : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto api = nvrtc(); !api) {
      GTEST_SKIP() << api.error().message;
    }
    std::string pattern = (fs::temp_directory_path() / "octile_warmup_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    cache_.emplace("OCTILE_CACHE_DIR", directory_ + "/cache");
    device_.id = "cuda:0";
    device_.name = "NVIDIA_H200";
    device_.kind = DeviceKind::cuda;
    device_.arch = "sm_90";
    device_.sm_count = 132;
    device_.llc_bytes = 62914560;
    device_.memory_bytes = 150109880320;
    device_.shared_memory_bytes = 232448;
  }
  void TearDown() override { fs::remove_all(directory_); }

  WarmupItem item(const KernelFamily& family) const {
    WarmupItem result;
    result.family = &family;
    result.problem.n = 4096;
    result.problem.k = 4096;
    result.config = family.heuristic(device_, result.problem, 16);
    return result;
  }

  std::string directory_;
  std::optional<env::ScopedOverride> cache_;
  DeviceInfo device_;
};

TEST_F(Warmup, CompilesOnceWhatTheItemsShare) {
  const std::vector<WarmupItem> items = {item(ada_mma_family()), item(cublaslt_family()), item(ada_mma_family())};
  const WarmupResult first = warm_up(device_, items, {});
  ASSERT_TRUE(first.failures.empty()) << first.failures.front().message;
  EXPECT_GE(first.kernels, 4) << "the quantiser's three and a product";
  EXPECT_EQ(first.compiled, first.kernels);
  EXPECT_EQ(first.exported, 0);
  const WarmupResult second = warm_up(device_, items, {});
  EXPECT_EQ(second.kernels, first.kernels);
  EXPECT_EQ(second.compiled, 0);
  EXPECT_EQ(first.cached, 0);
  EXPECT_EQ(second.cached, second.kernels);
}

TEST_F(Warmup, SaysHowManyItemsHaveAllTheirKernels) {
  WarmupItem illegal = item(ada_mma_family());
  illegal.config.set("BLOCK_SIZE_K", 48);
  WarmupItem other = item(ada_mma_family());
  other.problem.out_dtype = DType::fp16;
  const std::vector<WarmupItem> items = {illegal, item(ada_mma_family()), item(ada_mma_family()), other};
  for (const bool trusts_cache : {false, true}) {
    std::vector<std::size_t> heard;
    WarmupOptions options;
    options.trusts_cache = trusts_cache;
    options.progress = [&](std::size_t count) { heard.push_back(count); };
    const WarmupResult result = warm_up(device_, items, options);
    EXPECT_EQ(result.compiled, trusts_cache ? 0 : result.kernels);
    ASSERT_FALSE(heard.empty());
    EXPECT_EQ(heard.back(), items.size());
    EXPECT_TRUE(std::ranges::is_sorted(heard));
    EXPECT_EQ(heard.front(), trusts_cache ? items.size() : 1U) << "one that needs nothing is through from the start";
  }
}

TEST_F(Warmup, LooksIntoTheCacheUnlessItIsTrusted) {
  const std::vector<WarmupItem> items = {item(ada_mma_family())};
  const WarmupResult first = warm_up(device_, items, {});
  ASSERT_TRUE(first.failures.empty()) << first.failures.front().message;
  for (const auto& entry : fs::recursive_directory_iterator(directory_ + "/cache")) {
    if (entry.path().extension() == ".cubin") {
      fs::resize_file(entry.path(), entry.file_size() / 2);
    }
  }
  WarmupOptions trusting;
  trusting.trusts_cache = true;
  const WarmupResult trusted = warm_up(device_, items, trusting);
  EXPECT_EQ(trusted.cached, first.kernels);
  EXPECT_EQ(trusted.kernels, first.kernels);
  EXPECT_EQ(warm_up(device_, items, {}).compiled, first.kernels) << "broken entries are compiled anew";
}

TEST_F(Warmup, EveryFamilyOfTheBackendIsRecordedWithoutADriver) {
  const env::ScopedOverride cutlass_too("OCTILE_CUTLASS_ON_ANY_GPU", "on");
  for (const KernelFamily* family : cuda_backend().families()) {
    for (const bool bias : {false, true}) {
      SCOPED_TRACE(std::string(family->name()) + (bias ? " with a bias" : ""));
      WarmupItem wanted = item(*family);
      wanted.problem.bias = bias;
      const std::vector<WarmupItem> items = {wanted};
      const WarmupResult result = warm_up(device_, items, {});
      ASSERT_TRUE(result.failures.empty()) << result.failures.front().message;
      EXPECT_GE(result.kernels, 3);
    }
  }
}

TEST_F(Warmup, ExportsOneFileAKernelThatServeWithoutTheCache) {
  const std::vector<WarmupItem> items = {item(ada_mma_family())};
  const std::string exported = directory_ + "/exported";
  const WarmupResult result = warm_up(device_, items, {.export_directory = exported});
  ASSERT_TRUE(result.failures.empty()) << result.failures.front().message;
  EXPECT_EQ(result.exported, result.kernels);
  EXPECT_EQ(std::distance(fs::directory_iterator(exported), fs::directory_iterator()), result.kernels);
  const env::ScopedOverride path("OCTILE_CUBIN_PATH", exported);
  const env::ScopedOverride cache("OCTILE_CACHE_DIR", directory_ + "/empty");
  EXPECT_EQ(warm_up(device_, items, {}).compiled, 0);
  EXPECT_FALSE(fs::exists(directory_ + "/empty"));
}

TEST_F(Warmup, NamesAnIllegalItemAndGoesOnWithTheRest) {
  WarmupItem bad = item(ada_mma_family());
  bad.config.set("BLOCK_SIZE_K", 48);
  const std::vector<WarmupItem> items = {bad, item(ada_mma_family())};
  const WarmupResult result = warm_up(device_, items, {});
  ASSERT_EQ(result.failures.size(), 1U);
  EXPECT_THAT(result.failures.front().message, testing::AllOf(HasSubstr("ada_mma"), HasSubstr("BLOCK_SIZE_K")));
  EXPECT_GT(result.compiled, 0);
  EXPECT_EQ(result.compiled, result.kernels);
  EXPECT_EQ(result.cached, 0) << "an illegal item is no kernel that was found";
}

TEST_F(Warmup, RecordersOfOtherThreadsAndEarlierOnesAreNotSeen) {
  EXPECT_EQ(CompileRecorder::active(), nullptr);
  {
    const CompileRecorder recorder(device_);
    EXPECT_EQ(CompileRecorder::active(), &recorder);
    const auto context = device_context(0);
    ASSERT_TRUE(context);
    EXPECT_EQ((*context)->info.name, "NVIDIA_H200");
  }
  EXPECT_EQ(CompileRecorder::active(), nullptr);
}

}  // namespace
}  // namespace octile::cuda
