// SPDX-License-Identifier: Apache-2.0
// Fp8Linear on a GPU, from a table file to the numbers: every kind of choice, and the bits that are promised. Skipped
// without a GPU that cuBLASLt's row-wise mode serves.
#include "cuda_table.h"
#include "layer.h"
#include "octile/core/env.h"
#include "octile/kernels/cuda/cublaslt.h"
#include "octile/kernels/cuda/cublaslt_family.h"
#include "octile/kernels/cuda/hopper_decode_family.h"
#include "support/gpu.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace octile {
namespace {

using cuda::CurrentContext;
using test::CudaTable;
using test::DeviceBytes;
using test::Inputs;
using test::Weights;

constexpr std::int64_t kN = 512;
constexpr std::int64_t kK = 1024;

class CudaLinear : public testing::Test {
 protected:
  void SetUp() override {
    OCTILE_REQUIRE_GPU();
    table_.device = test::gpu().context->info;
    if (const auto vendor = cuda::cublaslt_family().available(table_.device); !vendor) {
      GTEST_SKIP() << vendor.error().message;
    }
  }

  Fp8Linear linear_of(std::int64_t max_m, const LinearOptions& options = {}) {
    auto weight = Fp8Weight::create(weights_.source(), table_.options());
    EXPECT_TRUE(weight) << weight.error().message;
    auto linear = Fp8Linear::create(*weight, options);
    EXPECT_TRUE(linear) << linear.error().message;
    const auto prepared = linear->prepare(max_m);
    EXPECT_TRUE(prepared) << prepared.error().message;
    return *linear;
  }
  // y [m, kN] of bf16, from a poisoned output and a poisoned workspace of exactly the bytes asked for.
  std::vector<unsigned char> run(const Fp8Linear& linear, const Inputs& x) const {
    DeviceBytes device_x(x.bytes);
    DeviceBytes workspace(linear.workspace_bytes(x.m));
    workspace.fill(0xFF);
    DeviceBytes y(x.m * kN * 2);
    y.fill(0xFF);
    const auto ran = linear.run({device_x.data(), x.dtype, x.m, kK, x.row_stride, 1},
                                {y.data(), DType::bf16, x.m, kN, kN, 1}, workspace.data(), workspace.bytes());
    EXPECT_TRUE(ran) << ran.error().message;
    std::vector<unsigned char> bytes(static_cast<std::size_t>(y.bytes()));
    y.download(bytes.data());
    return bytes;
  }
  // The same by cuBLASLt alone: its own choice, on codes and scales made by the plain quantiser.
  std::vector<unsigned char> run_cublaslt(const Inputs& x) const {
    const auto lt = cuda::lt_device(*test::gpu().context);
    EXPECT_TRUE(lt) << lt.error().message;
    const DeviceBytes codes_x(x.codes);
    const DeviceBytes scales_x(x.scales);
    const DeviceBytes codes_w(weights_.codes);
    const DeviceBytes scales_w(weights_.scales);
    DeviceBytes y(x.m * kN * 2);
    y.fill(0xFF);
    cuda::Product product;
    product.m = x.m;
    product.n = product.y_stride = kN;
    product.k = product.x_stride = kK;
    const CurrentContext current(*test::gpu().context);
    const auto algorithms = cuda::heuristic_algorithms(*lt, product, 1);
    EXPECT_EQ(algorithms.size(), 1U);
    const DeviceBytes workspace(cuda::kCublasLtWorkspaceBytes);
    const cuda::ProductPointers pointers = {codes_w.pointer(), scales_w.pointer(),  codes_x.pointer(), scales_x.pointer(),
                                            y.pointer(),       workspace.pointer(), workspace.bytes()};
    const auto ran = cuda::run_product(*lt, product, algorithms.front().algo, pointers, nullptr);
    EXPECT_TRUE(ran) << ran.error().message;
    std::vector<unsigned char> bytes(static_cast<std::size_t>(y.bytes()));
    y.download(bytes.data());
    return bytes;
  }
  void expect_right(const Fp8Linear& linear, const Inputs& x, const float* bias = nullptr) {
    auto y = run(linear, x);
    test::expect_close(weights_, x, bias, {y.data(), DType::bf16, x.m, kN, kN, 1});
  }

  CudaTable table_{kN, kK};
  Weights weights_{kN, kK};
  testing::ScopedTrace trace_{__FILE__, __LINE__, test::seed_text()};
};

TEST_F(CudaLinear, EveryKindOfChoiceServesTheIntervalThatExplainNamesAndIsRight) {
  const auto searched = cuda::cublaslt_family().space(table_.device, table_.problem, 16);
  ASSERT_GE(searched.size(), 2U) << "the own choice, and one that was found";
  table_.write({table_.heuristic_entry("ada_mma", 1, 4), table_.heuristic_entry("hopper_decode", 5, 8),
                table_.entry_of(cuda::cublaslt_family(), 9, 16, searched[1]), test::baseline_entry(17, 32)});
  const Fp8Linear linear = linear_of(100);
  const std::vector<float> bias = test::normals(kN);
  LinearOptions options;
  options.bias = bias.data();
  options.x_dtype = DType::fp16;
  const Fp8Linear with_bias = linear_of(100, options);
  struct Served {
    std::int64_t m;
    const char* choice;
    const char* kernel;
  };
  for (const Served& served :
       {Served{1, "tile", "ada_mma"}, Served{4, "tile", "ada_mma"}, Served{5, "tile", "hopper_decode"},
        Served{8, "tile", "hopper_decode"}, Served{9, "vendor", "cublaslt"}, Served{16, "vendor", "cublaslt"},
        Served{17, "baseline", "cublaslt"}, Served{32, "baseline", "cublaslt"}, Served{33, "baseline", "cublaslt"},
        Served{100, "baseline", "cublaslt"}}) {
    SCOPED_TRACE("M = " + std::to_string(served.m));
    const Explanation explanation = linear.explain(served.m);
    EXPECT_EQ(explanation.choice, served.choice) << explanation.reason;
    EXPECT_EQ(explanation.kernel, served.kernel) << explanation.reason;
    expect_right(linear, Inputs(served.m, kK));
    expect_right(with_bias, Inputs(served.m, kK, 8, DType::fp16), bias.data());
  }
  // Chunks of 100, and a rest that another choice serves.
  expect_right(linear, Inputs(203, kK));
}

TEST_F(CudaLinear, WhereOursWonEverywhereTheHeuristicFillsTheGaps) {
  table_.write({table_.heuristic_entry("ada_mma", 2, 2), table_.heuristic_entry("hopper_decode", 16, 16)});
  const Fp8Linear linear = linear_of(64);
  for (const std::int64_t m : {1, 3, 15, 17, 64}) {
    const Explanation explanation = linear.explain(m);
    EXPECT_EQ(explanation.choice, "heuristic") << "M = " << m << ": " << explanation.reason;
    expect_right(linear, Inputs(m, kK));
  }
}

TEST_F(CudaLinear, WithTheKillSwitchOffTheBitsAreThoseOfCallingCublasLtDirectly) {
  table_.write({table_.heuristic_entry("ada_mma", 1, 1000)});
  const env::ScopedOverride off("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE", "off");
  const Fp8Linear linear = linear_of(512);
  for (const std::int64_t m : {1, 2, 16, 17, 64, 200, 512}) {
    EXPECT_EQ(linear.explain(m).choice, "baseline");
    EXPECT_EQ(linear.explain(m).kernel, "cublaslt");
    const Inputs x(m, kK);
    EXPECT_EQ(run(linear, x), run_cublaslt(x)) << "M = " << m;
  }
}

TEST_F(CudaLinear, InTheBaselinesNumericsATunedLinearHasCublasLtsBitsAtEveryM) {
  table_.problem.numerics = Numerics::baseline;
  if (const auto ours = cuda::hopper_decode_family().available(table_.device); !ours) {
    GTEST_SKIP() << ours.error().message;
  }
  const auto searched = cuda::cublaslt_family().space(table_.device, table_.problem, 64);
  ASSERT_GE(searched.size(), 2U);
  table_.write({table_.heuristic_entry("hopper_decode", 1, 8), table_.heuristic_entry("hopper_decode", 9, 33),
                table_.entry_of(cuda::cublaslt_family(), 34, 100, searched[1])});
  const Fp8Linear linear = linear_of(100);
  EXPECT_EQ(linear.explain(8).choice, "tile") << linear.explain(8).reason;
  EXPECT_EQ(linear.explain(64).choice, "vendor") << linear.explain(64).reason;
  for (const std::int64_t m : {1, 2, 7, 8, 9, 17, 33, 34, 64, 100}) {
    const Inputs x(m, kK);
    EXPECT_EQ(run(linear, x), run_cublaslt(x)) << "M = " << m;
  }
}

}  // namespace
}  // namespace octile
