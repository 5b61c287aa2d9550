// SPDX-License-Identifier: Apache-2.0
// Fp8Linear on this machine's CPU, through the public interface: every family that runs here, the vendor as baseline, and
// the kinds of faults that users of such libraries have reported.
#include "cpu_table.h"
#include "layer.h"
#include "octile/core/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <thread>

namespace octile {
namespace {

using test::CpuTable;
using test::expect_close;
using test::GuardedOutput;
using test::Inputs;
using test::run_guarded;
using test::Weights;
using test::Workspace;

struct Shape {
  std::int64_t n;
  std::int64_t k;
};

Expected<Fp8Linear> layer(const WeightSource& source, const WeightOptions& options, std::int64_t max_m,
                          const LinearOptions& linear_options = {}) {
  auto weight = Fp8Weight::create(source, options);
  if (!weight) {
    return weight.error();
  }
  auto linear = Fp8Linear::create(*weight, linear_options);
  if (linear) {
    if (auto ok = linear->prepare(max_m); !ok) {
      return ok.error();
    }
  }
  return linear;
}

class OnCpu : public testing::TestWithParam<std::string> {
 protected:
  // Skips in the caller where the kernel does not run here.
  bool missing() const { return !CpuTable({17, 20}, GetParam()).available(); }
  testing::ScopedTrace trace{__FILE__, __LINE__, test::seed_text()};
};

TEST_P(OnCpu, OddShapesWithBiasAreTheReference) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  for (const Shape shape : {Shape{1, 4}, Shape{17, 12}, Shape{1001, 20}, Shape{33, 200}}) {
    const CpuTable table({shape.n, shape.k}, GetParam());
    const Weights weights(shape.n, shape.k, 3);
    const std::vector<float> bias = test::normals(shape.n);
    LinearOptions options;
    options.bias = bias.data();
    const auto linear = layer(weights.source(), table.options(), 40, options);
    ASSERT_TRUE(linear) << linear.error().message;
    for (const std::int64_t m : {1, 2, 15, 16, 17, 40}) {
      const Inputs x(m, shape.k, 5);
      GuardedOutput y(DType::bf16, m, shape.n, shape.n + 1);
      Workspace workspace(linear->workspace_bytes(m));
      const auto ok = linear->run(x.view(), y.view(), workspace.data(), workspace.bytes());
      ASSERT_TRUE(ok) << ok.error().message;
      EXPECT_TRUE(y.guards_intact());
      EXPECT_TRUE(y.all_written());
      EXPECT_TRUE(workspace.guard_intact());
      SCOPED_TRACE(testing::Message() << "M = " << m << ", N = " << shape.n << ", K = " << shape.k);
      expect_close(weights, x, bias.data(), y.view());
    }
  }
}

TEST_P(OnCpu, OnesTimesPowersOfTwoAreExactInEveryRowAndColumn) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  constexpr std::int64_t kN = 130;
  constexpr std::int64_t kK = 64;
  const CpuTable table({kN, kK}, GetParam());
  Weights weights(kN, kK);
  std::ranges::fill(weights.codes, std::uint8_t{0x38});
  for (std::int64_t n = 0; n < kN; ++n) {
    weights.scales[static_cast<std::size_t>(n)] = std::ldexp(1.0F, static_cast<int>(n % 20) - 10);
  }
  WeightOptions options = table.options();
  options.out_dtype = DType::bf16;
  LinearOptions quantized;
  quantized.activation = ActivationMode::quantized;
  const auto linear = layer(weights.source(), options, 70, quantized);
  ASSERT_TRUE(linear) << linear.error().message;
  const std::vector<std::uint8_t> codes(static_cast<std::size_t>(70 * kK), 0x38);
  std::vector<float> scales(70);
  for (std::size_t m = 0; m < scales.size(); ++m) {
    scales[m] = std::ldexp(1.0F, static_cast<int>(m % 13) - 6);
  }
  GuardedOutput y(DType::bf16, 70, kN, kN);
  Workspace workspace(linear->workspace_bytes(70));
  ASSERT_TRUE(linear->run_quantized({codes.data(), DType::e4m3, 70, kK, kK, 1}, scales.data(), y.view(), workspace.data(),
                                    workspace.bytes()));
  for (std::int64_t m = 0; m < 70; ++m) {
    for (std::int64_t n = 0; n < kN; ++n) {
      ASSERT_EQ(load_as_float(y.data(), DType::bf16, m * kN + n),
                64.0F * scales[static_cast<std::size_t>(m)] * weights.scales[static_cast<std::size_t>(n)])
          << m << ", " << n;
    }
  }
}

TEST_P(OnCpu, ZeroTinyAndNonFiniteRowsAreTheirOwn) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  constexpr std::int64_t kN = 24;
  constexpr std::int64_t kK = 36;
  const CpuTable table({kN, kK}, GetParam());
  const Weights weights(kN, kK);
  const std::vector<float> bias = test::normals(kN);
  LinearOptions options;
  options.bias = bias.data();
  const auto linear = layer(weights.source(), table.options(), 8, options);
  ASSERT_TRUE(linear) << linear.error().message;
  const Inputs clean(5, kK);
  Inputs dirty = clean;
  for (std::int64_t i = 0; i < kK; ++i) {
    store_from_float(dirty.bytes.data(), DType::bf16, 1 * kK + i, 0.0F);
    store_from_float(dirty.bytes.data(), DType::bf16, 3 * kK + i, i % 2 == 0 ? 1e-38F : -1e-40F);
  }
  store_from_float(dirty.bytes.data(), DType::bf16, 2 * kK + 30, std::numeric_limits<float>::quiet_NaN());
  const auto before = run_guarded(*linear, clean.view(), DType::bf16, kN);
  const auto after = run_guarded(*linear, dirty.view(), DType::bf16, kN);
  for (std::int64_t i = 0; i < 5 * kN; ++i) {
    const float value = load_as_float(after.data(), DType::bf16, i);
    const float rounded_bias = bf16_to_float(float_to_bf16(bias[static_cast<std::size_t>(i % kN)]));
    switch (i / kN) {
      case 1:
        EXPECT_EQ(value, rounded_bias) << "a row of zeros gives the bias, column " << i % kN;
        break;
      case 2:
        EXPECT_TRUE(std::isnan(value)) << "column " << i % kN;
        break;
      case 3:
        EXPECT_NEAR(value, rounded_bias, std::fabs(rounded_bias) / 128 + 1e-30F) << "column " << i % kN;
        break;
      default:
        EXPECT_EQ(value, load_as_float(before.data(), DType::bf16, i)) << "row " << i / kN << ", column " << i % kN;
    }
  }
}

TEST_P(OnCpu, SeveralThreadsWithWorkspacesOfTheirOwnGetTheSameBits) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  constexpr std::int64_t kN = 70;
  constexpr std::int64_t kK = 128;
  const CpuTable table({kN, kK}, GetParam());
  const Weights weights(kN, kK);
  const auto linear = layer(weights.source(), table.options(), 32);
  ASSERT_TRUE(linear) << linear.error().message;
  std::vector<std::thread> threads;
  std::atomic<int> different{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, x = Inputs(1 + 11 * t, kK)] {
      const auto first = run_guarded(*linear, x.view(), DType::bf16, kN);
      for (int round = 0; round < 20; ++round) {
        different += run_guarded(*linear, x.view(), DType::bf16, kN) == first ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(different, 0);
}

INSTANTIATE_TEST_SUITE_P(Kernels, OnCpu, testing::Values("reference", "avx2", "avx512", kBaselineKernel),
                         [](const testing::TestParamInfo<std::string>& kernel) { return kernel.param; });

// A shape and data for the tests that follow, on whatever serves on this machine.
class CpuLinear : public testing::Test {
 protected:
  static constexpr std::int64_t kN = 96;
  static constexpr std::int64_t kK = 200;
  testing::ScopedTrace trace{__FILE__, __LINE__, test::seed_text()};
  Weights weights{kN, kK};
};

TEST_F(CpuLinear, BatchInvarianceGivesARowTheSameBitsInEveryCompany) {
  WeightOptions options;
  options.batch_invariant = true;
  const auto linear = layer(weights.source(), options, 64);
  ASSERT_TRUE(linear) << linear.error().message;
  const Inputs x(80, kK);
  const auto together = run_guarded(*linear, x.view(), DType::bf16, kN);
  const std::size_t row_bytes = kN * 2;
  for (const std::int64_t company : {1, 2, 17, 33}) {
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, 80 - company}) {
      const auto few = run_guarded(*linear, x.view(first, company), DType::bf16, kN);
      EXPECT_EQ(std::memcmp(few.data(), together.data() + static_cast<std::size_t>(first) * row_bytes, few.size()), 0)
          << company << " rows from " << first;
    }
  }
}

TEST_F(CpuLinear, TheKillSwitchIsBitIdenticalToTheVendorsKernelCalledDirectly) {
  const Device device = find_device("cpu").value();
  Problem problem;
  problem.n = kN;
  problem.k = kK;
  const KernelFamily* vendor = device.backend->baseline(device.info, problem);
  if (vendor == nullptr) {
    GTEST_SKIP() << "no vendor's library on this machine";
  }
  const Inputs x(21, kK, 8);
  WeightSource source = weights.source();
  const auto packed = device.backend->pack(device.info, vendor->layout(), source);
  ASSERT_TRUE(packed) << packed.error().message;
  const auto kernel = vendor->prepare(device.info, problem, vendor->heuristic(device.info, problem, 21), 32);
  ASSERT_TRUE(kernel) << kernel.error().message;
  GuardedOutput y(DType::bf16, 21, kN, kN);
  Workspace workspace((*kernel)->workspace_bytes(21));
  LaunchArgs args;
  args.activation.x = x.view();
  args.y = y.view();
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.bytes();
  ASSERT_TRUE((*kernel)->run(**packed, args));

  const env::ScopedOverride off("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE", "off");
  const CpuTable table({kN, kK}, "reference");
  const auto linear = layer(weights.source(), table.options(), 32);
  ASSERT_TRUE(linear) << linear.error().message;
  EXPECT_EQ(run_guarded(*linear, x.view(), DType::bf16, kN), test::bytes_of(y.view()));
  EXPECT_EQ(linear->explain(21).choice, "baseline");
  EXPECT_EQ(linear->explain(21).kernel, vendor->name());
}

// Bytes of address space.
std::int64_t memory_in_use() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0;
  statm >> pages;
  return pages * 4096;
}

TEST_F(CpuLinear, MakingAndDestroyingLeavesNothingBehind) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps freed memory for a while, and finds leaks itself";
#endif
  const auto cycle = [&] {
    const auto linear = layer(weights.source(), {}, 16);
    ASSERT_TRUE(linear) << linear.error().message;
    run_guarded(*linear, Inputs(16, kK).view(), DType::bf16, kN);
  };
  for (int i = 0; i < 5; ++i) {
    cycle();
  }
  const std::int64_t before = memory_in_use();
  for (int i = 0; i < 100; ++i) {
    cycle();
  }
  // A leaked weight alone would be 100 x 19,200 bytes of codes, and its decoded copy four times that.
  EXPECT_LT(memory_in_use() - before, 1 << 20);
}

}  // namespace
}  // namespace octile
