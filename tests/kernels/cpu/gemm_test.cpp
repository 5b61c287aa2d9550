// SPDX-License-Identifier: Apache-2.0
// Every engine against the double-precision reference, at every kind of shape and config; and the guarantees of the
// numerics contract bit for bit.
#include "octile/kernels/cpu/gemm.h"

#include "octile/core/float_formats.h"
#include "octile/core/format.h"
#include "octile/kernels/cpu/families.h"
#include "support/cpu_linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace octile::cpu {
namespace {

using test::compare;
using test::CpuEngine;
using test::LinearOperands;
using test::run_linear;
using test::RunOptions;
using test::RunResult;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class CpuGemm : public ::testing::TestWithParam<CpuEngine> {
 protected:
  void SetUp() override {
    if (!GetParam().runs_here()) {
      GTEST_SKIP() << "this CPU has no " << isa_name(GetParam().needs_here);
    }
  }
  bool has_dot_key() const { return GetParam().family->name() == "avx512"; }
  TileConfig config(int micro_m, int micro_n, std::int64_t block_m, std::int64_t block_n, std::int64_t block_k,
                    Decode decode) const {
    GemmConfig c;
    c.micro_m = micro_m;
    c.micro_n = micro_n;
    c.block_m = block_m;
    c.block_n = block_n;
    c.block_k = block_k;
    c.decode = decode;
    c.prefetch_bytes = 1024;
    c.dot = GetParam().isa >= Isa::avx512bf16;
    return to_tile_config(c, has_dot_key());
  }
  // Legal configs that cut the work in every way: one pass and many, one unit and many, each width of tile.
  std::vector<TileConfig> varied_configs(std::int64_t n, std::int64_t k) const {
    std::vector<TileConfig> result;
    Problem problem;
    problem.n = n;
    problem.k = k;
    for (const int micro_n : {16, 32, 48, 64}) {
      for (const Decode decode : {Decode::in_registers, Decode::ahead, Decode::first_tile}) {
        for (const TileConfig& c : {config(1, micro_n, 5, 64, 32, decode), config(3, micro_n, 64, 128, 96, decode),
                                    config(6, micro_n, 7, 64, 4096, decode), config(14, micro_n, 64, 64, 64, decode),
                                    config(32, micro_n, 64, 128, 64, decode)}) {
          if (GetParam().family->check(GetParam().device(1), problem, c)) {
            result.push_back(c);
          }
        }
      }
    }
    return result;
  }
  float at(const RunResult& result, DType dtype, std::int64_t index) const {
    return load_as_float(result.y.data(), dtype, index);
  }
};

TEST_P(CpuGemm, AgreesWithTheReferenceAtEveryShape) {
  SCOPED_TRACE(test::seed_text());
  for (const std::int64_t n : {1, 3, 4, 12, 17, 20, 63, 65, 1001}) {
    for (const std::int64_t k : {1, 3, 4, 12, 17, 20, 33, 1001}) {
      for (const std::int64_t m : {1, 2, 3, 5, 7, 8, 15, 16, 17, 33}) {
        if (n * k > 100000 && m > 8) {
          continue;
        }
        const LinearOperands operands = LinearOperands::random(m, n, k);
        ASSERT_EQ(compare(operands, {}, run_linear(GetParam(), operands, {})), "") << m << " x " << n << " x " << k;
      }
    }
  }
}

TEST_P(CpuGemm, AgreesWithTheReferenceAtLargerM) {
  SCOPED_TRACE(test::seed_text());
  for (const std::int64_t m : {65, 130, 300}) {
    const LinearOperands operands = LinearOperands::random(m, 132, 260);
    EXPECT_EQ(compare(operands, {}, run_linear(GetParam(), operands, {})), "");
  }
}

TEST_P(CpuGemm, EveryConfigGivesTheSameBits) {
  SCOPED_TRACE(test::seed_text());
  for (const std::int64_t m : {1, 6, 13, 33}) {
    LinearOperands operands = LinearOperands::random(m, 148, 229);
    operands.bias = test::normals(148);
    const RunResult plain = run_linear(GetParam(), operands, {});
    ASSERT_EQ(compare(operands, {}, plain), "");
    const std::vector<TileConfig> configs = varied_configs(operands.n, operands.k);
    ASSERT_GE(configs.size(), 4U);
    for (const TileConfig& c : configs) {
      RunOptions options;
      options.config = c;
      const RunResult result = run_linear(GetParam(), operands, options);
      ASSERT_EQ(result.failure, "") << c.to_json();
      ASSERT_EQ(result.y, plain.y) << "M = " << m << ", " << c.to_json();
    }
  }
}

TEST_P(CpuGemm, EveryConfigOfTheSearchSpaceIsLegalAndRight) {
  SCOPED_TRACE(test::seed_text());
  for (const std::int64_t m : {1, 4, 16, 70}) {
    const LinearOperands operands = LinearOperands::random(m, 208, 320);
    Problem problem;
    problem.n = operands.n;
    problem.k = operands.k;
    const std::vector<TileConfig> space = GetParam().family->space(GetParam().device(2), problem, m);
    EXPECT_GE(space.size(), 3U);
    for (const TileConfig& c : space) {
      RunOptions options;
      options.config = c;
      EXPECT_TRUE(GetParam().family->check(GetParam().device(2), problem, c)) << c.to_json();
      EXPECT_EQ(compare(operands, options, run_linear(GetParam(), operands, options)), "") << c.to_json();
    }
  }
}

TEST_P(CpuGemm, WritesEveryOutputTypeWithAndWithoutBias) {
  SCOPED_TRACE(test::seed_text());
  for (const DType out : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const std::int64_t n : {5, 17, 40, 100}) {
      LinearOperands operands = LinearOperands::random(9, n, 50);
      RunOptions options;
      options.out_dtype = out;
      EXPECT_EQ(compare(operands, options, run_linear(GetParam(), operands, options)), "") << to_string(out);
      operands.bias = test::normals(n);
      EXPECT_EQ(compare(operands, options, run_linear(GetParam(), operands, options)), "") << to_string(out) << ", bias";
      options.y_padding = 0;
      EXPECT_EQ(compare(operands, options, run_linear(GetParam(), operands, options)), "") << to_string(out) << ", dense";
    }
  }
}

TEST_P(CpuGemm, TakesEveryInputTypeAndWayOfScaling) {
  SCOPED_TRACE(test::seed_text());
  for (const DType in : {DType::bf16, DType::fp16, DType::fp32}) {
    const LinearOperands operands = LinearOperands::random(11, 37, 83, in);
    for (const char* preset : {"octile", "vllm", "sglang"}) {
      RunOptions options;
      options.quantize = *quantize_preset(preset);
      EXPECT_EQ(compare(operands, options, run_linear(GetParam(), operands, options)), "") << preset;
    }
    RunOptions fixed;
    fixed.static_scale = 0.0073F;
    EXPECT_EQ(compare(operands, fixed, run_linear(GetParam(), operands, fixed)), "") << "static scale";
    RunOptions codes;
    codes.pre_quantized = true;
    EXPECT_EQ(compare(operands, codes, run_linear(GetParam(), operands, codes)), "") << "codes";
    EXPECT_EQ(run_linear(GetParam(), operands, codes).y, run_linear(GetParam(), operands, {}).y)
        << "quantised here or by the caller: the same bits";
  }
}

// Each code as the only non-zero weight of its channel, times activation 1 and scale 1: the output is the code's value.
TEST_P(CpuGemm, DecodesAll256CodesExactly) {
  for (const Decode decode : {Decode::in_registers, Decode::ahead, Decode::first_tile}) {
    for (std::int64_t k = 0; k < 8; ++k) {
      LinearOperands operands = LinearOperands::of_rows(std::vector<float>(8, 448.0F), 1, 256, 8, DType::bf16);
      std::ranges::fill(operands.codes_w, std::uint8_t{0});
      std::ranges::fill(operands.scales_w, 0x1p-6F / 7.0F);  // Replaced below: 448 = 7 * 64 leaves no exact reciprocal.
      for (std::int64_t code = 0; code < 256; ++code) {
        operands.codes_w[static_cast<std::size_t>(code * 8 + k)] = static_cast<std::uint8_t>(code);
        operands.scales_w[static_cast<std::size_t>(code)] = 1.0F;
      }
      RunOptions options;
      options.out_dtype = DType::fp32;
      options.config = config(1, 16, 1, 64, 32, decode);
      const RunResult result = run_linear(GetParam(), operands, options);
      ASSERT_EQ(result.failure, "");
      for (std::int64_t code = 0; code < 256; ++code) {
        const float want = 448.0F * e4m3_to_float(static_cast<std::uint8_t>(code));
        const float got = at(result, DType::fp32, code);
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(got)) << "code " << code << ": got " << got;
        } else {
          EXPECT_EQ(got, want) << "code " << code << " at k = " << k << ", DECODE = " << static_cast<int>(decode);
        }
      }
    }
  }
}

// The fault of scales taken from another tile's rows or columns: powers of two keep everything exact.
TEST_P(CpuGemm, AppliesEachRowsAndColumnsOwnScaleExactly) {
  const std::int64_t m = 67;
  const std::int64_t n = 197;
  const std::int64_t k = 70;
  LinearOperands operands = LinearOperands::random(m, n, k);
  std::ranges::fill(operands.codes_w, std::uint8_t{0x38});  // 1
  for (std::int64_t column = 0; column < n; ++column) {
    operands.scales_w[static_cast<std::size_t>(column)] = std::ldexp(1.0F, static_cast<int>(column % 41) - 20);
  }
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t i = 0; i < k; ++i) {
      store_from_float(operands.x.data(), operands.x_dtype, row * operands.x_stride + i,
                       448.0F * std::ldexp(1.0F, static_cast<int>(row % 23) - 11));
    }
  }
  RunOptions options;
  options.out_dtype = DType::fp32;
  std::vector<TileConfig> configs = varied_configs(n, k);
  for (const TileConfig& c : configs) {
    options.config = c;
    const RunResult result = run_linear(GetParam(), operands, options);
    ASSERT_EQ(result.failure, "");
    for (std::int64_t row = 0; row < m; ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        const double want = 448.0 * static_cast<double>(k) * std::ldexp(1.0, static_cast<int>(row % 23) - 11) *
                            static_cast<double>(operands.scales_w[static_cast<std::size_t>(column)]);
        ASSERT_EQ(static_cast<double>(at(result, DType::fp32, row * n + column)), want)
            << "row " << row << ", column " << column << ", " << c.to_json();
      }
    }
  }
}

TEST_P(CpuGemm, ScalesThenAddsTheBiasWithoutFusingTheTwo) {
  // Neither product is exact, and the bias is the negative of the rounded one: a fused multiply-add would leave the error of
  // the second product in place of 0.
  const float x = 301.0F;
  const float scale_x = x / 448.0F;
  LinearOperands operands = LinearOperands::of_rows({x}, 1, 40, 1, DType::fp32);
  std::ranges::fill(operands.codes_w, std::uint8_t{0x44});  // 3
  operands.bias = std::vector<float>(40);
  for (std::size_t i = 0; i < 40; ++i) {
    operands.scales_w[i] = 0.1F + static_cast<float>(i) * 0.0137F;
    const float product = (448.0F * 3.0F * operands.scales_w[i]) * scale_x;
    operands.bias[i] = -product;
  }
  RunOptions options;
  options.out_dtype = DType::fp32;
  const RunResult result = run_linear(GetParam(), operands, options);
  ASSERT_EQ(result.failure, "");
  for (std::int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(at(result, DType::fp32, i), 0.0F) << "column " << i;
  }
}

TEST_P(CpuGemm, ZeroRowsGiveTheBiasAndTinyRowsStayFinite) {
  SCOPED_TRACE(test::seed_text());
  const std::int64_t k = 100;
  std::vector<float> rows = test::normals(4 * k);
  std::fill_n(rows.begin() + k, k, 0.0F);
  for (std::int64_t i = 0; i < k; ++i) {
    rows[static_cast<std::size_t>(2 * k + i)] *= 1e-38F;
    rows[static_cast<std::size_t>(3 * k + i)] *= 1e-40F;
  }
  LinearOperands operands = LinearOperands::of_rows(rows, 4, 33, k, DType::bf16);
  operands.bias = test::normals(33);
  RunOptions options;
  options.out_dtype = DType::fp32;
  const RunResult result = run_linear(GetParam(), operands, options);
  EXPECT_EQ(compare(operands, options, result), "");
  for (std::int64_t n = 0; n < 33; ++n) {
    EXPECT_EQ(at(result, DType::fp32, 33 + n), operands.bias[static_cast<std::size_t>(n)]);
    EXPECT_TRUE(std::isfinite(at(result, DType::fp32, 2 * 33 + n)));
    EXPECT_TRUE(std::isfinite(at(result, DType::fp32, 3 * 33 + n)));
  }
}

TEST_P(CpuGemm, HandlesOutliersAndRowsOfTheLargestCode) {
  SCOPED_TRACE(test::seed_text());
  const std::int64_t k = 2000;
  std::vector<float> rows = test::normals_with_outliers(4 * k);
  for (std::int64_t i = 0; i < k; ++i) {
    rows[static_cast<std::size_t>(k + i)] = i % 3 == 0 ? -448.0F : 448.0F;
  }
  LinearOperands operands = LinearOperands::of_rows(rows, 4, 50, k, DType::bf16);
  EXPECT_EQ(compare(operands, {}, run_linear(GetParam(), operands, {})), "");
}

TEST_P(CpuGemm, ARowThatIsNotFiniteIsNaNAndChangesNoOther) {
  SCOPED_TRACE(test::seed_text());
  for (const DType in : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const float bad : {kNaN, kInfinity, -kInfinity}) {
      LinearOperands operands = LinearOperands::random(7, 41, 90, in);
      const RunResult clean = run_linear(GetParam(), operands, {});
      store_from_float(operands.x.data(), in, 3 * operands.x_stride + 89, bad);
      RunOptions fixed;
      fixed.static_scale = 0.01F;
      for (const bool is_static : {false, true}) {
        const RunResult result = run_linear(GetParam(), operands, is_static ? fixed : RunOptions{});
        ASSERT_EQ(result.failure, "");
        for (std::int64_t row = 0; row < 7; ++row) {
          for (std::int64_t n = 0; n < 41; ++n) {
            const float got = at(result, DType::bf16, row * 41 + n);
            if (row == 3) {
              EXPECT_TRUE(std::isnan(got)) << "column " << n << ": got " << got;
            } else if (!is_static) {
              EXPECT_EQ(got, at(clean, DType::bf16, row * 41 + n)) << "row " << row << ", column " << n;
            } else {
              EXPECT_TRUE(std::isfinite(got)) << "row " << row << ", column " << n;
            }
          }
        }
      }
    }
  }
}

TEST_P(CpuGemm, ANaNCodeHandedOverSpoilsItsRowAlone) {
  const std::int64_t m = 3;
  const std::int64_t k = 40;
  LinearOperands operands = LinearOperands::random(m, 20, k);
  store_from_float(operands.x.data(), operands.x_dtype, operands.x_stride + 2, kNaN);
  RunOptions codes;
  codes.pre_quantized = true;
  EXPECT_EQ(compare(operands, codes, run_linear(GetParam(), operands, codes)), "");
}

TEST_P(CpuGemm, AChannelWithANaNWeightIsNaNAndChangesNoOther) {
  SCOPED_TRACE(test::seed_text());
  for (const std::uint8_t nan : {std::uint8_t{0x7F}, std::uint8_t{0xFF}}) {
    LinearOperands operands = LinearOperands::random(5, 70, 65);
    const RunResult clean = run_linear(GetParam(), operands, {});
    operands.codes_w[18 * 65 + 64] = nan;
    const RunResult result = run_linear(GetParam(), operands, {});
    ASSERT_EQ(result.failure, "");
    for (std::int64_t i = 0; i < 5 * 70; ++i) {
      if (i % 70 == 18) {
        EXPECT_TRUE(std::isnan(at(result, DType::bf16, i)));
      } else {
        EXPECT_EQ(at(result, DType::bf16, i), at(clean, DType::bf16, i)) << "row " << i / 70 << ", column " << i % 70;
      }
    }
  }
}

TEST_P(CpuGemm, AnyNumberOfThreadsGivesTheSameBits) {
  SCOPED_TRACE(test::seed_text());
  for (const std::int64_t m : {1, 9, 70}) {
    const LinearOperands operands = LinearOperands::random(m, 517, 700);
    RunOptions options;
    options.config = GetParam().family->heuristic(GetParam().device(2), Problem{517, 700}, m);
    options.threads = 1;
    const RunResult one = run_linear(GetParam(), operands, options);
    ASSERT_EQ(one.failure, "");
    for (const int threads : {2, 3, 8}) {
      options.threads = threads;
      EXPECT_EQ(run_linear(GetParam(), operands, options).y, one.y) << threads << " threads, M = " << m;
    }
  }
}

TEST_P(CpuGemm, ARowsBitsDoNotDependOnTheBatch) {
  SCOPED_TRACE(test::seed_text());
  const LinearOperands all = LinearOperands::random(33, 147, 613);
  const std::int64_t row = 1;
  RunOptions options;
  options.batch_invariant = true;
  const RunResult alone = run_linear(GetParam(), all.rows(row, 1), options);
  ASSERT_EQ(alone.failure, "");
  for (const std::int64_t m : {2, 3, 5, 6, 7, 12, 17, 33}) {
    const RunResult batch = run_linear(GetParam(), all.rows(0, m), options);
    ASSERT_EQ(batch.failure, "");
    const std::int64_t row_bytes = 147 * size_of(DType::bf16);
    const std::vector<unsigned char> got(batch.y.begin() + row * row_bytes, batch.y.begin() + (row + 1) * row_bytes);
    EXPECT_EQ(got, alone.y) << "among " << m << " rows";
  }
}

TEST_P(CpuGemm, AHundredRunsGiveTheSameBits) {
  SCOPED_TRACE(test::seed_text());
  const LinearOperands operands = LinearOperands::random(21, 200, 300);
  for (const Decode decode : {Decode::in_registers, Decode::ahead, Decode::first_tile}) {
    RunOptions options;
    options.config = config(1, 16, 8, 64, 96, decode);
    options.threads = 4;
    const RunResult first = run_linear(GetParam(), operands, options);
    ASSERT_EQ(first.failure, "");
    for (int i = 1; i < 100; ++i) {
      ASSERT_EQ(run_linear(GetParam(), operands, options).y, first.y) << "run " << i;
    }
  }
}

TEST_P(CpuGemm, EveryConfigOfTheSearchSpaceRepeatsItsBits) {
  SCOPED_TRACE(test::seed_text());
  for (const std::int64_t m : {1, 16, 70}) {
    const LinearOperands operands = LinearOperands::random(m, 208, 320);
    Problem problem;
    problem.n = operands.n;
    problem.k = operands.k;
    for (const TileConfig& c : GetParam().family->space(GetParam().device(4), problem, m)) {
      RunOptions options;
      options.config = c;
      options.threads = 4;
      const RunResult first = run_linear(GetParam(), operands, options);
      ASSERT_EQ(first.failure, "") << c.to_json();
      for (int i = 1; i < 30; ++i) {
        const RunResult again = run_linear(GetParam(), operands, options);
        ASSERT_EQ(again.failure, "") << c.to_json();
        ASSERT_EQ(again.y, first.y) << "M = " << m << ", run " << i << ", " << c.to_json();
      }
    }
  }
}

TEST_P(CpuGemm, Fp16OverflowsOnlyInTheLastRounding) {
  // The sum, 448 * 448 * 8, is beyond fp16's 65504, the result is not; and the other way round.
  LinearOperands operands = LinearOperands::of_rows(std::vector<float>(8, 448.0F), 1, 34, 8, DType::fp16);
  std::ranges::fill(operands.codes_w, std::uint8_t{0x7E});  // 448
  std::ranges::fill(operands.scales_w, 0x1p-10F);
  operands.scales_w[33] = 1.0F;
  RunOptions options;
  options.out_dtype = DType::fp16;
  const RunResult result = run_linear(GetParam(), operands, options);
  ASSERT_EQ(result.failure, "");
  for (std::int64_t n = 0; n < 33; ++n) {
    EXPECT_EQ(at(result, DType::fp16, n), 1568.0F);
  }
  EXPECT_EQ(at(result, DType::fp16, 33), kInfinity);
}

TEST_P(CpuGemm, KeepsSubnormalOutputs) {
  LinearOperands operands = LinearOperands::of_rows({448.0F}, 1, 20, 1, DType::bf16);
  std::ranges::fill(operands.codes_w, std::uint8_t{0x38});
  std::ranges::fill(operands.scales_w, 0x1p-139F);
  const RunResult result = run_linear(GetParam(), operands, {});
  ASSERT_EQ(result.failure, "");
  for (std::int64_t n = 0; n < 20; ++n) {
    EXPECT_EQ(at(result, DType::bf16, n), 448.0F * 0x1p-139F);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, CpuGemm, ::testing::ValuesIn(test::cpu_engines()),
                         [](const auto& instance) { return instance.param.label; });

// One order of additions for all fp32 engines, so that a table may mix their families.
TEST(CpuEngines, AllFp32EnginesGiveTheSameBits) {
  SCOPED_TRACE(test::seed_text());
  LinearOperands operands = LinearOperands::random(13, 150, 777);
  operands.bias = test::normals(150);
  const std::vector<CpuEngine> engines = test::cpu_engines();
  RunOptions options;
  options.out_dtype = DType::fp32;
  const RunResult reference = run_linear(engines[0], operands, options);
  ASSERT_EQ(compare(operands, options, reference), "");
  for (std::size_t i = 1; i < 3; ++i) {
    if (engines[i].runs_here()) {
      EXPECT_EQ(run_linear(engines[i], operands, options).y, reference.y) << engines[i].label;
    }
  }
}

}  // namespace
}  // namespace octile::cpu
