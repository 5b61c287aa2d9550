// SPDX-License-Identifier: Apache-2.0
// The cuBLASLt family: its configs without a GPU, its products on one.
#include "octile/kernels/cuda/cublaslt_family.h"

#include "octile/kernels/cuda/cublaslt_algorithm.h"
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "support/gpu_linear.h"
#include "support/random.h"

#include <gtest/gtest.h>

#include <optional>

namespace octile::cuda {
namespace {

using test::DeviceLinear;
using test::LinearCase;

DeviceInfo h200() {
  DeviceInfo device;
  device.id = "cuda:0";
  device.name = "NVIDIA_H200";
  device.kind = DeviceKind::cuda;
  device.arch = "sm_90";
  device.sm_count = 132;
  return device;
}

Problem problem_of(std::int64_t n, std::int64_t k) {
  Problem problem;
  problem.n = n;
  problem.k = k;
  return problem;
}

TileConfig config(std::initializer_list<std::pair<const char*, std::int64_t>> values) {
  TileConfig result;
  for (const auto& [name, value] : values) {
    result.set(name, value);
  }
  return result;
}

TEST(CublasLtConfig, AnEmptyConfigIsTheLibrarysOwnChoice) {
  EXPECT_TRUE(cublaslt_family().check(h200(), problem_of(4096, 4096), {}));
  EXPECT_TRUE(cublaslt_family().heuristic(h200(), problem_of(4096, 4096), 17).values.empty());
}

TEST(CublasLtConfig, AnUnknownKeyIsRefusedByName) {
  const auto checked = cublaslt_family().check(h200(), problem_of(4096, 4096), config({{kAlgoId, 66}, {"num_warps", 4}}));
  ASSERT_FALSE(checked);
  EXPECT_NE(checked.error().message.find("'num_warps'"), std::string::npos) << checked.error().message;
}

TEST(CublasLtConfig, AConfigWithoutAnAlgorithmIsRefused) {
  EXPECT_FALSE(cublaslt_family().check(h200(), problem_of(4096, 4096), config({{kTileId, 20}})));
}

TEST(CublasLtConfig, ValuesBeyondTheAttributesTypeAreRefused) {
  EXPECT_FALSE(cublaslt_family().check(h200(), problem_of(4096, 4096), config({{kAlgoId, 66}, {kClusterShapeId, 65536}})));
  EXPECT_FALSE(cublaslt_family().check(h200(), problem_of(4096, 4096), config({{kAlgoId, -1}})));
  EXPECT_TRUE(cublaslt_family().check(h200(), problem_of(4096, 4096), config({{kAlgoId, 66}, {kClusterShapeId, 65535}})));
}

TEST(CublasLtConfig, ASplitOfKIsRefusedWhereItsBitsWouldDiffer) {
  Problem problem = problem_of(4096, 4096);
  const TileConfig split = config({{kAlgoId, 66}, {kSplitK, 2}});
  EXPECT_TRUE(cublaslt_family().check(h200(), problem, split));
  problem.numerics = Numerics::baseline;
  EXPECT_FALSE(cublaslt_family().check(h200(), problem, split));
  problem.numerics = Numerics::deterministic;
  problem.batch_invariant = true;
  EXPECT_FALSE(cublaslt_family().check(h200(), problem, split));
}

TEST(CublasLtConfig, DevicesWithoutARowWiseModeAreRefusedWithTheReason) {
  DeviceInfo ada = h200();
  ada.arch = "sm_89";
  const auto available = cublaslt_family().available(ada);
  ASSERT_FALSE(available);
  EXPECT_NE(available.error().message.find("sm_89"), std::string::npos) << available.error().message;
  EXPECT_FALSE(cublaslt_family().prepare(ada, problem_of(16, 16), {}, 1));
}

TEST(CublasLtPrediction, ATileThatCoversMInFewerWavesIsPredictedFaster) {
  const double narrow = predict_tile_us(h200().sm_count, 8, 4096, 4096, {64, 8}, {1, 1});
  const double wide = predict_tile_us(h200().sm_count, 8, 4096, 4096, {128, 128}, {1, 1});
  EXPECT_LT(narrow, wide);
}

TEST(CublasLtPrediction, FewerMultiprocessorsTakeMoreWaves) {
  Problem problem = problem_of(24576, 4096);
  const TileConfig tile = config({{kAlgoId, 66}, {kTileId, 20}});
  const double all = cublaslt_family().predict_us(h200(), problem, 1024, tile);
  problem.max_sms = 60;
  EXPECT_GT(cublaslt_family().predict_us(h200(), problem, 1024, tile), 1.5 * all);
  EXPECT_TRUE(cublaslt_family().check_sm_limit(problem, tile, 1 << 20)) << "the library is asked to";
}

class CublasLtOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    for (const DeviceInfo& device : cuda_backend().devices()) {
      if (cublaslt_family().available(device)) {
        device_ = device;
        return;
      }
    }
    GTEST_SKIP() << "no GPU that cuBLASLt's row-wise mode serves: "
                 << (no_device_reason().empty() ? "none is sm_90 with cuBLASLt 12.9 or newer" : no_device_reason());
  }

  // Runs the case with a config; what is wrong, or "".
  std::string outcome(const LinearCase& linear_case, const TileConfig& chosen = {}) {
    DeviceLinear linear(cuda_backend(), device_, linear_case, kRowMajor);
    if (!linear.ready()) {
      return "not ready";
    }
    auto kernel = cublaslt_family().prepare(device_, linear.problem(), chosen, linear_case.m);
    if (!kernel) {
      return kernel.error().message;
    }
    return linear.run(**kernel) ? linear.verdict() : "did not run";
  }

  DeviceInfo device_;
};

TEST_F(CublasLtOnGpu, TheOwnChoiceMatchesTheReferenceForEveryKindOfCase) {
  SCOPED_TRACE(test::seed_text());
  std::vector<LinearCase> cases;
  for (const std::int64_t m : {1, 2, 63, 64, 65, 129}) {
    cases.push_back({.m = m, .n = 256, .k = 512});
  }
  for (const auto& [n, k] :
       {std::pair<std::int64_t, std::int64_t>{1, 1}, {17, 20}, {1001, 4}, {48, 4096}, {4096, 12}, {144, 8192}}) {
    cases.push_back({.m = 19, .n = n, .k = k});
    cases.push_back({.m = 19, .n = n, .k = k, .codes = true});
    cases.push_back({.m = 5, .n = n, .k = k, .bias = true});
  }
  for (const DType out : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const bool bias : {false, true}) {
      cases.push_back({.m = 33, .n = 272, .k = 1040, .out_dtype = out, .bias = bias, .x_dtype = DType::fp16});
    }
  }
  for (const std::int64_t padding : {1, 3, 8, 16, 40}) {
    cases.push_back({.m = 70, .n = 256, .k = 512, .x_padding = padding, .y_padding = padding});
    cases.push_back({.m = 70, .n = 256, .k = 512, .bias = true, .codes = true, .x_padding = padding, .y_padding = padding});
  }
  cases.push_back({.m = 100, .n = 512, .k = 12288, .accumulate = Accumulate::precise});
  for (const LinearCase& linear_case : cases) {
    EXPECT_EQ(outcome(linear_case), "") << linear_case.to_string();
  }
}

TEST_F(CublasLtOnGpu, EverySearchedAlgorithmMatchesTheReference) {
  SCOPED_TRACE(test::seed_text());
  const LinearCase linear_case = {.m = 40, .n = 1024, .k = 2048};
  DeviceLinear linear(cuda_backend(), device_, linear_case, kRowMajor);
  ASSERT_TRUE(linear.ready());
  const auto space = cublaslt_family().space(device_, linear.problem(), linear_case.m);
  EXPECT_GT(space.size(), 8U);
  for (const TileConfig& chosen : space) {
    EXPECT_TRUE(cublaslt_family().check(device_, linear.problem(), chosen)) << chosen.to_json();
    auto kernel = cublaslt_family().prepare(device_, linear.problem(), chosen, linear_case.m);
    ASSERT_TRUE(kernel) << chosen.to_json() << kernel.error().message;
    ASSERT_TRUE(linear.run(**kernel)) << chosen.to_json();
    EXPECT_EQ(linear.verdict(), "") << chosen.to_json();
  }
}

TEST_F(CublasLtOnGpu, AlgorithmsWithoutASplitGiveTheBitsOfTheOwnChoice) {
  SCOPED_TRACE(test::seed_text());
  for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
    const LinearCase linear_case = {.m = 24, .n = 768, .k = 4096, .accumulate = accumulate};
    DeviceLinear linear(cuda_backend(), device_, linear_case, kRowMajor);
    ASSERT_TRUE(linear.ready());
    std::optional<std::vector<unsigned char>> baseline;
    for (const TileConfig& chosen : cublaslt_family().space(device_, linear.problem(), linear_case.m)) {
      if (chosen.get(kSplitK, 1) > 1) {
        continue;
      }
      auto kernel = cublaslt_family().prepare(device_, linear.problem(), chosen, linear_case.m);
      ASSERT_TRUE(kernel) << kernel.error().message;
      ASSERT_TRUE(linear.run(**kernel));
      if (!baseline) {
        baseline = linear.bytes();
      }
      EXPECT_EQ(linear.bytes(), *baseline) << chosen.to_json() << " accumulate " << to_string(accumulate);
    }
  }
}

TEST_F(CublasLtOnGpu, MoreRowsThanPreparedAreRefused) {
  const LinearCase linear_case = {.m = 8, .n = 64, .k = 64};
  DeviceLinear linear(cuda_backend(), device_, linear_case, kRowMajor);
  ASSERT_TRUE(linear.ready());
  auto kernel = cublaslt_family().prepare(device_, linear.problem(), {}, 4);
  ASSERT_TRUE(kernel) << kernel.error().message;
  LaunchArgs args = linear.arguments();
  const auto beyond = (*kernel)->run(linear.weight(), args);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::not_prepared) << beyond.error().message;
}

TEST_F(CublasLtOnGpu, AnAlgorithmThatDoesNotExistIsAnErrorNotACrash) {
  const auto kernel = cublaslt_family().prepare(device_, problem_of(64, 64), config({{kAlgoId, 12345}}), 4);
  ASSERT_FALSE(kernel);
  EXPECT_NE(kernel.error().message.find("12345"), std::string::npos) << kernel.error().message;
}

}  // namespace
}  // namespace octile::cuda
