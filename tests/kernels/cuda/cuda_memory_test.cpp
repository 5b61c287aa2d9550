// SPDX-License-Identifier: Apache-2.0
// Device memory, weights, modules and graphs on a fake driver that sees which context every call was made in.
#include "octile/kernels/cuda/cuda_memory.h"

#include "fake_device.h"
#include "octile/kernels/cuda/cuda_graph.h"
#include "octile/kernels/cuda/cuda_module.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "support/random.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

namespace octile::cuda {
namespace {

using testing::HasSubstr;

class CudaMemory : public FakeDriverTest {
 protected:
  void SetUp() override {
    FakeDriverTest::SetUp();
    if (!HasFatalFailure()) {
      open();
    }
  }
  std::vector<std::uint8_t> bytes_of(const CudaWeight& weight, std::int64_t count) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
    EXPECT_TRUE(download_bytes(weight.context(), bytes.data(), weight.codes(), count));
    return bytes;
  }
};
using CudaModules = CudaMemory;
using CudaGraphs = CudaMemory;

TEST_F(CudaMemory, OfDeviceOneIsHandledThereWhileDeviceZeroIsCurrent) {
  const CurrentContext outer(*contexts_[0]);
  {
    auto buffer = allocate_device(*contexts_[1], 4096);
    ASSERT_TRUE(buffer);
    const std::vector<unsigned char> sent(4096, 7);
    std::vector<unsigned char> came(4096);
    ASSERT_TRUE(upload_bytes(*contexts_[1], (*buffer)->pointer(), sent.data(), 4096));
    ASSERT_TRUE(download_bytes(*contexts_[1], came.data(), (*buffer)->pointer(), 4096));
    EXPECT_EQ(sent, came);
    EXPECT_EQ(state_->allocated, 4096U);
  }
  EXPECT_EQ(state_->allocated, 0U) << "freed with the buffer";
  EXPECT_EQ(state_->wrong_context_calls, 0);
  EXPECT_EQ(state_->current, std::vector<CUcontext>{contexts_[0]->context});
}

TEST_F(CudaMemory, ARefusedAllocationSaysWhatWasAskedForAndWhatIsFree) {
  state_->memory_limit = 10000;
  const auto buffer = allocate_device(*contexts_[0], 20000);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(buffer.error().message, HasSubstr("20000 bytes"));
  EXPECT_THAT(buffer.error().message, HasSubstr("10000 bytes are free"));
  EXPECT_FALSE(allocate_device(*contexts_[0], -1));
}

TEST_F(CudaMemory, ACopyThatFailsIsAnError) {
  auto buffer = allocate_device(*contexts_[0], 64);
  ASSERT_TRUE(buffer);
  std::vector<unsigned char> bytes(65);
  EXPECT_FALSE(upload_bytes(*contexts_[0], (*buffer)->pointer(), bytes.data(), 1000)) << "beyond the allocation";
  state_->failing_call = "cuMemcpyDtoH";
  EXPECT_FALSE(download_bytes(*contexts_[0], bytes.data(), (*buffer)->pointer(), 64));
  state_->failing_call = "cuCtxPushCurrent";
  EXPECT_FALSE(upload_bytes(*contexts_[0], (*buffer)->pointer(), bytes.data(), 64));
  state_->failing_call.clear();
}

TEST_F(CudaMemory, AWeightWithPaddedRowsIsCopiedAndPaddedWithZeros) {
  SCOPED_TRACE(test::seed_text());
  const std::int64_t n = 19;
  const std::int64_t k = 35;
  const std::int64_t stride = 41;
  auto codes = test::random_codes(n * stride);
  for (std::int64_t row = 0; row < n; ++row) {
    for (std::int64_t col = k; col < stride; ++col) {
      codes[static_cast<std::size_t>(row * stride + col)] = 0x7F;  // NaN that must not be read.
    }
  }
  const auto scales = test::random_scales(n);
  WeightSource source;
  source.n = n;
  source.k = k;
  source.codes = codes.data();
  source.row_stride = stride;
  source.scales = scales.data();
  source.scale_dtype = DType::fp32;
  source.scale_count = n;
  auto weight = pack_row_major(*contexts_[1], source);
  ASSERT_TRUE(weight) << weight.error().message;
  const auto packed = bytes_of(**weight, 32 * 48);
  for (std::int64_t row = 0; row < 32; ++row) {
    for (std::int64_t col = 0; col < 48; ++col) {
      const int wanted = row < n && col < k ? codes[static_cast<std::size_t>(row * stride + col)] : 0;
      ASSERT_EQ(packed[static_cast<std::size_t>(row * 48 + col)], wanted) << row << ", " << col;
    }
  }
  std::vector<float> packed_scales(32);
  ASSERT_TRUE(download_bytes((*weight)->context(), packed_scales.data(), (*weight)->scales(), 32 * 4));
  for (std::size_t row = 0; row < packed_scales.size(); ++row) {
    EXPECT_EQ(packed_scales[row], row < scales.size() ? scales[row] : 0.0F) << row;
  }
  EXPECT_EQ(state_->wrong_context_calls, 0);
  // One resident copy: codes and scales, padded.
  EXPECT_EQ(static_cast<std::size_t>((*weight)->bytes()), state_->allocated);
  EXPECT_LE((*weight)->bytes(), 32 * 48 + 32 * 4 + 256);
}

TEST_F(CudaMemory, AWeightKeepsAMapForEachHeightOfBoxFromSm90OnAndNoneBefore) {
  const std::vector<std::uint8_t> codes(35 * 40, 0x38);
  const float scale = 1.0F;
  WeightSource source;
  source.n = 40;
  source.k = 35;
  source.codes = codes.data();
  source.scales = &scale;
  source.scale_count = 1;
  const auto hopper = pack_row_major(*contexts_[0], source);
  const auto ada = pack_row_major(*contexts_[1], source);
  ASSERT_TRUE(hopper && ada);
  for (std::size_t i = 0; i < kWeightBoxRows.size(); ++i) {
    const auto height = static_cast<std::uint64_t>(kWeightBoxRows[i]);
    const TensorMap wanted = {{(*hopper)->codes(), 35, 40, 48, height}};  // Of the codes alone: what pads them is beyond.
    EXPECT_TRUE(std::ranges::equal((*hopper)->box(i).opaque, wanted.opaque)) << height << " rows";
    EXPECT_THAT((*ada)->box(i).opaque, testing::Each(0U)) << height << " rows";
  }
  state_->failing_call = "cuTensorMapEncodeTiled";
  const auto refused = pack_row_major(*contexts_[0], source);
  state_->failing_call.clear();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("cuTensorMapEncodeTiled([40, 35] bytes at 0x"));
  EXPECT_THAT(refused.error().message, HasSubstr("row stride 48, boxes of 8 rows)"));
  EXPECT_EQ(static_cast<std::int64_t>(state_->allocated), (*hopper)->bytes() + (*ada)->bytes()) << "its memory is freed";
}

TEST_F(CudaMemory, OneScaleForAllIsExpanded) {
  const std::vector<std::uint8_t> codes(16 * 16, 0x38);
  const std::uint16_t scale = 0x3FC0;  // 1.5 in bf16.
  WeightSource source;
  source.n = source.k = 16;
  source.codes = codes.data();
  source.scales = &scale;
  source.scale_dtype = DType::bf16;
  source.scale_count = 1;
  auto weight = pack_row_major(*contexts_[0], source);
  ASSERT_TRUE(weight);
  std::vector<float> scales(16);
  ASSERT_TRUE(download_bytes((*weight)->context(), scales.data(), (*weight)->scales(), 64));
  EXPECT_THAT(scales, testing::Each(1.5F));
}

TEST_F(CudaMemory, AWeightThatDoesNotFitLeavesNothingBehind) {
  const std::vector<std::uint8_t> codes(64 * 64, 0x38);
  const float scale = 1.0F;
  WeightSource source;
  source.n = source.k = 64;
  source.codes = codes.data();
  source.scales = &scale;
  source.scale_count = 1;
  for (const char* call : {"cuMemAlloc", "cuMemcpy2D", "cuMemcpyHtoD"}) {
    state_->failing_call = call;
    EXPECT_FALSE(pack_row_major(*contexts_[0], source)) << call;
    EXPECT_EQ(state_->allocated, 0U) << call;
  }
}

TEST_F(CudaMemory, AWeightOnAnotherDeviceIsRefusedWithBothNames) {
  const std::vector<std::uint8_t> codes(16 * 16, 0x38);
  const float scale = 1.0F;
  WeightSource source;
  source.n = source.k = 16;
  source.codes = codes.data();
  source.scales = &scale;
  source.scale_count = 1;
  auto weight = pack_row_major(*contexts_[1], source);
  ASSERT_TRUE(weight);
  EXPECT_TRUE(as_cuda_weight(**weight, *contexts_[1]));
  const auto refused = as_cuda_weight(**weight, *contexts_[0]);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::AllOf(HasSubstr("cuda:0"), HasSubstr("cuda:1")));
}

// Different machine code for each `variant`.
CompiledKernel some_kernel(int variant = 0, std::int64_t bytes = 64) {
  CompiledKernel compiled;
  compiled.kernel = "some_kernel";
  compiled.arch = "sm_90a";
  compiled.cubin.resize(static_cast<std::size_t>(bytes));
  std::memcpy(compiled.cubin.data(), &variant, sizeof(variant));
  return compiled;
}

TEST_F(CudaModules, LaunchesCarryTheirShapeAndAttributes) {
  auto kernel = load_kernel(*contexts_[0], some_kernel(), 65536);
  ASSERT_TRUE(kernel) << kernel.error().message;
  LaunchShape shape;
  shape.grid = {3, 5, 7};
  shape.block = {128, 2, 1};
  shape.cluster = {1, 2, 1};
  shape.dynamic_shared_bytes = 65536;
  shape.pdl = true;
  ASSERT_TRUE(launch_with(*kernel, shape, nullptr, 1, 2.0F));
  shape.cluster = {1, 1, 1};
  shape.pdl = false;
  ASSERT_TRUE(launch_with(*kernel, shape, nullptr, 1));
  ASSERT_EQ(state_->launches.size(), 2U);
  const fake::Launch& first = state_->launches[0];
  EXPECT_EQ(first.function, kernel->function());
  EXPECT_EQ(first.config.gridDimY, 5U);
  EXPECT_EQ(first.config.blockDimX, 128U);
  EXPECT_EQ(first.config.sharedMemBytes, 65536U);
  ASSERT_EQ(first.attributes.size(), 2U);
  EXPECT_EQ(first.attributes[0].id, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_EQ(first.attributes[0].value.clusterDim.y, 2U);
  EXPECT_EQ(first.attributes[1].id, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  EXPECT_EQ(first.attributes[1].value.programmaticStreamSerializationAllowed, 1);
  EXPECT_TRUE(state_->launches[1].attributes.empty());
}

TEST_F(CudaModules, MoreSharedMemoryThanTheDeviceAllowsIsRefusedWithBothNumbers) {
  const auto kernel = load_kernel(*contexts_[1], some_kernel(), 200 << 10);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(kernel.error().message, testing::AllOf(HasSubstr("204800"), HasSubstr("101376")));
}

TEST_F(CudaModules, AreUnloadedWhateverFailsAndWithTheKernel) {
  for (const char* call : {"cuModuleLoadData", "cuModuleGetFunction", "cuFuncGetAttribute", "cuFuncSetAttribute"}) {
    state_->failing_call = call;
    EXPECT_FALSE(load_kernel(*contexts_[0], some_kernel(), 1024)) << call;
    EXPECT_EQ(state_->modules, 0) << call;
  }
  state_->failing_call.clear();
  EXPECT_EQ(loaded_module_bytes(*contexts_[0]), 0);
  {
    auto first = load_kernel(*contexts_[0], some_kernel());
    auto second = load_kernel(*contexts_[0], some_kernel(1));
    ASSERT_TRUE(first && second);
    EXPECT_EQ(state_->modules, 2);
    *first = std::move(*second);
    EXPECT_TRUE(first->loaded());
    EXPECT_EQ(state_->modules, 1);
  }
  EXPECT_EQ(state_->modules, 0);
  EXPECT_EQ(loaded_module_bytes(*contexts_[0]), 0);
  EXPECT_TRUE(state_->current.empty());
}

TEST_F(CudaModules, OfTheSameMachineCodeAreLoadedOnceADevice) {
  auto first = load_kernel(*contexts_[0], some_kernel(), 1024);
  auto again = load_kernel(*contexts_[0], some_kernel(), 2048);
  auto elsewhere = load_kernel(*contexts_[1], some_kernel());
  CompiledKernel renamed = some_kernel();
  renamed.kernel = "another_kernel";
  auto other = load_kernel(*contexts_[0], renamed);
  ASSERT_TRUE(first && again && elsewhere && other);
  EXPECT_EQ(first->function(), again->function());
  EXPECT_NE(first->function(), elsewhere->function());
  EXPECT_NE(first->function(), other->function());
  EXPECT_EQ(state_->modules, 3);
  EXPECT_EQ(loaded_module_bytes(*contexts_[0]), 128) << "of two cubins of 64 bytes";
  EXPECT_EQ(loaded_module_bytes(*contexts_[1]), 64);
  *first = LoadedKernel();
  EXPECT_EQ(state_->modules, 3) << "the second user still has it";
  // A larger allowance that fails leaves the module to those who have it.
  state_->failing_call = "cuFuncSetAttribute";
  EXPECT_FALSE(load_kernel(*contexts_[0], some_kernel(), 4096));
  EXPECT_TRUE(load_kernel(*contexts_[0], some_kernel(), 2048)) << "allowed already";
  state_->failing_call.clear();
  *again = LoadedKernel();
  EXPECT_EQ(state_->modules, 2);
}

TEST_F(CudaModules, BeyondTheBudgetAreRefusedUntilOthersAreGone) {
  constexpr std::int64_t kEach = std::int64_t{1} << 20;
  std::vector<LoadedKernel> kernels;
  for (int i = 0; i < kModuleBudgetBytes / kEach; ++i) {
    auto kernel = load_kernel(*contexts_[0], some_kernel(i, kEach));
    ASSERT_TRUE(kernel) << kernel.error().message;
    kernels.push_back(std::move(*kernel));
  }
  EXPECT_EQ(loaded_module_bytes(*contexts_[0]), kModuleBudgetBytes);
  const auto refused = load_kernel(*contexts_[0], some_kernel(1000));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(refused.error().message, testing::AllOf(HasSubstr("some_kernel of 64 bytes"), HasSubstr("33554432")));
  EXPECT_TRUE(load_kernel(*contexts_[1], some_kernel(1000))) << "each device has its own";
  kernels.pop_back();
  EXPECT_TRUE(load_kernel(*contexts_[0], some_kernel(1000)));
}

TEST_F(CudaModules, ALaunchThatFailsSaysItsShape) {
  auto kernel = load_kernel(*contexts_[0], some_kernel());
  ASSERT_TRUE(kernel);
  state_->failing_call = "cuLaunchKernelEx";
  LaunchShape shape;
  shape.grid = {9, 1, 1};
  const auto launched = launch_with(*kernel, shape, nullptr, 1);
  ASSERT_FALSE(launched);
  EXPECT_THAT(launched.error().message, HasSubstr("grid 9x1x1"));
}

TEST_F(CudaGraphs, ASequenceIsCapturedOnceAndReplayedPerTiming) {
  int calls = 0;
  const TimedCall call = [&](void* stream) -> Expected<void> {
    EXPECT_NE(stream, nullptr);
    EXPECT_TRUE(state_->capturing);
    ++calls;
    return {};
  };
  {
    auto sequence = capture_sequence(*contexts_[0], {call, call, call});
    ASSERT_TRUE(sequence) << sequence.error().message;
    EXPECT_EQ(state_->graph_launches, 1) << "one replay to warm up";
    const auto time = (*sequence)->time_us();
    ASSERT_TRUE(time);
    EXPECT_DOUBLE_EQ(*time, 500.0) << "1.5 ms over three calls";
    EXPECT_EQ(calls, 3);
    EXPECT_EQ(state_->graphs, 0) << "only the executable graph is kept";
  }
  EXPECT_EQ(state_->execs, 0);
  EXPECT_EQ(state_->streams, 0);
  EXPECT_EQ(state_->events, 0);
  EXPECT_TRUE(state_->current.empty());
  EXPECT_EQ(state_->thread_mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_F(CudaGraphs, EveryFailureIsReportedAndLeavesNothingBehind) {
  const TimedCall fine = [](void*) -> Expected<void> { return {}; };
  const TimedCall bad = [](void*) -> Expected<void> { return Error{ErrorCode::failed, "the call's own words"}; };
  for (const char* name : {"cuStreamCreate", "cuEventCreate", "cuStreamBeginCapture", "cuEventRecord", "cuStreamEndCapture",
                           "cuGraphInstantiate", "cuGraphUpload", "cuGraphLaunch", "cuStreamSynchronize",
                           "cuEventElapsedTime", "cuCtxPushCurrent"}) {
    state_->failing_call = name;
    const auto sequence = capture_sequence(*contexts_[0], {fine});
    state_->failing_call.clear();
    ASSERT_FALSE(sequence) << name;
    EXPECT_EQ(state_->streams + state_->events + state_->graphs + state_->execs, 0) << name;
    EXPECT_FALSE(state_->capturing) << name;
  }
  const auto failed = capture_sequence(*contexts_[0], {fine, bad});
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "the call's own words");
  EXPECT_FALSE(state_->capturing) << "a failed capture is ended";
  EXPECT_EQ(state_->streams + state_->events + state_->graphs + state_->execs, 0);
  EXPECT_FALSE(capture_sequence(*contexts_[0], {}));
}

}  // namespace
}  // namespace octile::cuda
