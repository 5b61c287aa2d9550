// SPDX-License-Identifier: Apache-2.0
// Turning Octile on changes no bit: with numerics=baseline every row of every M has the bits that the baseline gives it with
// the kill switch off. Skipped without a GPU that cuBLASLt's row-wise mode and our own kernels serve.
#include "cuda_table.h"
#include "hopper_linears.h"
#include "layer.h"
#include "octile/core/env.h"
#include "support/gpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace octile {
namespace {

using test::CudaTable;
using test::DeviceBytes;
using test::Stream;
using test::Weights;

constexpr std::int64_t kMostRows = 16384;
constexpr std::int64_t kEveryMUpTo = 1024;
constexpr int kSampled = 200;  // Above.
constexpr std::int64_t kRowsBehind = 4;

// Intervals of M without a gap, each with a config that the tuner would try at its end, drawn from all of them.
std::vector<TableEntry> entries_of_every_m(const CudaTable& table) {
  std::vector<TableEntry> entries;
  std::int64_t first = 1;
  for (const std::int64_t last :
       {1, 4, 8, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 300, 384, 512, 640, 769, 1024, 2048, 4096, 8192, 16384}) {
    const KernelFamily& family = last <= 64 ? cuda::hopper_decode_family() : cuda::hopper_wgmma_family();
    const std::vector<TileConfig> space = family.space(table.device, table.problem, last);
    EXPECT_FALSE(space.empty()) << last;
    std::uniform_int_distribution<std::size_t> draw(0, space.size() - 1);
    entries.push_back(table.entry_of(family, first, last, space.at(draw(test::generator()))));
    first = last + 1;
  }
  return entries;
}

struct Case {
  std::int64_t n, k;
  Accumulate accumulate;
};

class BaselineBitsOnGpu : public test::HopperLinears, public testing::WithParamInterface<Case> {};

// K without a remainder to the last byte of a row's alignment, and with one; N likewise.
INSTANTIATE_TEST_SUITE_P(Gpu, BaselineBitsOnGpu,
                         testing::Values(Case{1024, 1536, Accumulate::fast}, Case{1024, 1536, Accumulate::precise},
                                         Case{328, 1104, Accumulate::fast}),
                         [](const auto& given) {
                           return "N" + std::to_string(given.param.n) + "K" + std::to_string(given.param.k) +
                                  to_string(given.param.accumulate);
                         });

TEST_P(BaselineBitsOnGpu, EveryMHasThoseOfTheKillSwitch) {
  SCOPED_TRACE(test::seed_text());
  const std::int64_t n = GetParam().n;
  const std::int64_t k = GetParam().k;
  const Accumulate accumulate = GetParam().accumulate;
  CudaTable table(n, k);
  table.device = test::gpu().context->info;
  table.problem.numerics = Numerics::baseline;
  table.problem.accumulate = accumulate;
  table.write(entries_of_every_m(table));
  const Weights weights(n, k);
  const DeviceBytes x(test::as_bytes(test::normals_with_outliers(kMostRows * k), DType::bf16));
  const std::int64_t row_bytes = n * size_of(DType::bf16);
  const Stream stream;
  WeightOptions options = table.options();
  options.accumulate = accumulate;

  // The first `m` rows by `linear`, and what is behind them in memory.
  const auto run = [&](const Fp8Linear& linear, std::int64_t m, const DeviceBytes& workspace) {
    DeviceBytes y((m + kRowsBehind) * row_bytes);
    y.fill(0xFF);
    const auto ran = linear.run({x.data(), DType::bf16, m, k, k, 1}, {y.data(), DType::bf16, m, n, n, 1}, workspace.data(),
                                workspace.bytes(), stream.stream);
    EXPECT_TRUE(ran) << ran.error().message;
    return test::bytes_of(y);
  };
  const auto linear_of = [&]() -> std::optional<Fp8Linear> {
    const std::optional<Fp8Weight> weight = test::packed_weight(weights.source(), options);
    return weight ? test::prepared_linear(*weight, kMostRows) : std::nullopt;
  };

  std::vector<unsigned char> wanted;
  {
    const env::ScopedOverride off("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE", "off");
    const auto baseline = linear_of();
    ASSERT_TRUE(baseline);
    ASSERT_EQ(baseline->explain(kMostRows).choice, "baseline");
    const DeviceBytes workspace(baseline->workspace_bytes(kMostRows));
    wanted = run(*baseline, kMostRows, workspace);
  }
  const auto linear = linear_of();
  ASSERT_TRUE(linear);
  const DeviceBytes workspace(linear->workspace_bytes(kMostRows));
  std::vector<std::int64_t> ms;
  for (std::int64_t m = 1; m <= kEveryMUpTo; ++m) {
    ms.push_back(m);
  }
  std::uniform_int_distribution<std::int64_t> above(kEveryMUpTo + 1, kMostRows);
  for (int i = 0; i < kSampled; ++i) {
    ms.push_back(above(test::generator()));
  }
  ms.push_back(kMostRows);
  std::map<std::string, int> served;
  for (const std::int64_t m : ms) {
    const Explanation explanation = linear->explain(m);
    ++served[explanation.kernel];
    const std::vector<unsigned char> got = run(*linear, m, workspace);
    const auto bytes = static_cast<std::size_t>(m * row_bytes);
    ASSERT_EQ(std::memcmp(got.data(), wanted.data(), bytes), 0)
        << "M=" << m << ", " << explanation.kernel << " " << explanation.config;
    ASSERT_TRUE(std::all_of(got.begin() + static_cast<std::ptrdiff_t>(bytes), got.end(),
                            [](unsigned char byte) { return byte == 0xFF; }))
        << "rows beyond M=" << m << " were written by " << explanation.kernel;
  }
  // Not the baseline against itself.
  EXPECT_GT(served["hopper_decode"], 0);
  EXPECT_GT(served["hopper_wgmma"], 0);
  for (const auto& [kernel, count] : served) {
    std::printf("%s served %d of %zu M\n", kernel.c_str(), count, ms.size());
  }
}

}  // namespace
}  // namespace octile
