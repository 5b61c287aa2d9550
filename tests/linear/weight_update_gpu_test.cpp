// SPDX-License-Identifier: Apache-2.0
// Weights written in place: by update() between calls and between replays, and by a kernel that lets its dependents in
// early. Skipped without a GPU.
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/hopper_decode_family.h"
#include "octile/kernels/cuda/quantise_kernel.h"
#include "support/gpu.h"
#include "support/random.h"

#include <gtest/gtest.h>
#include <octile/linear.hpp>

#include <array>
#include <cstdio>
#include <memory>
#include <vector>

namespace octile {
namespace {

using cuda::CUstream;
using test::bytes_of;
using test::DeviceBytes;
using test::Stream;

constexpr std::int64_t kN = 4096;
constexpr std::int64_t kK = 4096;
constexpr std::int64_t kM = 4;
constexpr int kCalls = 40;

// Two weights of one shape.
struct Pair {
  std::array<std::vector<std::uint8_t>, 2> codes = {test::random_codes(kN * kK), test::random_codes(kN* kK)};
  std::array<std::vector<float>, 2> scales = {test::random_scales(kN), test::random_scales(kN)};
  WeightSource source(std::size_t i) const {
    WeightSource result;
    result.n = kN;
    result.k = kK;
    result.codes = codes.at(i).data();
    result.scales = scales.at(i).data();
    result.scale_count = kN;
    return result;
  }
};

// Made before the calls whose overlap is tested: a fill between them would part them.
std::vector<std::unique_ptr<DeviceBytes>> poisoned_outputs(int count, std::int64_t n) {
  std::vector<std::unique_ptr<DeviceBytes>> outputs;
  for (int i = 0; i < count; ++i) {
    outputs.push_back(std::make_unique<DeviceBytes>(kM * n * 2));
    outputs.back()->fill(0xFF);
  }
  return outputs;
}

// A linear of `weight`, prepared, with its workspace.
struct Ready {
  explicit Ready(const Fp8Weight& weight) {
    auto made = Fp8Linear::create(weight);
    EXPECT_TRUE(made) << made.error().message;
    linear = std::make_unique<Fp8Linear>(std::move(*made));
    EXPECT_TRUE(linear->prepare(kM));
    workspace = std::make_unique<DeviceBytes>(linear->workspace_bytes(kM));
  }
  void run(const DeviceBytes& x, const DeviceBytes& y, CUstream stream) const {
    const auto ran = linear->run({x.data(), DType::bf16, kM, kK, kK, 1}, {y.data(), DType::bf16, kM, kN, kN, 1},
                                 workspace->data(), workspace->bytes(), stream);
    EXPECT_TRUE(ran) << ran.error().message;
  }
  std::unique_ptr<Fp8Linear> linear;
  std::unique_ptr<DeviceBytes> workspace;
};

TEST(WeightUpdateOnGpu, TheNextCallsReadTheNewWeightsWhereverTheyComeFrom) {
  OCTILE_REQUIRE_GPU();
  SCOPED_TRACE(test::seed_text());
  const Pair pair;
  WeightOptions options;
  options.device = "cuda:0";
  const DeviceBytes x(test::as_bytes(test::normals(kM * kK, 1.0F), DType::bf16));
  const Stream stream;
  std::array<std::vector<unsigned char>, 2> wanted;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto weight = Fp8Weight::create(pair.source(i), options);
    ASSERT_TRUE(weight) << weight.error().message;
    const Ready ready(*weight);
    const DeviceBytes y(kM * kN * 2);
    ready.run(x, y, stream.stream);
    wanted.at(i) = bytes_of(y);
  }
  ASSERT_NE(wanted[0], wanted[1]);

  auto weight = Fp8Weight::create(pair.source(0), options);
  ASSERT_TRUE(weight) << weight.error().message;
  const Ready first(*weight);
  const Ready second(*weight);
  std::array<std::unique_ptr<DeviceBytes>, 2> device_codes;
  std::array<std::unique_ptr<DeviceBytes>, 2> device_scales;
  for (std::size_t i = 0; i < 2; ++i) {
    device_codes.at(i) = std::make_unique<DeviceBytes>(pair.codes.at(i));
    device_scales.at(i) = std::make_unique<DeviceBytes>(pair.scales.at(i));
  }
  const auto outputs = poisoned_outputs(2 * kCalls, kN);
  for (std::size_t i = 0; i < kCalls; ++i) {
    const std::size_t which = (i + 1) % 2;
    WeightSource source = pair.source(which);
    const bool on_device = i % 4 < 2;
    if (on_device) {
      source.codes = device_codes.at(which)->data();
      source.scales = device_scales.at(which)->data();
    }
    const auto updated = weight->update(source, on_device ? SourceMemory::device : SourceMemory::host, stream.stream);
    ASSERT_TRUE(updated) << updated.error().message;
    first.run(x, *outputs.at(2 * i), stream.stream);
    second.run(x, *outputs.at(2 * i + 1), stream.stream);
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    ASSERT_EQ(bytes_of(*outputs.at(i)), wanted.at((i / 2 + 1) % 2)) << "update " << i / 2 << ", linear " << i % 2;
  }
}

TEST(WeightUpdateOnGpu, ACapturedGraphReadsTheNewWeightsAfterEachUpdate) {
  OCTILE_REQUIRE_GPU();
  SCOPED_TRACE(test::seed_text());
  const Pair pair;
  WeightOptions options;
  options.device = "cuda:0";
  const DeviceBytes x(test::as_bytes(test::normals(kM * kK, 1.0F), DType::bf16));
  const Stream stream;
  const cuda::Driver& driver = Stream::driver();
  auto weight = Fp8Weight::create(pair.source(0), options);
  ASSERT_TRUE(weight) << weight.error().message;
  const Ready ready(*weight);
  const DeviceBytes y(kM * kN * 2);
  cuda::CUgraph graph = nullptr;
  cuda::CUgraphExec exec = nullptr;
  ASSERT_EQ(driver.stream_begin_capture(stream.stream, cuda::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), cuda::CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) {
    ready.run(x, y, stream.stream);
  }
  ASSERT_EQ(driver.stream_end_capture(stream.stream, &graph), cuda::CUDA_SUCCESS);
  ASSERT_EQ(driver.graph_instantiate(&exec, graph, 0), cuda::CUDA_SUCCESS);
  std::array<std::vector<unsigned char>, 2> seen;
  for (int i = 0; i < kCalls; ++i) {
    const std::size_t which = static_cast<std::size_t>(i) % 2;
    ASSERT_TRUE(weight->update(pair.source(which), SourceMemory::host, stream.stream));
    ASSERT_EQ(driver.graph_launch(exec, stream.stream), cuda::CUDA_SUCCESS);
    const std::vector<unsigned char> bytes = bytes_of(y);
    if (i < 2) {
      seen.at(which) = bytes;
    }
    ASSERT_EQ(bytes, seen.at(which)) << "replay " << i;
  }
  EXPECT_NE(seen[0], seen[1]);
  EXPECT_EQ(driver.graph_exec_destroy(exec), cuda::CUDA_SUCCESS);
  EXPECT_EQ(driver.graph_destroy(graph), cuda::CUDA_SUCCESS);
}

// Calls whose outputs are not those of the weight that was just written, of kCalls. The writer is our own quantiser, which
// lets its dependents in at its start: it quantises [n, k] values into the weight's memory, laid out as its own target is.
// One long row a block, all blocks at once, so that it is still writing when the call behind it may start.
int calls_with_stale_weights(bool fenced) {
  constexpr std::int64_t kRows = 128;
  constexpr std::int64_t kLong = 65536;
  const cuda::DeviceContext& context = *test::gpu().context;
  const Stream stream;
  Problem problem;
  problem.n = kRows;
  problem.k = kLong;
  problem.pdl = Pdl::full;
  const auto config = cuda::hopper_decode_family().heuristic(context.info, problem, kM);
  const auto kernel = cuda::hopper_decode_family().prepare(context.info, problem, config, kM);
  EXPECT_TRUE(kernel) << kernel.error().message;
  const auto writer = cuda::QuantiseKernel::prepare(context, kLong);
  EXPECT_TRUE(writer) << writer.error().message;
  const std::vector<std::uint8_t> zeros(static_cast<std::size_t>(kRows * kLong));
  const std::vector<float> ones(static_cast<std::size_t>(kRows), 1.0F);
  WeightSource source;
  source.n = kRows;
  source.k = kLong;
  source.codes = zeros.data();
  source.scales = ones.data();
  source.scale_count = kRows;
  const auto weight = cuda::pack_row_major(context, source);
  EXPECT_TRUE(weight) << weight.error().message;
  std::array<std::unique_ptr<DeviceBytes>, 2> values;
  for (auto& value : values) {
    value = std::make_unique<DeviceBytes>(test::as_bytes(test::normals(kRows * kLong, 0.1F), DType::bf16));
  }
  const DeviceBytes x(test::as_bytes(test::normals(kM * kLong, 1.0F), DType::bf16));
  DeviceBytes workspace((*kernel)->workspace_bytes(kM));
  const auto call = [&](std::size_t which, DeviceBytes& y, bool with_fence) {
    Activation rows;
    rows.x = {values.at(which)->data(), DType::bf16, kRows, kLong, kLong, 1};
    const auto written = writer->run(rows, cuda::to_pointer((*weight)->codes()), stream.stream, false);
    EXPECT_TRUE(written) << written.error().message;
    EXPECT_EQ(written->codes, (*weight)->codes());
    EXPECT_EQ(written->scales, (*weight)->scales());
    LaunchArgs args;
    args.activation.x = {x.data(), DType::bf16, kM, kLong, kLong, 1};
    args.y = {y.data(), DType::bf16, kM, kRows, kRows, 1};
    args.workspace = workspace.data();
    args.workspace_bytes = workspace.bytes();
    args.stream = stream.stream;
    args.fenced = with_fence;
    const auto ran = (*kernel)->run(**weight, args);
    EXPECT_TRUE(ran) << ran.error().message;
  };
  std::array<std::vector<unsigned char>, 2> wanted;
  for (std::size_t which = 0; which < 2; ++which) {
    DeviceBytes y(kM * kRows * 2);
    call(which, y, true);
    EXPECT_EQ(Stream::driver().stream_synchronize(stream.stream), cuda::CUDA_SUCCESS);
    call(which, y, true);  // The same values again: whatever was read too soon is the same.
    wanted.at(which) = bytes_of(y);
  }
  EXPECT_NE(wanted[0], wanted[1]);
  const auto outputs = poisoned_outputs(kCalls, kRows);
  for (int i = 0; i < kCalls; ++i) {
    call(static_cast<std::size_t>(i) % 2, *outputs.at(static_cast<std::size_t>(i)), fenced);
  }
  int stale = 0;
  for (int i = 0; i < kCalls; ++i) {
    stale += bytes_of(*outputs.at(static_cast<std::size_t>(i))) == wanted.at(static_cast<std::size_t>(i) % 2) ? 0 : 1;
  }
  return stale;
}

TEST(WeightUpdateOnGpu, AFencedCallWaitsForAWriterThatLetsItsDependentsInEarly) {
  OCTILE_REQUIRE_GPU();
  SCOPED_TRACE(test::seed_text());
  if (const auto available = cuda::hopper_decode_family().available(test::gpu().context->info); !available) {
    GTEST_SKIP() << available.error().message;
  }
  EXPECT_EQ(calls_with_stale_weights(true), 0);
  // Without the fence the same calls read too soon; how many do is a matter of timing, so that none of them is no error.
  std::printf("without the fence %d of %d calls read stale weights\n", calls_with_stale_weights(false), kCalls);
}

}  // namespace
}  // namespace octile
