// SPDX-License-Identifier: Apache-2.0
// Properties of every CPU engine on shapes, types and values that RapidCheck draws and, where one does not hold, shrinks.
// The seed is fresh each run and printed on failure; RC_PARAMS="seed=..." repeats it, RC_PARAMS="max_success=1000" tries
// more.
#include "octile/core/float_formats.h"
#include "support/cpu_linear.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace octile::test {
namespace {

constexpr std::int64_t kLargest = 600;

// One linear and how it is called.
struct Drawn {
  LinearOperands operands;
  RunOptions options;
};

Drawn draw() {
  const auto dimension = [] { return *rc::gen::inRange<std::int64_t>(1, kLargest + 1); };
  // Few tokens are the common case, and cheap to check.
  const std::int64_t m = *rc::gen::weightedOneOf<std::int64_t>(
      {{8, rc::gen::inRange<std::int64_t>(1, 40)}, {1, rc::gen::inRange<std::int64_t>(40, kLargest + 1)}});
  const std::int64_t n = dimension();
  const std::int64_t k = dimension();
  Drawn drawn;
  drawn.operands = LinearOperands::random(m, n, k, *rc::gen::element(DType::bf16, DType::fp16));
  if (*rc::gen::arbitrary<bool>()) {
    drawn.operands.bias = normals(n);
  }
  drawn.options.out_dtype = *rc::gen::element(DType::bf16, DType::fp16, DType::fp32);
  drawn.options.y_padding = *rc::gen::inRange<std::int64_t>(0, 9);
  drawn.options.threads = *rc::gen::inRange(1, 4);
  drawn.options.batch_invariant = *rc::gen::arbitrary<bool>();
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      drawn.options.static_scale = 0.03F;
      break;
    case 1:
      drawn.options.pre_quantized = true;
      break;
    default:
      break;
  }
  RC_TAG(to_string(drawn.options.out_dtype));
  return drawn;
}

std::vector<unsigned char> rows_of(const std::vector<unsigned char>& y, std::int64_t first, std::int64_t count,
                                   std::int64_t bytes_a_row) {
  return {y.begin() + first * bytes_a_row, y.begin() + (first + count) * bytes_a_row};
}

class Properties : public testing::TestWithParam<CpuEngine> {
 protected:
  void SetUp() override {
    if (!GetParam().runs_here()) {
      GTEST_SKIP() << GetParam().label << " does not run on this machine";
    }
  }
  static RunResult run(const Drawn& drawn) {
    RunResult result = run_linear(GetParam(), drawn.operands, drawn.options);
    if (!result.failure.empty()) {
      RC_FAIL(result.failure);
    }
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(Engines, Properties, testing::ValuesIn(cpu_engines()),
                         [](const auto& engine) { return engine.param.label; });

TEST_P(Properties, EveryShapeTypeAndModeIsTheReferenceAndRepeatsItsBits) {
  EXPECT_TRUE(rc::check([] {
    const Drawn drawn = draw();
    const RunResult result = run(drawn);
    const std::string problem = compare(drawn.operands, drawn.options, result);
    if (!problem.empty()) {
      RC_FAIL(problem);
    }
    RC_ASSERT(run(drawn).y == result.y);
  }));
}

TEST_P(Properties, BatchInvariantRowsDoNotDependOnTheOthers) {
  EXPECT_TRUE(rc::check([] {
    Drawn drawn = draw();
    drawn.options.batch_invariant = true;
    const RunResult all = run(drawn);
    const std::int64_t first = *rc::gen::inRange<std::int64_t>(0, drawn.operands.m);
    const std::int64_t count = *rc::gen::inRange<std::int64_t>(1, drawn.operands.m - first + 1);
    Drawn some{drawn.operands.rows(first, count), drawn.options};
    const std::int64_t bytes = drawn.operands.n * size_of(drawn.options.out_dtype);
    RC_ASSERT(run(some).y == rows_of(all.y, first, count, bytes));
  }));
}

TEST_P(Properties, OnesWithPowersOfTwoAsScalesAreExact) {
  EXPECT_TRUE(rc::check([] {
    Drawn drawn = draw();
    LinearOperands& operands = drawn.operands;
    operands = LinearOperands::of_rows(std::vector<float>(static_cast<std::size_t>(operands.m * operands.k), 1.0F),
                                       operands.m, operands.n, operands.k, operands.x_dtype);
    std::ranges::fill(operands.codes_w, std::uint8_t{0x38});
    for (float& scale : operands.scales_w) {
      scale = std::ldexp(1.0F, *rc::gen::inRange(-20, 21));
    }
    operands.bias.clear();
    drawn.options.out_dtype = DType::fp32;
    drawn.options.static_scale = 1.0F;
    drawn.options.pre_quantized = false;
    const RunResult result = run(drawn);
    for (std::int64_t i = 0; i < operands.m * operands.n; ++i) {
      const float wanted = static_cast<float>(operands.k) * operands.scales_w[static_cast<std::size_t>(i % operands.n)];
      RC_ASSERT(load_as_float(result.y.data(), DType::fp32, i) == wanted);
    }
  }));
}

TEST_P(Properties, ARowThatIsNotFiniteGivesNaNAndChangesNoOther) {
  EXPECT_TRUE(rc::check([] {
    Drawn drawn = draw();
    drawn.options.pre_quantized = false;
    LinearOperands& operands = drawn.operands;
    const RunResult clean = run(drawn);
    const std::int64_t row = *rc::gen::inRange<std::int64_t>(0, operands.m);
    const std::int64_t column = *rc::gen::inRange<std::int64_t>(0, operands.k);
    const float wrong = *rc::gen::element(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                                          -std::numeric_limits<float>::infinity());
    const std::vector<unsigned char> bytes = as_bytes({wrong}, operands.x_dtype);
    std::ranges::copy(bytes,
                      operands.x.begin() + (row * operands.x_stride + column) * static_cast<std::int64_t>(bytes.size()));
    const RunResult result = run_linear(GetParam(), operands, drawn.options);
    for (std::int64_t i = 0; i < operands.m * operands.n; ++i) {
      const DType out = drawn.options.out_dtype;
      if (i / operands.n == row) {
        RC_ASSERT(std::isnan(load_as_float(result.y.data(), out, i)));
      }
    }
    const std::int64_t row_bytes = operands.n * size_of(drawn.options.out_dtype);
    RC_ASSERT(rows_of(result.y, 0, row, row_bytes) == rows_of(clean.y, 0, row, row_bytes));
    RC_ASSERT(rows_of(result.y, row + 1, operands.m - row - 1, row_bytes) ==
              rows_of(clean.y, row + 1, operands.m - row - 1, row_bytes));
  }));
}

}  // namespace
}  // namespace octile::test
