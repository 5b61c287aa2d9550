// SPDX-License-Identifier: Apache-2.0
// Graphs, streams and devices on real GPUs: what an engine does with a linear.
#include "octile/kernels/cuda/cublaslt_family.h"
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/module_store.h"
#include "support/gpu.h"
#include "support/gpu_linear.h"
#include "support/random.h"

#include <octile/linear.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <utility>

namespace octile::cuda {
namespace {

using test::DeviceLinear;
using test::LinearCase;

class GpuStreams : public testing::Test {
 protected:
  void SetUp() override {
    devices_ = cuda_backend().devices();
    std::erase_if(devices_, [](const DeviceInfo& device) { return !cublaslt_family().available(device); });
    if (devices_.empty()) {
      GTEST_SKIP() << "no GPU that cuBLASLt's row-wise mode serves: " << no_device_reason();
    }
    auto context = device_context(devices_.front().index);
    ASSERT_TRUE(context) << context.error().message;
    context_ = *context;
    driver_ = context_->driver;
  }

  std::vector<DeviceInfo> devices_;
  const DeviceContext* context_ = nullptr;
  const Driver* driver_ = nullptr;
};

// One linear captured into a graph, with what it takes to look at its result.
struct Captured {
  std::unique_ptr<DeviceLinear> linear;
  std::unique_ptr<Kernel> kernel;
  std::vector<unsigned char> wanted;  // y as run() without a graph leaves it.
  CUgraphExec exec = nullptr;
};

TEST_F(GpuStreams, TwoGraphsFromOneStreamReplayOnTwoAndOneSurvivesTheOther) {
  SCOPED_TRACE(test::seed_text());
  const CurrentContext current(*context_);
  CUstream streams[2] = {};
  for (CUstream& stream : streams) {
    ASSERT_EQ(driver_->stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  Captured captured[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const LinearCase linear_case = {.m = 8, .n = 1024 + 512 * static_cast<std::int64_t>(i), .k = 2048};
    Captured& one = captured[i];
    one.linear = std::make_unique<DeviceLinear>(cuda_backend(), devices_.front(), linear_case, kRowMajor);
    ASSERT_TRUE(one.linear->ready());
    auto kernel = cublaslt_family().prepare(devices_.front(), one.linear->problem(), {}, linear_case.m);
    ASSERT_TRUE(kernel) << kernel.error().message;
    one.kernel = std::move(*kernel);
    ASSERT_TRUE(one.linear->run(*one.kernel));
    ASSERT_EQ(one.linear->verdict(), "");
    one.wanted = one.linear->bytes();
    // Both on the first stream. Global mode: after prepare() run() must do nothing that a capture forbids.
    ASSERT_EQ(driver_->stream_begin_capture(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    const auto ran = one.kernel->run(one.linear->weight(), one.linear->arguments(streams[0]));
    CUgraph graph = nullptr;
    ASSERT_EQ(driver_->stream_end_capture(streams[0], &graph), CUDA_SUCCESS);
    ASSERT_TRUE(ran) << ran.error().message;
    ASSERT_EQ(driver_->graph_instantiate(&one.exec, graph, 0), CUDA_SUCCESS);
    driver_->graph_destroy(graph);
  }
  const auto replay = [&](std::size_t i) {
    ASSERT_TRUE(captured[i].linear->poison_output());
    for (int round = 0; round < 50; ++round) {
      ASSERT_EQ(driver_->graph_launch(captured[i].exec, streams[i]), CUDA_SUCCESS);
    }
  };
  for (std::size_t i = 0; i < 2; ++i) {
    replay(i);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_EQ(driver_->stream_synchronize(streams[i]), CUDA_SUCCESS);
    ASSERT_TRUE(captured[i].linear->download_output());
    EXPECT_EQ(captured[i].linear->bytes(), captured[i].wanted) << "graph " << i;
  }
  driver_->graph_exec_destroy(captured[0].exec);
  captured[0].kernel.reset();
  captured[0].linear.reset();
  replay(1);
  ASSERT_EQ(driver_->stream_synchronize(streams[1]), CUDA_SUCCESS);
  ASSERT_TRUE(captured[1].linear->download_output());
  EXPECT_EQ(captured[1].linear->bytes(), captured[1].wanted);
  driver_->graph_exec_destroy(captured[1].exec);
  for (CUstream stream : streams) {
    driver_->stream_destroy(stream);
  }
}

TEST_F(GpuStreams, AWeightOnDeviceOneRunsThereWhileDeviceZeroIsCurrent) {
  if (devices_.size() < 2) {
    GTEST_SKIP() << "one GPU alone that serves; this needs two";
  }
  SCOPED_TRACE(test::seed_text());
  const CurrentContext current(*context_);
  const LinearCase linear_case = {.m = 33, .n = 768, .k = 1024, .bias = true};
  DeviceLinear linear(cuda_backend(), devices_[1], linear_case, kRowMajor);
  ASSERT_TRUE(linear.ready());
  auto kernel = cublaslt_family().prepare(devices_[1], linear.problem(), {}, linear_case.m);
  ASSERT_TRUE(kernel) << kernel.error().message;
  ASSERT_TRUE(linear.run(**kernel));
  EXPECT_EQ(linear.verdict(), "");
  CUcontext after = nullptr;
  ASSERT_EQ(driver_->ctx_get_current(&after), CUDA_SUCCESS);
  EXPECT_EQ(after, context_->context);
  // The same weight under a kernel of device 0 is refused, not run.
  auto other = cublaslt_family().prepare(devices_[0], linear.problem(), {}, linear_case.m);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_FALSE((*other)->run(linear.weight(), linear.arguments()));
}

// What `octile devices` states, held against the driver's own account. Another program that allocates on the device
// meanwhile makes it fail.
TEST_F(GpuStreams, MemoryBeyondWeightsAndWorkspaceStaysWithinWhatDevicesStates) {
  constexpr std::int64_t kGranularity = std::int64_t{2} << 20;  // In which the driver takes memory from the device.
  constexpr std::int64_t kMaxM = 4096;
  const CurrentContext current(*context_);
  // The four linears of Qwen3-8B.
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{6144, 4096}, {4096, 4096}, {24576, 4096}, {4096, 12288}};
  std::vector<Fp8Weight> weights;
  for (const auto& [n, k] : shapes) {
    const std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k), 0x38);
    const std::vector<float> scales(static_cast<std::size_t>(n), 0.01F);
    WeightSource source;
    source.n = n;
    source.k = k;
    source.codes = codes.data();
    source.scales = scales.data();
    source.scale_count = n;
    WeightOptions options;
    options.device = devices_.front().id;
    auto weight = Fp8Weight::create(source, options);
    ASSERT_TRUE(weight) << weight.error().message;
    weights.push_back(*std::move(weight));
  }
  auto x = allocate_device(*context_, kMaxM * 12288 * 2);
  auto y = allocate_device(*context_, kMaxM * 24576 * 2);
  ASSERT_TRUE(x && y);
  ASSERT_TRUE(fill_bytes(*context_, (*x)->pointer(), 0, (*x)->bytes()));

  const std::int64_t before = test::free_device_bytes();
  std::int64_t workspaces = 0;
  std::vector<Fp8Linear> linears;
  std::vector<std::unique_ptr<CudaBuffer>> memory;
  // Two linears a shape: the second must load nothing that the first has.
  for (int copy = 0; copy < 2; ++copy) {
    for (const Fp8Weight& weight : weights) {
      auto linear = Fp8Linear::create(weight);
      ASSERT_TRUE(linear) << linear.error().message;
      const auto prepared = linear->prepare(kMaxM);
      ASSERT_TRUE(prepared) << prepared.error().message;
      linears.push_back(*std::move(linear));
      auto workspace = allocate_device(*context_, linears.back().workspace_bytes(kMaxM));
      ASSERT_TRUE(workspace) << workspace.error().message;
      workspaces += round_up((*workspace)->bytes(), kGranularity);
      memory.push_back(std::move(*workspace));
    }
  }
  for (std::size_t i = 0; i < linears.size(); ++i) {
    const std::int64_t n = linears[i].weight().n();
    const std::int64_t k = linears[i].weight().k();
    for (const std::int64_t m : {1, 2, 8, 16, 17, 64, 100, 200, 512, 1024, 4096}) {
      const auto ran = linears[i].run({(*x)->data(), DType::bf16, m, k, k, 1}, {(*y)->data(), DType::bf16, m, n, n, 1},
                                      memory[i]->data(), memory[i]->bytes());
      ASSERT_TRUE(ran) << ran.error().message;
    }
  }
  ASSERT_EQ(driver_->stream_synchronize(nullptr), CUDA_SUCCESS);
  const std::int64_t taken = before - test::free_device_bytes() - workspaces;
  const std::int64_t kernels = loaded_module_bytes(*context_);
  RecordProperty("taken_bytes", std::to_string(taken));
  RecordProperty("cubin_bytes", std::to_string(kernels));
  std::cout << "beyond weights and workspaces: " << taken << " bytes; cubins of these: " << kernels << " bytes\n";
  EXPECT_GT(kernels, 0);
  EXPECT_LE(kernels, kModuleBudgetBytes);
  EXPECT_LE(taken, *cuda_backend().overhead_bytes(devices_.front()));
}

}  // namespace
}  // namespace octile::cuda
