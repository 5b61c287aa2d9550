// SPDX-License-Identifier: Apache-2.0
// How every family is called on a GPU: empty batches, buffers larger than the batch, very many rows, graphs that are
// replayed with other inputs, calls that do not fit. Skipped without one.
#include "family_under_test.h"
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "support/gpu_linear.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace octile::cuda {
namespace {

using test::DeviceLinear;
using test::LinearCase;

class FamilyCalls : public FamilyTest {
 protected:
  DeviceLinear linear_of(const LinearCase& linear_case) const {
    return {cuda_backend(), device(), linear_case, family().layout()};
  }
  // nullptr (and a failure) where the config cannot be prepared.
  std::unique_ptr<Kernel> prepare(const Problem& problem, const TileConfig& config, std::int64_t max_m) const {
    auto kernel = family().prepare(device(), problem, config, max_m);
    if (!kernel) {
      ADD_FAILURE() << config.to_json() << ": " << kernel.error().message;
      return nullptr;
    }
    return std::move(*kernel);
  }
  static const Driver& driver() { return *test::gpu().context->driver; }
};
INSTANTIATE_TEST_SUITE_P(Gpu, FamilyCalls, testing::ValuesIn(families_under_test()), name_of);

TEST_P(FamilyCalls, AnEmptyBatchWritesNothingAndWantsNothing) {
  for (const bool codes : {false, true}) {
    DeviceLinear linear = linear_of({.m = 4, .n = 96, .k = 160, .bias = true, .codes = codes});
    ASSERT_TRUE(linear.ready());
    for (const TileConfig& config : GetParam().few()) {
      const auto kernel = prepare(linear.problem(), config, 4);
      ASSERT_NE(kernel, nullptr);
      ASSERT_TRUE(linear.poison_output());
      const std::vector<unsigned char> poisoned = linear.bytes();
      LaunchArgs args = linear.arguments();
      args.activation.x.rows = args.y.rows = 0;
      args.activation.x.data = args.y.data = nullptr;  // What an empty tensor has.
      args.workspace = nullptr;
      args.workspace_bytes = kernel->workspace_bytes(0);
      const auto ran = kernel->run(linear.weight(), args);
      EXPECT_TRUE(ran) << config.to_json() << ": " << ran.error().message;
      ASSERT_TRUE(linear.download_output());
      EXPECT_EQ(linear.bytes(), poisoned) << config.to_json();
    }
  }
}

// The rows behind the last one, of x and of the codes in the workspace, and what lies between rows hold NaN: no valid row
// sees them, also where the padded rows of given codes have a form that needs no copy (304 bytes apart).
TEST_P(FamilyCalls, NaNBehindTheLastRowOrBetweenRowsLeaksIntoNoOther) {
  struct Rows {
    std::int64_t k;
    std::int64_t padding;
  };
  for (const std::int64_t m : {1, 3, 17, 70}) {
    for (const bool codes : {false, true}) {
      for (const Rows& rows : {Rows{256, 0}, Rows{256, 16}, Rows{300, 0}, Rows{300, 4}}) {
        const LinearCase linear_case = {
            .m = m, .n = 200, .k = rows.k, .codes = codes, .x_padding = rows.padding, .rows_behind = 260};
        DeviceLinear linear = linear_of(linear_case);
        ASSERT_TRUE(linear.ready());
        for (const TileConfig& config : configs_for(linear.problem(), m)) {
          const auto kernel = prepare(linear.problem(), config, m);
          ASSERT_NE(kernel, nullptr);
          ASSERT_TRUE(linear.run(*kernel));
          EXPECT_EQ(linear.verdict(), "") << linear_case.to_string() << " " << config.to_json();
        }
      }
    }
  }
}

// A graph captured in global mode, which forbids whatever run() must not do after prepare(), replayed with other
// activations in the same buffers.
TEST_P(FamilyCalls, ACapturedCallReplaysWithOtherInputs) {
  const CurrentContext current(*test::gpu().context);
  CUstream stream = nullptr;
  ASSERT_EQ(driver().stream_create(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  for (const bool codes : {false, true}) {
    const LinearCase linear_case = {.m = 13, .n = 520, .k = 1040, .bias = true, .codes = codes};
    DeviceLinear linear = linear_of(linear_case);
    ASSERT_TRUE(linear.ready());
    for (const TileConfig& config : GetParam().few()) {
      SCOPED_TRACE(config.to_json() + (codes ? ", codes" : ", raw rows"));
      const auto kernel = prepare(linear.problem(), config, linear_case.m);
      ASSERT_NE(kernel, nullptr);
      ASSERT_TRUE(linear.run(*kernel));
      ASSERT_EQ(linear.verdict(), "");
      ASSERT_EQ(driver().stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
      const auto ran = kernel->run(linear.weight(), linear.arguments(stream));
      CUgraph graph = nullptr;
      ASSERT_EQ(driver().stream_end_capture(stream, &graph), CUDA_SUCCESS);
      ASSERT_TRUE(ran) << ran.error().message;
      CUgraphExec exec = nullptr;
      ASSERT_EQ(driver().graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
      driver().graph_destroy(graph);
      std::vector<unsigned char> before = linear.bytes();
      for (int replay = 0; replay < 3; ++replay) {
        ASSERT_TRUE(linear.draw_activations());
        ASSERT_TRUE(linear.poison_output());
        ASSERT_EQ(driver().graph_launch(exec, stream), CUDA_SUCCESS);
        ASSERT_EQ(driver().stream_synchronize(stream), CUDA_SUCCESS);
        ASSERT_TRUE(linear.download_output());
        EXPECT_EQ(linear.verdict(), "") << "replay " << replay;
        EXPECT_NE(linear.bytes(), before) << "the inputs differ, so must the outputs";
        before = linear.bytes();
        ASSERT_TRUE(linear.run(*kernel));
        EXPECT_EQ(linear.bytes(), before) << "replay " << replay << " has the bits of a call";
      }
      driver().graph_exec_destroy(exec);
    }
  }
  EXPECT_EQ(driver().stream_destroy(stream), CUDA_SUCCESS);
}

// x repeats 64 rows over and over, so that every block of 64 rows of y must equal the first. Rows of 8 KiB of x, 4 KiB of
// codes and of y: their offsets pass 2^31 at rows 262144 and 524288, and 2^32 at 524288 and 1048576.
TEST_P(FamilyCalls, RowsBeyondTwoAndFourGigabytesAreRight) {
  constexpr std::int64_t kPeriod = 64;
  const std::int64_t m = (std::int64_t{1} << 20) + 2 * kPeriod;
  const std::int64_t n = 2048;
  const std::int64_t k = 4096;
  if (device().memory_bytes < (std::int64_t{40} << 30)) {
    GTEST_SKIP() << "needs about 20 GiB of device memory";
  }
  const DeviceContext& context = *test::gpu().context;
  DeviceLinear linear = linear_of({.m = kPeriod, .n = n, .k = k});
  ASSERT_TRUE(linear.ready());
  const auto kernel = prepare(linear.problem(), GetParam().wide(), m);
  ASSERT_NE(kernel, nullptr);
  auto x = allocate_device(context, m * k * 2);
  auto y = allocate_device(context, m * n * 2);
  auto workspace = allocate_device(context, kernel->workspace_bytes(m));
  ASSERT_TRUE(x && y && workspace);
  const CurrentContext current(context);
  LaunchArgs args = linear.arguments();
  const std::int64_t block_bytes = kPeriod * k * 2;
  for (std::int64_t filled = 0; filled < m * k * 2;) {
    const std::int64_t bytes = filled == 0 ? block_bytes : std::min(filled, m * k * 2 - filled);
    const CUdeviceptr source = filled == 0 ? to_device_pointer(args.activation.x.data) : (*x)->pointer();
    ASSERT_EQ(driver().memcpy_dtod_async((*x)->pointer() + static_cast<CUdeviceptr>(filled), source,
                                         static_cast<std::size_t>(bytes), nullptr),
              CUDA_SUCCESS);
    filled += bytes;
  }
  ASSERT_TRUE(fill_bytes(context, (*y)->pointer(), 0xFF, m * n * 2));
  args.activation.x.data = (*x)->data();
  args.activation.x.rows = args.y.rows = m;
  args.y.data = (*y)->data();
  args.workspace = (*workspace)->data();
  args.workspace_bytes = (*workspace)->bytes();
  const auto ran = kernel->run(linear.weight(), args);
  ASSERT_TRUE(ran) << ran.error().message;

  // The small run is held against the reference; blocks of the large one against the large one's first, which has the bits
  // of the small one's rows.
  ASSERT_TRUE(linear.run(*kernel));
  EXPECT_EQ(linear.verdict(), "");
  const auto block_at = [&](std::int64_t row) {
    std::vector<unsigned char> block(static_cast<std::size_t>(kPeriod * n * 2));
    EXPECT_TRUE(download_bytes(context, block.data(), (*y)->pointer() + static_cast<CUdeviceptr>(row * n * 2),
                               static_cast<std::int64_t>(block.size())));
    return block;
  };
  const std::vector<unsigned char> first = block_at(0);
  EXPECT_NE(std::search(linear.bytes().begin(), linear.bytes().end(), first.begin(), first.end()), linear.bytes().end());
  for (const std::int64_t boundary : {std::int64_t{1} << 18, std::int64_t{1} << 19, std::int64_t{1} << 20}) {
    EXPECT_EQ(block_at(boundary - kPeriod), first) << boundary;
    EXPECT_EQ(block_at(boundary), first) << boundary;
  }
  EXPECT_EQ(block_at(m - kPeriod), first);
}

TEST_P(FamilyCalls, RefusalsPrintWhatWasWantedAndWhatCame) {
  DeviceLinear linear = linear_of({.m = 4, .n = 64, .k = 64});
  DeviceLinear other = linear_of({.m = 4, .n = 80, .k = 64});
  ASSERT_TRUE(linear.ready() && other.ready());
  const auto kernel = prepare(linear.problem(), GetParam().few().front(), 4);
  ASSERT_NE(kernel, nullptr);
  ASSERT_TRUE(linear.run(*kernel));
  const auto said = [&](const PackedWeight& weight, const LaunchArgs& args) {
    const auto ran = kernel->run(weight, args);
    EXPECT_FALSE(ran);
    return ran ? std::string() : ran.error().message;
  };
  using testing::HasSubstr;
  const LaunchArgs good = linear.arguments();
  EXPECT_THAT(said(other.weight(), good), testing::AllOf(HasSubstr("[64, 64]"), HasSubstr("[80, 64]")));
  LaunchArgs args = good;
  args.workspace_bytes = 0;
  EXPECT_THAT(said(linear.weight(), args), HasSubstr("workspace"));
  args = good;
  args.y.cols = 63;
  EXPECT_THAT(said(linear.weight(), args), testing::AllOf(HasSubstr("[4, 64]"), HasSubstr("[4, 63]")));
  args = good;
  args.y.dtype = DType::fp16;
  EXPECT_THAT(said(linear.weight(), args), testing::AllOf(HasSubstr("bf16"), HasSubstr("fp16")));
  args = good;
  args.activation.x.row_stride = 63;
  EXPECT_THAT(said(linear.weight(), args), HasSubstr("(63, 1)"));
  args = good;
  args.activation.x.cols = 32;
  EXPECT_THAT(said(linear.weight(), args), HasSubstr("[4, 32]"));
  EXPECT_TRUE(kernel->run(linear.weight(), good)) << "what was refused has broken nothing";
}

}  // namespace
}  // namespace octile::cuda
