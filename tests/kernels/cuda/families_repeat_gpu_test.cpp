// SPDX-License-Identifier: Apache-2.0
// A thousand calls of every family behind each other, where its bits are promised: always the same ones, and those of each
// row alone. Skipped without a GPU.
#include "family_under_test.h"
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "support/gpu_linear.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace octile::cuda {
namespace {

using test::DeviceBytes;
using test::DeviceLinear;
using test::Stream;

constexpr std::int64_t kM = 37;
constexpr int kCalls = 1000;

// Those that differ most, and the family's own choices, of which the problem allows some.
std::vector<TileConfig> configs_of(const FamilyUnderTest& tested, const DeviceInfo& device, const Problem& problem) {
  std::vector<TileConfig> configs;
  std::vector<TileConfig> candidates = tested.few();
  for (const std::int64_t m : {std::int64_t{1}, kM}) {
    candidates.push_back(tested.family().heuristic(device, problem, m));
  }
  for (const TileConfig& config : candidates) {
    if (std::ranges::find(configs, config) == configs.end() && tested.family().check(device, problem, config)) {
      configs.push_back(config);
    }
  }
  return configs;
}

class FamilyRepeats : public FamilyTest {};
INSTANTIATE_TEST_SUITE_P(Gpu, FamilyRepeats, testing::ValuesIn(families_and_layouts_under_test()), name_of);

// `args` for the rows [first, first + count), whose output goes to `y`.
LaunchArgs rows_of(const LaunchArgs& args, std::int64_t first, std::int64_t count, void* y) {
  LaunchArgs part = args;
  const ConstMatrixView& x = args.activation.x;
  part.activation.x.data = static_cast<const unsigned char*>(x.data) + first * x.row_stride * size_of(x.dtype);
  part.activation.x.rows = part.y.rows = count;
  part.y.data = y;
  return part;
}

TEST_P(FamilyRepeats, AThousandCallsHaveTheSameBitsAndEachRowAloneHasThose) {
  const Stream stream(CU_STREAM_NON_BLOCKING);
  for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
    // N and K of whole slabs, for the families that read such.
    DeviceLinear linear(cuda_backend(), device(), {.m = kM, .n = 576, .k = 1152, .bias = true, .accumulate = accumulate},
                        GetParam().layout == WeightLayout::slab64 ? kSlab64 : kRowMajor);
    ASSERT_TRUE(linear.ready());
    Problem problem = linear.problem();
    problem.layout = GetParam().layout;
    GetParam().promise_bits(problem);
    const std::vector<TileConfig> configs = configs_of(GetParam(), device(), problem);
    ASSERT_FALSE(configs.empty());
    std::optional<std::vector<unsigned char>> promised;
    for (const TileConfig& config : configs) {
      SCOPED_TRACE(config.to_json() + ", accumulate " + to_string(accumulate));
      const auto kernel = family().prepare(device(), problem, config, kM);
      ASSERT_TRUE(kernel) << kernel.error().message;
      ASSERT_TRUE(linear.run(**kernel));
      ASSERT_EQ(linear.verdict(), "");

      const LaunchArgs args = linear.arguments(stream.stream);
      const std::int64_t row_bytes = args.y.row_stride * size_of(args.y.dtype);
      const std::int64_t y_bytes = kM * row_bytes;
      // One output a call, and one for the rows alone.
      const DeviceBytes outputs((kCalls + 1) * y_bytes);
      ASSERT_EQ(Stream::driver().memset_d8_async(outputs.pointer(), 0xFF, static_cast<std::size_t>(outputs.bytes()),
                                                 stream.stream),
                CUDA_SUCCESS);
      const auto output = [&](std::int64_t offset) { return static_cast<unsigned char*>(outputs.data()) + offset; };
      for (int i = 0; i < kCalls; ++i) {
        const auto ran = (*kernel)->run(linear.weight(), rows_of(args, 0, kM, output(i * y_bytes)));
        ASSERT_TRUE(ran) << ran.error().message;
      }
      for (std::int64_t row = 0; row < kM; ++row) {
        const auto ran = (*kernel)->run(linear.weight(), rows_of(args, row, 1, output(kCalls * y_bytes + row * row_bytes)));
        ASSERT_TRUE(ran) << ran.error().message;
      }
      stream.synchronize();
      const std::vector<unsigned char> all = bytes_of(outputs);
      for (int i = 1; i < kCalls; ++i) {
        ASSERT_TRUE(std::equal(all.begin(), all.begin() + y_bytes, all.begin() + i * y_bytes)) << "call " << i;
      }
      for (std::int64_t row = 0; row < kM; ++row) {
        const auto one = all.begin() + kCalls * y_bytes + row * row_bytes;
        EXPECT_TRUE(std::equal(one, one + row_bytes, all.begin() + row * row_bytes)) << "row " << row << " alone";
      }
      // Every config of such a problem has the bits of any other.
      const std::vector<unsigned char> first(all.begin(), all.begin() + y_bytes);
      EXPECT_EQ(first, promised.value_or(first));
      promised = first;
    }
  }
}

}  // namespace
}  // namespace octile::cuda
