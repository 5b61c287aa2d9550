// SPDX-License-Identifier: Apache-2.0
// What an engine's registered function gets on a GPU: on a fake driver, whose kernels do nothing, which calls are made and
// with what; on a real one, the numbers.
#include "octile/linear/cuda_engine_kernel.h"

#include "kernels/cuda/fake_device.h"
#include "layer.h"
#include "octile/core/env.h"
#include "octile/kernels/backend.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/nvrtc.h"
#include "octile/linear/engine_kernel.h"
#include "support/gpu.h"

#include <gmock/gmock.h>

#include <cstring>
#include <vector>

namespace octile {
namespace {

using cuda::FakeDriverTest;
using test::Inputs;
using test::Weights;
using testing::HasSubstr;

constexpr std::int64_t kN = 24;

class CudaEngineKernel : public FakeDriverTest {
 protected:
  void SetUp() override {
    if (const auto api = cuda::nvrtc(); !api) {
      GTEST_SKIP() << api.error().message;
    }
    FakeDriverTest::SetUp();
    if (HasFatalFailure()) {
      return;
    }
    open();
    engine_->name = "engine_gemm";
    engine_->call = [this](const BaselineCall& call) {
      calls_.push_back(call);
      launches_before_call_ = state_->launches.size();
      context_in_call_ = state_->current.empty() ? nullptr : state_->current.back();
      return status_;
    };
  }

  // A call whose workspace holds 0, 1, 2, ... 250, 0, ... : the fake's kernels leave it there.
  Expected<void> run(const ConstMatrixView& x, const float* scales = nullptr) {
    const std::int64_t m = x.rows;
    const std::int64_t k = x.cols;
    Problem problem;
    problem.n = kN;
    problem.k = k;
    auto kernel = make_cuda_engine_kernel(engine_, *contexts_[1], problem);
    if (!kernel) {
      return kernel.error();
    }
    const Weights weights(kN, k);
    const Device cpu = find_device("cpu").value();  // The engine's function runs on the host here.
    const auto weight = pack_for_engine(*cpu.backend, cpu.info, weights.source()).value();
    workspace_ = std::move(*cuda::allocate_device(*contexts_[1], (*kernel)->workspace_bytes(m)));
    auto* bytes = static_cast<unsigned char*>(workspace_->data());
    for (std::int64_t i = 0; i < workspace_->bytes(); ++i) {
      bytes[i] = static_cast<unsigned char>(i % 251);
    }
    LaunchArgs args;
    args.activation.x = x;
    args.activation.scales = scales;
    args.y = {bytes, DType::bf16, m, kN, kN, 1};
    args.workspace = workspace_->data();
    args.workspace_bytes = workspace_->bytes();
    args.stream = stream_;
    return (*kernel)->run(*weight, args);
  }
  // Device memory with a byte pattern of its own.
  void fill_x(std::int64_t bytes) {
    x_ = std::move(*cuda::allocate_device(*contexts_[1], bytes));
    std::memset(x_->data(), 0x38, static_cast<std::size_t>(bytes));
  }
  const unsigned char* workspace_at(std::int64_t offset) const {
    return static_cast<const unsigned char*>(workspace_->data()) + offset;
  }

  std::shared_ptr<EngineBaseline> engine_ = std::make_shared<EngineBaseline>();
  std::vector<BaselineCall> calls_;
  std::size_t launches_before_call_ = 0;
  cuda::CUcontext context_in_call_ = nullptr;
  int status_ = 0;
  std::unique_ptr<cuda::CudaBuffer> workspace_, x_;
  void* stream_ = &calls_;  // A handle that nobody follows.
};

TEST_F(CudaEngineKernel, RawRowsAreQuantisedOnTheCallsStreamBeforeTheEngineIsCalled) {
  fill_x(3 * 64 * 2);
  const auto ran = run({x_->data(), DType::bf16, 3, 64, 64, 1});
  ASSERT_TRUE(ran) << ran.error().message;
  ASSERT_EQ(calls_.size(), 1U);
  ASSERT_EQ(launches_before_call_, 1U);
  EXPECT_EQ(state_->launches[0].config.hStream, stream_);
  EXPECT_EQ(state_->launches[0].config.gridDimX, 3U) << "a block a row";
  EXPECT_EQ(state_->launches[0].context, contexts_[1]->context);
  EXPECT_EQ(context_in_call_, contexts_[1]->context) << "the device's, though the caller has none";
  EXPECT_TRUE(state_->current.empty()) << "as the caller had it";
  const BaselineCall& call = calls_.front();
  EXPECT_EQ(call.m, 3);
  EXPECT_EQ(call.n, kN);
  EXPECT_EQ(call.k, 64);
  EXPECT_EQ(call.codes_x, workspace_at(0));
  EXPECT_EQ(call.scales_x, reinterpret_cast<const float*>(workspace_at(256))) << "behind 192 bytes of codes";
  EXPECT_EQ(call.stream, stream_);
  EXPECT_EQ(call.y, workspace_->data());
}

TEST_F(CudaEngineKernel, WhereKIsNoMultipleOf16TheEngineStillGetsContiguousRows) {
  fill_x(3 * 20 * 2);
  const auto ran = run({x_->data(), DType::fp16, 3, 20, 20, 1});
  ASSERT_TRUE(ran) << ran.error().message;
  ASSERT_EQ(calls_.size(), 1U);
  const auto* codes = static_cast<const unsigned char*>(calls_.front().codes_x);
  EXPECT_EQ(codes, workspace_at(0));
  // The quantiser's rows begin 256 bytes into the workspace, 32 bytes apart.
  for (std::int64_t row = 0; row < 3; ++row) {
    for (std::int64_t i = 0; i < 20; ++i) {
      ASSERT_EQ(codes[row * 20 + i], (256 + row * 32 + i) % 251) << row << ", " << i;
    }
  }
  EXPECT_EQ(calls_.front().scales_x, reinterpret_cast<const float*>(workspace_at(512)));
  EXPECT_EQ(state_->wrong_context_calls, 0);
}

TEST_F(CudaEngineKernel, CodesGoOnAsTheyAreOrAreMadeContiguous) {
  fill_x(3 * 80);
  const float scales[3] = {};
  ASSERT_TRUE(run({x_->data(), DType::e4m3, 3, 64, 64, 1}, scales));
  ASSERT_TRUE(run({x_->data(), DType::e4m3, 1, 64, 80, 1}, scales));
  ASSERT_EQ(calls_.size(), 2U);
  for (const BaselineCall& call : calls_) {
    EXPECT_EQ(call.codes_x, x_->data());
    EXPECT_EQ(call.scales_x, scales);
  }
  ASSERT_TRUE(run({x_->data(), DType::e4m3, 3, 64, 80, 1}, scales));
  EXPECT_EQ(calls_.back().codes_x, workspace_at(0));
  EXPECT_EQ(std::vector<unsigned char>(workspace_at(0), workspace_at(3 * 64)), std::vector<unsigned char>(3 * 64, 0x38));
  EXPECT_EQ(calls_.back().scales_x, scales);
  EXPECT_TRUE(state_->launches.empty());
}

TEST_F(CudaEngineKernel, WhatFailsIsReportedAndTheEngineNotCalled) {
  fill_x(3 * 80);
  state_->failing_call = "cuLaunchKernelEx";
  EXPECT_FALSE(run({x_->data(), DType::bf16, 3, 16, 16, 1}));
  state_->failing_call = "cuMemcpy2DAsync";
  EXPECT_FALSE(run({x_->data(), DType::bf16, 3, 20, 20, 1}));
  state_->failing_call.clear();
  const float scales[3] = {};
  const auto overlapping = run({x_->data(), DType::e4m3, 3, 64, 63, 1}, scales);
  ASSERT_FALSE(overlapping);
  EXPECT_THAT(overlapping.error().message, testing::AllOf(HasSubstr("e4m3"), HasSubstr("(63, 1)")));
  EXPECT_TRUE(calls_.empty());
  status_ = 7;
  const auto refused = run({x_->data(), DType::e4m3, 1, 64, 64, 1}, scales);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::AllOf(HasSubstr("engine_gemm"), HasSubstr("7")));
  EXPECT_TRUE(run({x_->data(), DType::bf16, 0, 64, 64, 1})) << "an empty batch calls nobody";
  EXPECT_EQ(calls_.size(), 1U);
}

// Brings everything to the host, computes there, and takes the result back: slow, and what an engine's kernel must equal.
int host_engine(const BaselineCall& call, void* user) {
  ++*static_cast<int*>(user);
  const cuda::DeviceContext& context = *test::gpu().context;
  const auto fetch = [&](auto& values, const void* from) {
    return cuda::download_bytes(context, values.data(), cuda::to_device_pointer(from),
                                static_cast<std::int64_t>(values.size() * sizeof(values[0])))
        .has_value();
  };
  const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  std::vector<std::uint8_t> codes_x(size(call.m * call.k));
  std::vector<std::uint8_t> codes_w(size(call.n * call.k));
  std::vector<float> scales_x(size(call.m));
  std::vector<float> scales_w(size(call.n));
  std::vector<float> bias(call.bias == nullptr ? 0 : size(call.n));
  if (context.driver->stream_synchronize(static_cast<cuda::CUstream>(call.stream)) != cuda::CUDA_SUCCESS ||
      !fetch(codes_x, call.codes_x) || !fetch(codes_w, call.weight_codes) || !fetch(scales_x, call.scales_x) ||
      !fetch(scales_w, call.weight_scales) || (!bias.empty() && !fetch(bias, call.bias))) {
    return 1;
  }
  const std::vector<double> y = reference_linear({call.m, call.n, call.k, codes_x.data(), scales_x.data(), codes_w.data(),
                                                  scales_w.data(), bias.empty() ? nullptr : bias.data()})
                                    .values;
  for (std::int64_t row = 0; row < call.m; ++row) {
    const std::vector<float> values(y.begin() + row * call.n, y.begin() + (row + 1) * call.n);
    const auto bytes = test::as_bytes(values, call.out_dtype);
    auto* to = static_cast<unsigned char*>(call.y) + row * call.y_row_stride * size_of(call.out_dtype);
    if (!cuda::upload_bytes(context, cuda::to_device_pointer(to), bytes.data(), static_cast<std::int64_t>(bytes.size()))) {
      return 2;
    }
  }
  return 0;
}

TEST(CudaEngineOnGpu, RawRowsReachARegisteredFunctionQuantisedByTheContract) {
  OCTILE_REQUIRE_GPU();
  SCOPED_TRACE(test::seed_text());
  int calls = 0;
  ASSERT_TRUE(register_baseline("cuda", "host_engine", host_engine, &calls));
  struct Removed {
    ~Removed() { EXPECT_TRUE(register_baseline("cuda", nullptr, nullptr, nullptr)); }
  } const removed;
  const env::ScopedOverride off("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE", "off");
  for (const std::int64_t k : {96, 100}) {
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      const Weights weights(40, k);
      const std::vector<float> bias = test::normals(40);
      WeightOptions weight_options;
      weight_options.device = test::gpu().context->info.id;
      const auto weight = Fp8Weight::create(weights.source(), weight_options);
      ASSERT_TRUE(weight) << weight.error().message;
      LinearOptions options;
      options.x_dtype = dtype;
      options.bias = bias.data();
      auto linear = Fp8Linear::create(*weight, options);
      ASSERT_TRUE(linear) << linear.error().message;
      const auto prepared = linear->prepare(5);
      ASSERT_TRUE(prepared) << prepared.error().message;
      EXPECT_EQ(linear->explain(5).kernel, "host_engine");
      const Inputs x(7, k, 4, dtype);  // Five rows and a chunk of two, with room between them.
      test::DeviceBytes device_x(x.bytes);
      test::DeviceBytes workspace(linear->workspace_bytes(7));
      workspace.fill(0xFF);
      test::DeviceBytes y(7 * 40 * 2);
      y.fill(0xFF);
      calls = 0;
      const auto ran = linear->run({device_x.data(), dtype, 7, k, k + 4, 1}, {y.data(), DType::bf16, 7, 40, 40, 1},
                                   workspace.data(), workspace.bytes());
      ASSERT_TRUE(ran) << ran.error().message;
      EXPECT_EQ(calls, 2);
      std::vector<unsigned char> bytes(7 * 40 * 2);
      y.download(bytes.data());
      test::expect_close(weights, x, bias.data(), {bytes.data(), DType::bf16, 7, 40, 40, 1});
    }
  }
}

}  // namespace
}  // namespace octile
