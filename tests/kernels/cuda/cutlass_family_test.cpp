// SPDX-License-Identifier: Apache-2.0
// The CUTLASS family: what it says without a GPU, and all it does on the fake one, where the stand-in of the component
// multiplies in host memory. The second half runs as the test "cutlass_on_fake_gpu", with the fake driver as libcuda.
#include "octile/kernels/cuda/cutlass_family.h"

#include "cutlass_fake.h"
#include "octile/core/env.h"
#include "octile/core/float_formats.h"
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/cutlass_tiles.h"
#include "octile/kernels/cuda/nvrtc.h"
#include "octile/quant/reference.h"
#include "support/random.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <filesystem>

namespace octile::cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Problem problem_of(std::int64_t n, std::int64_t k) {
  Problem problem;
  problem.n = n;
  problem.k = k;
  return problem;
}

TEST(CutlassFamily, IsAVendorWithTheComponentsVersionAndHash) {
  const auto family = make_cutlass_family(good_cutlass());
  EXPECT_EQ(family->name(), "cutlass");
  EXPECT_TRUE(family->is_vendor());
  EXPECT_EQ(family->version(), "4.2.0");
  EXPECT_THAT(family->source_hash(), HasSubstr("0123456789abcdef"));
  EXPECT_TRUE(family->available(gpu_of("sm_89")));
  EXPECT_TRUE(family->available(gpu_of("sm_120")));
}

TEST(CutlassFamily, WithoutAComponentItIsUnavailableForTheLoadersReason) {
  const CutlassComponent absent = open_cutlass({"/nonexistent/liboctile_cutlass.so"});
  const auto family = make_cutlass_family(absent);
  const auto available = family->available(gpu_of("sm_89"));
  ASSERT_FALSE(available);
  EXPECT_EQ(available.error().code, ErrorCode::unavailable);
  EXPECT_THAT(available.error().message, AllOf(HasSubstr("make cutlass"), HasSubstr("/nonexistent/liboctile_cutlass.so")));
  EXPECT_EQ(family->version(), "");
  EXPECT_FALSE(family->check(gpu_of("sm_89"), problem_of(64, 64), {}));
  EXPECT_FALSE(family->prepare(gpu_of("sm_89"), problem_of(64, 64), {}, 1));
  EXPECT_TRUE(family->space(gpu_of("sm_89"), problem_of(64, 64), 1).empty());
  EXPECT_EQ(family->predict_us(gpu_of("sm_89"), problem_of(64, 64), 1, {}), HUGE_VAL);
}

TEST(CutlassFamily, ServesOtherGpusOnRequestOnly) {
  const auto family = make_cutlass_family(good_cutlass());
  const auto refused = family->available(gpu_of("sm_90"));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("sm_90"), HasSubstr("OCTILE_CUTLASS_ON_ANY_GPU")));
  const env::ScopedOverride anywhere("OCTILE_CUTLASS_ON_ANY_GPU", "on");
  EXPECT_TRUE(family->available(gpu_of("sm_90")));
  DeviceInfo cpu;
  EXPECT_FALSE(family->available(cpu));
}

TEST(CutlassFamily, ADeviceForWhichTheComponentHasNoKernelsIsNamed) {
  const auto family = make_cutlass_family(good_cutlass());
  const env::ScopedOverride anywhere("OCTILE_CUTLASS_ON_ANY_GPU", "on");
  for (const char* arch : {"sm_75", "sm_86", "sm_121"}) {
    const auto available = family->available(gpu_of(arch));
    ASSERT_FALSE(available) << arch;
    EXPECT_THAT(available.error().message, HasSubstr(std::string("no kernels for ") + arch));
  }
}

TEST(CutlassFamily, TheBaselinesBitsArePromisedOnlyWhereItIsTheBaseline) {
  const auto family = make_cutlass_family(good_cutlass());
  const env::ScopedOverride anywhere("OCTILE_CUTLASS_ON_ANY_GPU", "on");
  Problem problem = problem_of(64, 64);
  problem.numerics = Numerics::baseline;
  EXPECT_TRUE(family->check(gpu_of("sm_89"), problem, {}));
  EXPECT_FALSE(family->check(gpu_of("sm_90"), problem, {}));
}

TEST(CutlassFamily, AnEmptyConfigIsItsOwnChoiceAndHasTheBestPrediction) {
  const auto family = make_cutlass_family(good_cutlass());
  const DeviceInfo device = gpu_of("sm_89");
  const Problem problem = problem_of(4096, 4096);
  EXPECT_TRUE(family->heuristic(device, problem, 17).values.empty());
  EXPECT_TRUE(family->check(device, problem, {}));
  for (const std::int64_t m : {1, 17, 300, 4096}) {
    const auto space = family->space(device, problem, m);
    ASSERT_GE(space.size(), 3U) << m;
    EXPECT_TRUE(space.front().values.empty()) << m;
    const double own = family->predict_us(device, problem, m, {});
    EXPECT_GT(own, 0.0);
    for (const TileConfig& config : space) {
      EXPECT_TRUE(family->check(device, problem, config)) << config.to_json();
      EXPECT_LE(own, family->predict_us(device, problem, m, config)) << config.to_json();
    }
  }
}

TEST(CutlassFamily, IllegalConfigsAreRefusedWithTheReason) {
  const auto family = make_cutlass_family(good_cutlass());
  TileConfig config = to_config(*good_cutlass().api->config(0));
  config.set("tile_m", 48);
  const auto checked = family->check(gpu_of("sm_89"), problem_of(64, 64), config);
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message, HasSubstr("\"tile_m\": 48"));
  EXPECT_EQ(family->predict_us(gpu_of("sm_89"), problem_of(64, 64), 1, config), HUGE_VAL);
  EXPECT_FALSE(family->prepare(gpu_of("sm_89"), problem_of(64, 64), config, 1));
  EXPECT_FALSE(family->prepare(gpu_of("sm_89"), problem_of(64, 64), {}, 0)) << "no rows";
  EXPECT_FALSE(family->check(gpu_of("sm_89"), problem_of(0, 64), {})) << "no channels";
}

// Everything on the fake driver's second device, an L40S.
class CutlassOnFakeGpu : public testing::Test {
 protected:
  void SetUp() override {
    const auto opened = driver();
    std::error_code error;
    if (!opened || !std::filesystem::equivalent((*opened)->path, OCTILE_FAKE_GPU "/libcuda.so.1", error)) {
      GTEST_SKIP() << "runs with OCTILE_CUDA_PATH=" OCTILE_FAKE_GPU ", as the test cutlass_on_fake_gpu";
    }
    if (const auto compiler = nvrtc(); !compiler) {
      GTEST_SKIP() << compiler.error().message;
    }
    device_ = cuda_backend().devices().at(1);
    ASSERT_EQ(device_.arch, "sm_89");
    good_cutlass_state() = fake::CutlassState{};
    family_ = make_cutlass_family(good_cutlass());
  }

  // Random codes of a linear in "device" memory.
  struct Linear {
    std::int64_t m, n, k, x_stride, y_stride;
    std::vector<std::uint8_t> codes_x, codes_w;
    std::vector<float> scales_x, scales_w, bias;
    std::shared_ptr<CudaWeight> weight;
  };
  // Rows of x go on with NaN up to `x_stride`.
  Linear make_linear(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t x_stride) const {
    Linear linear = {m,
                     n,
                     k,
                     x_stride,
                     n + 3,
                     {},
                     test::random_codes(n * k),
                     test::random_scales(m),
                     test::random_scales(n),
                     test::normals(n),
                     nullptr};
    linear.codes_x.assign(static_cast<std::size_t>(m * x_stride), 0x7F);
    const auto codes = test::random_codes(m * k);
    for (std::int64_t row = 0; row < m; ++row) {
      std::memcpy(linear.codes_x.data() + row * x_stride, codes.data() + row * k, static_cast<std::size_t>(k));
    }
    WeightSource source;
    source.n = n;
    source.k = k;
    source.codes = linear.codes_w.data();
    source.scales = linear.scales_w.data();
    source.scale_count = n;
    const auto context = device_context(device_.index);
    auto packed = pack_row_major(**context, source);
    EXPECT_TRUE(packed) << packed.error().message;
    linear.weight = *packed;
    return linear;
  }

  std::unique_ptr<CudaBuffer> on_device(const void* data, std::int64_t bytes) const {
    const auto context = device_context(device_.index);
    auto buffer = allocate_device(**context, bytes);
    EXPECT_TRUE(upload_bytes(**context, (*buffer)->pointer(), data, bytes));
    return std::move(*buffer);
  }

  // Runs and compares every element, and that nothing was written beside them. bf16 output.
  void expect_right(const Kernel& kernel, const Linear& linear, bool bias) {
    const auto x = on_device(linear.codes_x.data(), static_cast<std::int64_t>(linear.codes_x.size()));
    const auto scales = on_device(linear.scales_x.data(), linear.m * 4);
    const auto added = on_device(linear.bias.data(), linear.n * 4);
    const std::vector<std::uint16_t> poison(static_cast<std::size_t>(linear.m * linear.y_stride), 0xFFFF);
    const auto y_bytes = static_cast<std::int64_t>(poison.size() * 2);
    const auto y = on_device(poison.data(), y_bytes);
    const auto context = device_context(device_.index);
    auto workspace = allocate_device(**context, kernel.workspace_bytes(linear.m));
    ASSERT_TRUE(workspace);
    LaunchArgs args;
    args.activation.x = {x->data(), DType::e4m3, linear.m, linear.k, linear.x_stride, 1};
    args.activation.scales = static_cast<const float*>(scales->data());
    args.y = {y->data(), DType::bf16, linear.m, linear.n, linear.y_stride, 1};
    args.bias = bias ? static_cast<const float*>(added->data()) : nullptr;
    args.workspace = (*workspace)->data();
    args.workspace_bytes = (*workspace)->bytes();
    const auto ran = kernel.run(*linear.weight, args);
    ASSERT_TRUE(ran) << ran.error().message;
    std::vector<std::uint16_t> came(poison.size());
    ASSERT_TRUE(download_bytes(**context, came.data(), y->pointer(), y_bytes));
    for (std::int64_t row = 0; row < linear.m; ++row) {
      for (std::int64_t col = 0; col < linear.y_stride; ++col) {
        const auto at = static_cast<std::size_t>(row * linear.y_stride + col);
        if (col >= linear.n) {
          ASSERT_EQ(came[at], 0xFFFF) << row << ", " << col;
          continue;
        }
        double sum = 0.0;
        double magnitude = 0.0;
        for (std::int64_t i = 0; i < linear.k; ++i) {
          const double product = double{e4m3_to_float(linear.codes_x[static_cast<std::size_t>(row * linear.x_stride + i)])} *
                                 e4m3_to_float(linear.codes_w[static_cast<std::size_t>(col * linear.k + i)]);
          sum += product;
          magnitude += std::abs(product);
        }
        const double scale =
            double{linear.scales_w[static_cast<std::size_t>(col)]} * linear.scales_x[static_cast<std::size_t>(row)];
        const double wanted = sum * scale + (bias ? linear.bias[static_cast<std::size_t>(col)] : 0.0F);
        // One rounding to bf16, fp32 roundings of the sum.
        const double bound = std::abs(wanted) * 0x1p-8 + magnitude * scale * 0x1p-20 + 0x1p-20;
        ASSERT_NEAR(bf16_to_float(came[at]), wanted, bound) << row << ", " << col;
      }
    }
  }

  std::unique_ptr<Kernel> prepare(const Problem& problem, const TileConfig& config, std::int64_t max_m) const {
    auto kernel = family_->prepare(device_, problem, config, max_m);
    if (!kernel) {
      ADD_FAILURE() << kernel.error().message;
      return nullptr;
    }
    return std::move(*kernel);
  }

  DeviceInfo device_;
  std::unique_ptr<KernelFamily> family_;
};

TEST_F(CutlassOnFakeGpu, TailsInEveryDimensionAndWhatLiesBehindKStayOutOfTheResult) {
  SCOPED_TRACE(test::seed_text());
  for (const std::int64_t k : {1, 50, 64}) {
    for (const bool bias : {false, true}) {
      SCOPED_TRACE(k);
      Problem problem = problem_of(37, k);
      problem.bias = bias;
      const auto kernel = prepare(problem, to_config(*good_cutlass().api->config(2)), 5);
      ASSERT_NE(kernel, nullptr);
      const Linear linear = make_linear(5, 37, k, 80);
      expect_right(*kernel, linear, bias);
      const fake::CutlassRun& run = good_cutlass_state().runs.back();
      EXPECT_EQ(run.index, 2);
      EXPECT_EQ(run.product.k % 16, 0);
      EXPECT_EQ(run.product.n, 37);
      EXPECT_EQ(run.product.bias != nullptr, bias);
    }
  }
}

TEST_F(CutlassOnFakeGpu, OneRowIsNotReadBeyondItsEnd) {
  SCOPED_TRACE(test::seed_text());
  const auto kernel = prepare(problem_of(20, 17), {}, 1);
  ASSERT_NE(kernel, nullptr);
  expect_right(*kernel, make_linear(1, 20, 17, 17), false);
}

TEST_F(CutlassOnFakeGpu, ItsOwnChoiceIsTheLaddersAtEveryM) {
  SCOPED_TRACE(test::seed_text());
  const Problem problem = problem_of(640, 32);
  const auto kernel = prepare(problem, {}, 200);
  ASSERT_NE(kernel, nullptr);
  const auto tiles = cutlass_tiles(*good_cutlass().api);
  const auto steps = cutlass_ladder(device_, problem, tiles, 200);
  ASSERT_TRUE(steps);
  for (const CutlassStep& step : *steps) {
    expect_right(*kernel, make_linear(step.last_m, 640, 32, 32), false);
    EXPECT_EQ(good_cutlass_state().runs.back().index, step.tile) << step.last_m;
    EXPECT_THAT(good_cutlass_state().prepared, testing::Contains(step.tile));
  }
}

TEST_F(CutlassOnFakeGpu, AKernelThatIgnoresScalesIsNotPrepared) {
  good_cutlass_state().ignores_scales_x = true;
  const auto kernel = family_->prepare(device_, problem_of(41, 64), {}, 4);
  ASSERT_FALSE(kernel);
  EXPECT_THAT(kernel.error().message, HasSubstr("does not honour the scale vectors"));
}

TEST_F(CutlassOnFakeGpu, TheComponentsRefusalsAreQuotedWithTheKernel) {
  good_cutlass_state().prepare_code = 309;
  const auto unloaded = family_->prepare(device_, problem_of(42, 64), {}, 4);
  ASSERT_FALSE(unloaded);
  EXPECT_THAT(unloaded.error().message, AllOf(HasSubstr("a fake component's failure"), HasSubstr("309"), HasSubstr("tile_m"),
                                              HasSubstr("4.2.0"), HasSubstr(device_.name)));
  good_cutlass_state().prepare_code = 0;
  const auto kernel = prepare(problem_of(42, 64), {}, 4);
  ASSERT_NE(kernel, nullptr);
  good_cutlass_state().run_code = 801;
  const Linear linear = make_linear(4, 42, 64, 64);
  const auto x = on_device(linear.codes_x.data(), 4 * 64);
  const auto scales = on_device(linear.scales_x.data(), 4 * 4);
  const auto y = on_device(linear.codes_w.data(), 4 * 42 * 2);
  const auto workspace = on_device(linear.codes_w.data(), 1024);
  LaunchArgs args;
  args.activation.x = {x->data(), DType::e4m3, 4, 64, 64, 1};
  args.activation.scales = static_cast<const float*>(scales->data());
  args.y = {y->data(), DType::bf16, 4, 42, 42, 1};
  args.workspace = workspace->data();
  args.workspace_bytes = 1024;
  const auto ran = kernel->run(*linear.weight, args);
  ASSERT_FALSE(ran);
  EXPECT_THAT(ran.error().message, AllOf(HasSubstr("801"), HasSubstr("M=4 N=42 K=64")));
}

TEST_F(CutlassOnFakeGpu, TheComponentsWorkspaceIsPartOfTheKernels) {
  SCOPED_TRACE(test::seed_text());
  const auto without = prepare(problem_of(43, 64), {}, 4);
  good_cutlass_state().workspace_bytes = 1000;
  const auto kernel = prepare(problem_of(43, 64), {}, 4);
  ASSERT_TRUE(without != nullptr && kernel != nullptr);
  EXPECT_EQ(kernel->workspace_bytes(4), without->workspace_bytes(4) + 1024);
  expect_right(*kernel, make_linear(4, 43, 64, 64), false);
  EXPECT_TRUE(good_cutlass_state().runs.back().has_workspace);
  good_cutlass_state().workspace_bytes = -1;
  EXPECT_FALSE(family_->prepare(device_, problem_of(43, 64), {}, 4));
}

TEST_F(CutlassOnFakeGpu, CallsThatDoNotFitWhatWasPreparedAreRefused) {
  const auto kernel = prepare(problem_of(44, 64), {}, 4);
  ASSERT_NE(kernel, nullptr);
  const Linear linear = make_linear(5, 44, 64, 64);
  const auto memory = on_device(std::vector<std::uint8_t>(4096).data(), 4096);
  const std::size_t runs = good_cutlass_state().runs.size();
  const auto call = [&](std::int64_t rows, bool bias, std::int64_t workspace_bytes) {
    LaunchArgs args;
    args.activation.x = {memory->data(), DType::e4m3, rows, 64, 64, 1};
    args.activation.scales = static_cast<const float*>(memory->data());
    args.y = {memory->data(), DType::bf16, rows, 44, 44, 1};
    args.bias = bias ? args.activation.scales : nullptr;
    args.workspace = memory->data();
    args.workspace_bytes = workspace_bytes;
    return kernel->run(*linear.weight, args);
  };
  EXPECT_EQ(call(5, false, 4096).error().code, ErrorCode::not_prepared);
  EXPECT_THAT(call(4, true, 4096).error().message, HasSubstr("without a bias"));
  EXPECT_THAT(call(4, false, 0).error().message, HasSubstr("workspace"));
  EXPECT_TRUE(call(0, false, 0)) << "no rows";
  EXPECT_EQ(good_cutlass_state().runs.size(), runs);
}

}  // namespace
}  // namespace octile::cuda
