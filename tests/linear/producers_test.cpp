// SPDX-License-Identifier: Apache-2.0
// RmsNorm and SwiGlu on the CPU: the bits of the plain code, fused as unfused, in front of a linear, and every error.
#include <octile/producers.hpp>

#include "layer.h"
#include "octile/quant/producers.h"
#include "support/producer_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace octile {
namespace {

using test::GuardedOutput;
using test::HalfMatrix;
using test::PlainCodes;
using test::ProducerOperands;
using test::ProducerShape;
using testing::AllOf;
using testing::HasSubstr;

ConstMatrixView view_of(const HalfMatrix& matrix) {
  return {matrix.row(0), matrix.dtype, matrix.rows, matrix.cols, matrix.row_stride, 1};
}

// One producer of either kind behind one face.
struct AnyProducer {
  explicit AnyProducer(const ProducerOperands& operands) {
    ProducerOptions options;
    options.k = operands.shape.k;
    options.dtype = operands.shape.dtype;
    options.quantize = operands.shape.quantize;
    options.static_scale = operands.shape.static_scale;
    if (operands.shape.kind == ProducerKind::swiglu) {
      auto made = SwiGlu::create(options);
      EXPECT_TRUE(made) << made.error().message;
      swiglu = std::move(*made);
    } else {
      RmsNormOptions norm_options;
      norm_options.producer = options;
      norm_options.gamma = operands.gamma.bytes.data();
      norm_options.gamma_dtype = operands.shape.dtype;
      norm_options.epsilon = operands.epsilon;
      auto made = RmsNorm::create(norm_options);
      EXPECT_TRUE(made) << made.error().message;
      norm = std::move(*made);
    }
  }
  Expected<void> run(const ConstMatrixView& x, const Residual* residual, const QuantizedRows& out) const {
    return norm ? norm->run(x, residual, out) : swiglu->run(x, out);
  }
  Expected<void> run_unfused(const ConstMatrixView& x, const Residual* residual, const MatrixView& y) const {
    return norm ? norm->run_unfused(x, residual, y) : swiglu->run_unfused(x, y);
  }
  std::optional<RmsNorm> norm;
  std::optional<SwiGlu> swiglu;
};

void expect_contract(const ProducerShape& shape) {
  SCOPED_TRACE(shape.to_string());
  const ProducerOperands operands(shape);
  const AnyProducer producer(operands);
  const std::int64_t m = shape.m;
  const std::int64_t k = shape.k;
  GuardedOutput sums(shape.dtype, m, k, k + shape.padding);
  const Residual residual = {view_of(operands.residual), sums.view()};
  const Residual* const adds = shape.adds ? &residual : nullptr;

  GuardedOutput y(shape.dtype, m, k, k + shape.padding);
  const auto unfused = producer.run_unfused(view_of(operands.x), adds, y.view());
  ASSERT_TRUE(unfused) << unfused.error().message;
  EXPECT_TRUE(y.guards_intact());
  EXPECT_EQ(test::first_difference(shape.dtype, k, test::bytes_of(y.view()), operands.plain_y()), "");
  if (shape.adds) {
    EXPECT_TRUE(sums.guards_intact());
    EXPECT_EQ(test::first_difference(shape.dtype, k, test::bytes_of(sums.view()), operands.plain_sums()), "");
  }

  sums.poison();
  GuardedOutput codes(DType::e4m3, m, k, k + shape.padding);
  GuardedOutput scales(DType::fp32, 1, m, m);
  const auto fused = producer.run(view_of(operands.x), adds, {codes.view(), static_cast<float*>(scales.data())});
  ASSERT_TRUE(fused) << fused.error().message;
  EXPECT_TRUE(codes.guards_intact());
  EXPECT_TRUE(scales.guards_intact());
  if (shape.adds) {
    EXPECT_EQ(test::first_difference(shape.dtype, k, test::bytes_of(sums.view()), operands.plain_sums()), "");
  }
  PlainCodes got;
  got.codes = test::bytes_of(codes.view());
  const auto* first_scale = static_cast<const float*>(scales.data());
  got.scales.assign(first_scale, first_scale + m);
  EXPECT_EQ(test::first_difference(k, got, test::quantised(shape, operands.plain_y())), "");
}

class CpuProducers : public testing::Test {
  testing::ScopedTrace trace_{__FILE__, __LINE__, test::seed_text()};
};

constexpr ProducerKind kKinds[] = {ProducerKind::rms_norm, ProducerKind::swiglu};

TEST_F(CpuProducers, FusedGivesTheBitsOfUnfusedAndTheQuantiser) {
  for (const ProducerKind kind : kKinds) {
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      for (const std::int64_t k : {1, 3, 100, 512, 513, 1000, 4096}) {
        for (const bool adds : {false, true}) {
          if (!adds || kind == ProducerKind::rms_norm) {
            expect_contract({.kind = kind, .dtype = dtype, .m = 19, .k = k, .adds = adds});
            expect_contract({.kind = kind, .dtype = dtype, .m = 2, .k = k, .adds = adds, .padding = 5, .offset = 1});
          }
        }
      }
    }
  }
}

TEST_F(CpuProducers, HonourFloorUpperBoundReciprocalAndStaticScale) {
  for (const ProducerKind kind : kKinds) {
    ProducerShape shape{.kind = kind, .m = 9, .k = 700};
    shape.quantize.floor = 448.0F / 512.0F;
    expect_contract(shape);
    shape.quantize.upper_bound = 1.5F;
    expect_contract(shape);
    shape.quantize.division = Division::reciprocal;
    expect_contract(shape);
    shape.static_scale = 0.013F;
    expect_contract(shape);
  }
}

TEST_F(CpuProducers, ARowThatIsNotFiniteStaysAlone) {
  constexpr std::int64_t kK = 600;
  for (const ProducerKind kind : kKinds) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      ProducerOperands operands(ProducerShape{.kind = kind, .m = 3, .k = kK});
      const AnyProducer producer(operands);
      std::vector<std::uint8_t> codes(3 * kK);
      std::vector<float> scales(3);
      const QuantizedRows out = {{codes.data(), DType::e4m3, 3, kK, kK, 1}, scales.data()};
      for (std::int64_t row = 0; row < 3; ++row) {
        operands.x.set(row, 5, 1.0F);
      }
      ASSERT_TRUE(producer.run(view_of(operands.x), nullptr, out));
      const std::vector<std::uint8_t> before = codes;
      operands.x.set(1, kK - 1, bad);
      ASSERT_TRUE(producer.run(view_of(operands.x), nullptr, out));
      EXPECT_TRUE(std::isnan(scales[1]));
      for (std::int64_t i = 0; i < 3 * kK; ++i) {
        const auto at = static_cast<std::size_t>(i);
        ASSERT_EQ(codes[at], i / kK == 1 ? 0x7F : before[at]) << i;
      }
    }
  }
}

TEST_F(CpuProducers, ResidualAndYMayBeUpdatedInPlace) {
  ProducerOperands operands(ProducerShape{.m = 7, .k = 1100, .adds = true});
  const std::vector<unsigned char> sums = operands.plain_sums();
  const std::vector<unsigned char> y = operands.plain_y();
  const AnyProducer producer(operands);
  const auto writable = [](HalfMatrix& matrix) {
    return MatrixView{matrix.row(0), matrix.dtype, matrix.rows, matrix.cols, matrix.row_stride, 1};
  };
  const Residual residual = {view_of(operands.residual), writable(operands.residual)};
  ASSERT_TRUE(producer.run_unfused(view_of(operands.x), &residual, writable(operands.x)));
  EXPECT_EQ(test::first_difference(DType::bf16, 1100, operands.residual.bytes, sums), "");
  EXPECT_EQ(test::first_difference(DType::bf16, 1100, operands.x.bytes, y), "");
}

TEST_F(CpuProducers, GammaOfAnotherTypeIsRoundedToTheActivations) {
  constexpr std::int64_t kK = 300;
  ProducerOperands operands(ProducerShape{.m = 1, .k = kK});
  std::vector<float> wide(kK);
  for (std::int64_t i = 0; i < kK; ++i) {
    wide[static_cast<std::size_t>(i)] = operands.gamma.at(0, i) * 1.0009F;  // Less than half a place of bf16.
  }
  RmsNormOptions options;
  options.producer.k = kK;
  options.gamma = wide.data();
  options.gamma_dtype = DType::fp32;
  const auto norm = RmsNorm::create(options);
  ASSERT_TRUE(norm) << norm.error().message;
  GuardedOutput y(DType::bf16, 1, kK, kK);
  ASSERT_TRUE(norm->run_unfused(view_of(operands.x), nullptr, y.view()));
  operands.gamma.bytes = test::as_bytes(wide, DType::bf16);
  EXPECT_EQ(test::first_difference(DType::bf16, kK, test::bytes_of(y.view()), operands.plain_y()), "");
}

TEST_F(CpuProducers, ALinearOnTheirCodesGivesTheBitsOfTheLinearOnTheirY) {
  constexpr std::int64_t kM = 5;
  constexpr std::int64_t kK = 200;
  constexpr std::int64_t kN = 72;
  const test::Weights weights(kN, kK);
  auto linear = Fp8Linear::create(Fp8Weight::create(weights.source()).value());
  ASSERT_TRUE(linear) << linear.error().message;
  ASSERT_TRUE(linear->prepare(kM));
  for (const ProducerKind kind : kKinds) {
    const ProducerOperands operands(ProducerShape{.kind = kind, .m = kM, .k = kK});
    const AnyProducer producer(operands);
    GuardedOutput y(DType::bf16, kM, kK, kK);
    ASSERT_TRUE(producer.run_unfused(view_of(operands.x), nullptr, y.view()));
    const auto want = test::run_guarded(*linear, read_only(y.view()), DType::bf16, kN);

    std::vector<std::uint8_t> codes(static_cast<std::size_t>(kM * codes_row_stride(kK)));
    std::vector<float> scales(kM);
    const QuantizedRows rows = {{codes.data(), DType::e4m3, kM, kK, codes_row_stride(kK), 1}, scales.data()};
    ASSERT_TRUE(producer.run(view_of(operands.x), nullptr, rows));
    GuardedOutput out(DType::bf16, kM, kN, kN);
    test::Workspace workspace(linear->workspace_bytes(kM));
    const auto ran =
        linear->run_quantized(read_only(rows.codes), rows.scales, out.view(), workspace.data(), workspace.bytes());
    ASSERT_TRUE(ran) << ran.error().message;
    EXPECT_EQ(test::bytes_of(out.view()), want);
  }
}

TEST_F(CpuProducers, ConcurrentCallsGiveTheSameBits) {
  const ProducerOperands operands(ProducerShape{.m = 40, .k = 900});
  const AnyProducer producer(operands);
  const PlainCodes want = test::quantised(operands.shape, operands.plain_y());
  std::vector<std::thread> threads;
  std::vector<std::string> differences(4);
  for (std::string& difference : differences) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20 && difference.empty(); ++i) {
        PlainCodes got;
        got.codes.resize(40 * 900);
        got.scales.resize(40);
        const auto ran = producer.run(view_of(operands.x), nullptr,
                                      {{got.codes.data(), DType::e4m3, 40, 900, 900, 1}, got.scales.data()});
        difference = ran ? test::first_difference(900, got, want) : ran.error().message;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(differences, testing::Each(""));
}

TEST_F(CpuProducers, NoRowsNeedNoMemory) {
  const ProducerOperands operands(ProducerShape{.k = 64});
  const AnyProducer producer(operands);
  const MatrixView none = {nullptr, DType::bf16, 0, 64, 64, 1};
  const Residual residual = {read_only(none), none};
  EXPECT_TRUE(producer.run_unfused(read_only(none), &residual, none));
  EXPECT_TRUE(producer.run(read_only(none), &residual, {{nullptr, DType::e4m3, 0, 64, 64, 1}, nullptr}));
}

TEST(CodesRowStride, IsTheNextMultipleOfSixteen) {
  EXPECT_EQ(codes_row_stride(1), 16);
  EXPECT_EQ(codes_row_stride(4096), 4096);
  EXPECT_EQ(codes_row_stride(4097), 4112);
}

TEST(ProducerErrors, CreateSaysWhatWasWantedAndWhatCame) {
  const std::vector<std::uint16_t> gamma(64, 0x3F80);
  const auto refused = [&](const std::function<void(RmsNormOptions&)>& change) {
    RmsNormOptions options;
    options.producer.k = 64;
    options.gamma = gamma.data();
    change(options);
    const auto made = RmsNorm::create(options);
    return made ? std::string() : std::string(to_string(made.error().code)) + ": " + made.error().message;
  };
  EXPECT_EQ(refused([](RmsNormOptions&) {}), "");
  EXPECT_THAT(refused([](RmsNormOptions& o) { o.producer.k = 0; }),
              AllOf(HasSubstr("invalid_argument"), HasSubstr("got 0")));
  EXPECT_THAT(refused([](RmsNormOptions& o) { o.producer.k = std::int64_t{1} << 31; }), HasSubstr("got 2147483648"));
  EXPECT_THAT(refused([](RmsNormOptions& o) { o.producer.dtype = DType::fp32; }), HasSubstr("bf16 or fp16, got fp32"));
  EXPECT_THAT(refused([](RmsNormOptions& o) { o.gamma = nullptr; }), HasSubstr("want gamma [64], got a null pointer"));
  EXPECT_THAT(refused([](RmsNormOptions& o) { o.gamma_dtype = DType::e4m3; }), HasSubstr("got e4m3"));
  EXPECT_THAT(refused([](RmsNormOptions& o) { o.epsilon = 0.0F; }), HasSubstr("epsilon > 0, got 0"));
  EXPECT_THAT(refused([](RmsNormOptions& o) { o.epsilon = NAN; }), HasSubstr("got nan"));
  EXPECT_THAT(refused([](RmsNormOptions& o) { o.producer.static_scale = -1.0F; }), HasSubstr("got -1"));
  EXPECT_THAT(refused([](RmsNormOptions& o) { o.producer.quantize.floor = 0.0F; }), HasSubstr("floor"));
  EXPECT_THAT(refused([](RmsNormOptions& o) { o.producer.device = "cuda:99"; }),
              AllOf(HasSubstr("unavailable"), HasSubstr("cuda:99")));
  ProducerOptions options;
  options.k = -3;
  const auto swiglu = SwiGlu::create(options);
  ASSERT_FALSE(swiglu);
  EXPECT_THAT(swiglu.error().message, AllOf(HasSubstr("swiglu"), HasSubstr("got -3")));
}

TEST(ProducerErrors, RunSaysWhichMatrixIsWrong) {
  constexpr std::int64_t kK = 64;
  const ProducerOperands operands(ProducerShape{.m = 2, .k = kK, .adds = true});
  const AnyProducer norm(operands);
  const ProducerOperands gates(ProducerShape{.kind = ProducerKind::swiglu, .m = 2, .k = kK});
  const AnyProducer swiglu(gates);
  GuardedOutput y(DType::bf16, 2, kK, kK);
  GuardedOutput sums(DType::bf16, 2, kK, kK);
  GuardedOutput codes(DType::e4m3, 2, kK, kK);
  std::vector<float> scales(2);
  const auto message = [](const Expected<void>& result) { return result ? std::string() : result.error().message; };

  ConstMatrixView x = view_of(operands.x);
  x.cols = kK - 1;
  EXPECT_THAT(message(norm.run_unfused(x, nullptr, y.view())), HasSubstr("x: want [2, 64], got [2, 63]"));
  x = view_of(operands.x);
  x.dtype = DType::fp16;
  EXPECT_THAT(message(norm.run_unfused(x, nullptr, y.view())), HasSubstr("x: want bf16, got fp16"));
  x = view_of(operands.x);
  x.col_stride = 2;
  EXPECT_THAT(message(norm.run_unfused(x, nullptr, y.view())), HasSubstr("got strides (64, 2)"));
  x = view_of(operands.x);
  EXPECT_THAT(message(swiglu.run_unfused(x, nullptr, y.view())), HasSubstr("gate_up: want [2, 128], got [2, 64]"));

  Residual residual = {view_of(operands.residual), sums.view()};
  residual.in.rows = 1;
  EXPECT_THAT(message(norm.run_unfused(x, &residual, y.view())), HasSubstr("residual: want [2, 64], got [1, 64]"));
  residual = {view_of(operands.residual), sums.view()};
  residual.out.data = nullptr;
  EXPECT_THAT(message(norm.run_unfused(x, &residual, y.view())), AllOf(HasSubstr("residual output"), HasSubstr("null")));

  EXPECT_THAT(message(norm.run_unfused(x, nullptr, codes.view())), HasSubstr("y: want bf16, got e4m3"));
  EXPECT_THAT(message(norm.run(x, nullptr, {y.view(), scales.data()})), HasSubstr("codes: want e4m3, got bf16"));
  EXPECT_THAT(message(norm.run(x, nullptr, {codes.view(), nullptr})), HasSubstr("want their scales, got a null pointer"));
  MatrixView narrow = codes.view();
  narrow.row_stride = 63;
  EXPECT_THAT(message(norm.run(x, nullptr, {narrow, scales.data()})), HasSubstr("row stride >= 64, got strides (63, 1)"));
  EXPECT_TRUE(y.guards_intact());
  EXPECT_FALSE(y.all_written());
}

}  // namespace
}  // namespace octile
