// SPDX-License-Identifier: Apache-2.0
// Fp8Linear on a fake device: what it checks, what it launches and with which workspace, and how calls are cut into chunks.
#include "layer.h"
#include "octile/core/env.h"
#include "octile/linear/weight.h"
#include "support/fake_backend.h"
#include "support/log_capture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace octile {
namespace {

using test::bytes_of;
using test::expect_close;
using test::FakeBackend;
using test::FakeFamily;
using test::GuardedOutput;
using test::Inputs;
using test::run_guarded;
using test::Weights;
using test::Workspace;
using testing::AllOf;
using testing::HasSubstr;
using testing::SizeIs;

// Without a vendor, so that the heuristic of "ours" (tile = M) serves every M.
class Linear : public testing::Test {
 protected:
  Linear() : ours(backend.add("ours")), weights(33, 20, 4) {}
  Fp8Weight weight(const WeightOptions& options = {}) const {
    auto made = pack_weight(backend.device(), weights.source(), options);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return *made;
  }
  Fp8Linear linear(const LinearOptions& options = {}, const WeightOptions& weight_options = {}) const {
    auto made = Fp8Linear::create(weight(weight_options), options);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return *made;
  }
  Fp8Linear prepared(std::int64_t max_m, const LinearOptions& options = {}, const WeightOptions& weight_options = {}) const {
    Fp8Linear made = linear(options, weight_options);
    const auto ok = made.prepare(max_m);
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
    return made;
  }

  testing::ScopedTrace trace{__FILE__, __LINE__, test::seed_text()};
  FakeBackend backend;
  FakeFamily& ours;
  Weights weights;
};

TEST_F(Linear, IsTheReferenceForEveryOutputTypeAndActivationType) {
  for (const DType out : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const DType in : {DType::bf16, DType::fp16}) {
      LinearOptions options;
      options.x_dtype = in;
      WeightOptions weight_options;
      weight_options.out_dtype = out;
      const Fp8Linear layer = prepared(8, options, weight_options);
      const Inputs x(5, 20, 0, in);
      GuardedOutput y(out, 5, 33, 40);
      Workspace workspace(layer.workspace_bytes(5));
      ASSERT_TRUE(layer.run(x.view(), y.view(), workspace.data(), workspace.bytes()));
      EXPECT_TRUE(y.all_written());
      EXPECT_TRUE(y.guards_intact());
      expect_close(weights, x, nullptr, y.view());
    }
  }
}

TEST_F(Linear, PaddedRowsAreReadByTheirStride) {
  const Fp8Linear layer = prepared(8);
  const Inputs x(6, 20, 13);
  GuardedOutput y(DType::bf16, 6, 33, 33);
  Workspace workspace(layer.workspace_bytes(6));
  ASSERT_TRUE(layer.run(x.view(), y.view(), workspace.data(), workspace.bytes()));
  expect_close(weights, x, nullptr, y.view());
}

TEST_F(Linear, BiasOfEveryTypeIsWidenedExactlyAndCopied) {
  const std::vector<float> values = test::normals(33);
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    std::vector<unsigned char> bias = test::as_bytes(values, dtype);
    std::vector<float> widened(33);
    for (std::int64_t i = 0; i < 33; ++i) {
      widened[static_cast<std::size_t>(i)] = load_as_float(bias.data(), dtype, i);
    }
    LinearOptions options;
    options.bias = bias.data();
    options.bias_dtype = dtype;
    const Fp8Linear layer = prepared(4, options);
    std::ranges::fill(bias, 0xFF);
    const Inputs x(4, 20);
    GuardedOutput y(DType::bf16, 4, 33, 33);
    Workspace workspace(layer.workspace_bytes(4));
    ASSERT_TRUE(layer.run(x.view(), y.view(), workspace.data(), workspace.bytes()));
    expect_close(weights, x, widened.data(), y.view());
  }
}

TEST_F(Linear, AStaticScaleServesAllRows) {
  LinearOptions options;
  options.activation = ActivationMode::static_per_tensor;
  options.static_scale = 0.05F;
  const Fp8Linear layer = prepared(4, options);
  Inputs x(4, 20);
  for (std::int64_t row = 0; row < 4; ++row) {
    x.scales[static_cast<std::size_t>(row)] =
        quantize_row_static(x.bytes.data() + row * 40, DType::bf16, 20, x.codes.data() + row * 20, 0.05F);
  }
  GuardedOutput y(DType::bf16, 4, 33, 33);
  Workspace workspace(layer.workspace_bytes(4));
  ASSERT_TRUE(layer.run(x.view(), y.view(), workspace.data(), workspace.bytes()));
  expect_close(weights, x, nullptr, y.view());
}

TEST_F(Linear, QuantisedActivationsGiveTheBitsOfRawOnes) {
  const Inputs x(7, 20);
  const Fp8Linear raw = prepared(8);
  LinearOptions options;
  options.activation = ActivationMode::quantized;
  const Fp8Linear quantized = prepared(8, options);
  const auto expected = run_guarded(raw, x.view(), DType::bf16, 33);
  for (const Fp8Linear& layer : {raw, quantized}) {
    GuardedOutput y(DType::bf16, 7, 33, 33);
    Workspace workspace(layer.workspace_bytes(7));
    ASSERT_TRUE(layer.run_quantized(x.codes_view(), x.scales.data(), y.view(), workspace.data(), workspace.bytes()));
    EXPECT_EQ(bytes_of(y.view()), expected);
  }
}

TEST_F(Linear, NoRowsGiveAnEmptyResultAndLaunchNothing) {
  const Fp8Linear layer = prepared(4);
  ours.clear();
  EXPECT_TRUE(layer.run({nullptr, DType::bf16, 0, 20, 20, 1}, {nullptr, DType::bf16, 0, 33, 33, 1}, nullptr, 0));
  EXPECT_THAT(ours.launches(), SizeIs(0));
}

TEST_F(Linear, ChunksBeyondThePreparedMGiveTheBitsOfOneCall) {
  const Fp8Linear whole = prepared(50);
  const Fp8Linear cut = prepared(8);
  for (const std::int64_t m : {7, 8, 9, 16, 17, 50}) {
    const Inputs x(m, 20, 3);
    ours.clear();
    const auto result = run_guarded(cut, x.view(), DType::bf16, 33);
    EXPECT_THAT(ours.launches(), SizeIs(static_cast<std::size_t>((m + 7) / 8))) << m;
    EXPECT_EQ(result, run_guarded(whole, x.view(), DType::bf16, 33)) << m;
  }
}

TEST_F(Linear, ChunksOfCodesTakeTheirOwnScales) {
  const Fp8Linear cut = prepared(3);
  const Inputs x(10, 20);
  GuardedOutput y(DType::bf16, 10, 33, 33);
  Workspace workspace(cut.workspace_bytes(10));
  ASSERT_TRUE(cut.run_quantized(x.codes_view(), x.scales.data(), y.view(), workspace.data(), workspace.bytes()));
  expect_close(weights, x, nullptr, y.view());
}

TEST_F(Linear, EachMLaunchesTheConfigOfItsInterval) {
  const Fp8Linear layer = prepared(40);
  for (const std::int64_t m : {1, 2, 31, 32, 33, 40}) {
    ours.clear();
    run_guarded(layer, Inputs(m, 20).view(), DType::bf16, 33);
    ASSERT_THAT(ours.launches(), SizeIs(1));
    const std::string config = ours.launches().front().config.to_json();
    EXPECT_EQ(layer.explain(m).config, config) << m;
    EXPECT_EQ(ours.launches().front().config.get("tile", 0), m <= 32 ? m : (m + 1) / 2 * 2) << m;
  }
}

TEST_F(Linear, PrepareRunsEveryKernelOnceBeforeAnyoneElseDoes) {
  const Fp8Linear layer = prepared(4);
  EXPECT_THAT(ours.prepared(), SizeIs(4));
  EXPECT_EQ(ours.launches().size(), 8U) << "each kernel once with codes and once with raw rows";
  ours.clear();
  run_guarded(layer, Inputs(4, 20).view(), DType::bf16, 33);
  EXPECT_THAT(ours.prepared(), SizeIs(0));
}

TEST_F(Linear, PrepareForFewerRowsChangesNothingAndForMoreKeepsServing) {
  Fp8Linear layer = prepared(8);
  ours.clear();
  EXPECT_TRUE(layer.prepare(4));
  EXPECT_THAT(ours.prepared(), SizeIs(0));
  const Inputs x(12, 20);
  const auto before = run_guarded(layer, x.view(), DType::bf16, 33);
  ASSERT_TRUE(layer.prepare(12));
  ours.clear();
  EXPECT_EQ(run_guarded(layer, x.view(), DType::bf16, 33), before);
  EXPECT_THAT(ours.launches(), SizeIs(1));
}

TEST_F(Linear, UnpreparedIsItsOwnErrorAndNeedsNoWorkspace) {
  const Fp8Linear layer = linear();
  const Inputs x(2, 20);
  GuardedOutput y(DType::bf16, 2, 33, 33);
  EXPECT_EQ(layer.workspace_bytes(2), 0);
  const auto result = layer.run(x.view(), y.view(), nullptr, 0);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::not_prepared);
  EXPECT_THAT(result.error().message, HasSubstr("prepare"));
}

TEST_F(Linear, WithTheFallbackAllowedAnUnpreparedCallRunsInChunksAndSaysSoOnce) {
  LinearOptions options;
  options.allow_capture_fallback = true;
  const test::LogCapture log;
  const Fp8Linear layer = linear(options);
  const Inputs x(150, 20);
  GuardedOutput y(DType::bf16, 150, 33, 33);
  Workspace workspace(layer.workspace_bytes(150));
  ours.clear();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(layer.run(x.view(), y.view(), workspace.data(), workspace.bytes()));
  }
  EXPECT_THAT(ours.launches(), SizeIs(9)) << "64, 64 and 22 rows, three times";
  EXPECT_TRUE(y.all_written());
  EXPECT_TRUE(y.guards_intact());
  expect_close(weights, x, nullptr, y.view());
  EXPECT_EQ(log.warnings_with("prepare(max_m)"), 1);
}

TEST_F(Linear, PrepareReplacesTheFallbackAlsoForFewerRows) {
  LinearOptions options;
  options.allow_capture_fallback = true;
  Fp8Linear layer = linear(options);
  ASSERT_TRUE(layer.prepare(16));
  ours.clear();
  const Inputs x(40, 20);
  GuardedOutput y(DType::bf16, 40, 33, 33);
  Workspace workspace(layer.workspace_bytes(40));
  ASSERT_TRUE(layer.run(x.view(), y.view(), workspace.data(), workspace.bytes()));
  EXPECT_THAT(ours.launches(), SizeIs(3)) << "16, 16 and 8 rows";
}

TEST_F(Linear, PrepareRefusesFewerThanOneRow) {
  Fp8Linear layer = linear();
  for (const std::int64_t m : {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    const auto result = layer.prepare(m);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
  }
}

// A call that must fail, and what its message must hold.
TEST_F(Linear, RefusesViewsThatDoNotFitAndPrintsWhatCame) {
  const Fp8Linear layer = prepared(8);
  const Inputs x(4, 20, 12);
  GuardedOutput y(DType::bf16, 4, 33, 33);
  Workspace workspace(layer.workspace_bytes(4));
  const auto refused = [&](ConstMatrixView in, MatrixView out, const char* said) {
    const auto result = layer.run(in, out, workspace.data(), workspace.bytes());
    ASSERT_FALSE(result) << said;
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument) << said;
    EXPECT_THAT(result.error().message, HasSubstr(said));
  };
  const auto changed = [](auto view, auto change) {
    change(view);
    return view;
  };
  const ConstMatrixView good = x.view();
  const MatrixView out = y.view();
  refused(changed(good, [](auto& v) { v.dtype = DType::fp16; }), out, "want bf16, got fp16");
  refused(changed(good, [](auto& v) { v.cols = 19; }), out, "want [M, 20], got [4, 19]");
  refused(changed(good, [](auto& v) { v.row_stride = 19; }), out, "got strides (19, 1)");
  refused(changed(good, [](auto& v) { v.col_stride = 2; }), out, "got strides (32, 2)");
  refused(changed(good, [](auto& v) { v.row_stride = -32; }), out, "got strides (-32, 1)");
  refused(changed(good, [](auto& v) { v.data = nullptr; }), out, "null");
  refused(changed(good, [](auto& v) { v.rows = -4; }), out, "-4");
  refused(good, changed(out, [](auto& v) { v.dtype = DType::fp32; }), "output: want bf16, got fp32");
  refused(good, changed(out, [](auto& v) { v.rows = 5; }), "want [4, 33], got [5, 33]");
  refused(good, changed(out, [](auto& v) { v.cols = 20; }), "want [4, 33], got [4, 20]");
  refused(good, changed(out, [](auto& v) { v.row_stride = 32; }), "got strides (32, 1)");
  refused(good, changed(out, [](auto& v) { v.data = nullptr; }), "null");
}

TEST_F(Linear, AnOutputThatOverlapsTheActivationsIsRefusedAndColumnsBesideThemServe) {
  const Fp8Linear layer = prepared(4);  // So that ten rows are three chunks.
  const Inputs x(10, 20);
  const auto wanted = run_guarded(layer, x.view(), DType::bf16, 33);
  constexpr std::int64_t kStride = 20 + 33;
  std::vector<std::uint16_t> buffer(static_cast<std::size_t>(12 * kStride));
  const auto at = [&](std::int64_t row, std::int64_t column) { return buffer.data() + row * kStride + column; };
  for (std::int64_t row = 0; row < 10; ++row) {
    std::memcpy(at(row, 0), x.bytes.data() + row * 40, 40);
  }
  Workspace workspace(layer.workspace_bytes(10));
  const ConstMatrixView in{at(0, 0), DType::bf16, 10, 20, kStride, 1};
  const auto run_into = [&](std::uint16_t* data, std::int64_t stride) {
    return layer.run(in, {data, DType::bf16, 10, 33, stride, 1}, workspace.data(), workspace.bytes());
  };
  for (const auto& overlapping : {run_into(at(0, 0), kStride), run_into(at(0, 19), kStride), run_into(at(1, 0), kStride),
                                  run_into(at(0, 21), kStride), run_into(at(2, 0), 33)}) {
    ASSERT_FALSE(overlapping);
    EXPECT_EQ(overlapping.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(overlapping.error().message, HasSubstr("overlaps the activations [10, 20]"));
  }
  ASSERT_TRUE(run_into(at(0, 20), kStride));
  EXPECT_EQ(bytes_of({at(0, 20), DType::bf16, 10, 33, kStride, 1}), wanted);
}

TEST_F(Linear, RefusesAWorkspaceThatIsTooSmallMisalignedOrMissing) {
  const Fp8Linear layer = prepared(8);
  const Inputs x(8, 20);
  GuardedOutput y(DType::bf16, 8, 33, 33);
  Workspace workspace(layer.workspace_bytes(8) + 64);
  auto* const start = static_cast<unsigned char*>(workspace.data());
  const std::int64_t need = layer.workspace_bytes(8);
  EXPECT_THAT(layer.run(x.view(), y.view(), start, need - 1).error().message, HasSubstr(std::to_string(need)));
  EXPECT_THAT(layer.run(x.view(), y.view(), start + 1, need).error().message, HasSubstr("64-byte aligned"));
  EXPECT_FALSE(layer.run(x.view(), y.view(), nullptr, need));
  EXPECT_FALSE(layer.run(x.view(), y.view(), start, -1));
  EXPECT_TRUE(layer.run(x.view(), y.view(), start + 64, need));
}

TEST_F(Linear, RefusesRawRowsWhereQuantisedOnesWereAgreedAndScalesThatAreMissing) {
  LinearOptions options;
  options.activation = ActivationMode::quantized;
  const Fp8Linear layer = prepared(8, options);
  const Inputs x(2, 20);
  GuardedOutput y(DType::bf16, 2, 33, 33);
  Workspace workspace(layer.workspace_bytes(2));
  EXPECT_THAT(layer.run(x.view(), y.view(), workspace.data(), workspace.bytes()).error().message,
              HasSubstr("run_quantized"));
  EXPECT_THAT(layer.run_quantized(x.view(), x.scales.data(), y.view(), workspace.data(), workspace.bytes()).error().message,
              HasSubstr("want e4m3 codes, got bf16"));
  ConstMatrixView overlapping = x.codes_view();
  overlapping.row_stride = 19;
  EXPECT_THAT(
      layer.run_quantized(overlapping, x.scales.data(), y.view(), workspace.data(), workspace.bytes()).error().message,
      AllOf(HasSubstr("[2, 20] e4m3"), HasSubstr("(19, 1)")));
  EXPECT_THAT(layer.run_quantized(x.codes_view(), nullptr, y.view(), workspace.data(), workspace.bytes()).error().message,
              HasSubstr("scales"));
}

TEST_F(Linear, RefusesOptionsThatCannotWork) {
  const auto refused = [&](auto change, const char* said) {
    LinearOptions options;
    change(options);
    const auto result = Fp8Linear::create(weight(), options);
    ASSERT_FALSE(result) << said;
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(result.error().message, HasSubstr(said));
  };
  const float bias = 0;
  for (const float scale : {0.0F, -1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    refused(
        [&](LinearOptions& o) {
          o.activation = ActivationMode::static_per_tensor;
          o.static_scale = scale;
        },
        "static activation scale");
  }
  for (const ActivationMode mode : {ActivationMode::dynamic_per_token, ActivationMode::quantized}) {
    refused(
        [&](LinearOptions& o) {
          o.activation = mode;
          o.static_scale = 0.02F;
        },
        "want 0 unless activation is static_per_tensor, got 0.02");
  }
  refused([](LinearOptions& o) { o.x_dtype = DType::fp32; }, "want bf16 or fp16, got fp32");
  refused([](LinearOptions& o) { o.x_dtype = DType::e4m3; }, "want bf16 or fp16, got e4m3");
  refused([](LinearOptions& o) { o.quantize.floor = 0.0F; }, "floor");
  refused([](LinearOptions& o) { o.max_sms = 4; }, "max_sms: want 0 on a CPU");
  refused(
      [&](LinearOptions& o) {
        o.bias = &bias;
        o.bias_dtype = DType::e4m3;
      },
      "bias: want bf16, fp16 or fp32, got e4m3");
}

TEST_F(Linear, RowsWithNaNStayTheirOwn) {
  const Fp8Linear layer = prepared(4);
  Inputs x(3, 20);
  const auto clean = run_guarded(layer, x.view(), DType::bf16, 33);
  store_from_float(x.bytes.data(), DType::bf16, 20 + 7, std::numeric_limits<float>::infinity());
  const auto result = run_guarded(layer, x.view(), DType::bf16, 33);
  for (std::int64_t i = 0; i < 3 * 33; ++i) {
    const float value = load_as_float(result.data(), DType::bf16, i);
    if (i / 33 == 1) {
      EXPECT_TRUE(std::isnan(value)) << i;
    } else {
      EXPECT_EQ(value, load_as_float(clean.data(), DType::bf16, i)) << i;
    }
  }
}

TEST_F(Linear, AKernelThatFailsReportsItsOwnError) {
  const Fp8Linear layer = prepared(4);
  ours.run_error = Error{ErrorCode::failed, "the device fell off the bus"};
  const Inputs x(2, 20);
  GuardedOutput y(DType::bf16, 2, 33, 33);
  Workspace workspace(layer.workspace_bytes(2));
  const auto result = layer.run(x.view(), y.view(), workspace.data(), workspace.bytes());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "the device fell off the bus");
}

TEST_F(Linear, WorkspaceGrowsWithMAndStopsAtThePreparedM) {
  const Fp8Linear layer = prepared(48);
  for (std::int64_t m = 1; m < 48; ++m) {
    EXPECT_LE(layer.workspace_bytes(m), layer.workspace_bytes(m + 1));
  }
  EXPECT_EQ(layer.workspace_bytes(1'000'000), layer.workspace_bytes(48));
}

TEST_F(Linear, ExplainSaysChunksForMBeyondThePrepared) {
  const Fp8Linear layer = prepared(8);
  EXPECT_THAT(layer.explain(20).reason, HasSubstr("M = 20 runs in chunks of 8"));
  EXPECT_EQ(layer.explain(20).m, 20);
  EXPECT_EQ(layer.explain(20).bytes, layer.weight().bytes());
  EXPECT_EQ(layer.explain(20).bytes, 33 * 20 + 33 * 4);
}

TEST_F(Linear, SeveralThreadsShareOneLinearWhileAnotherPreparesMore) {
  Fp8Linear layer = prepared(8);
  const Inputs x(24, 20);
  const auto expected = run_guarded(layer, x.view(), DType::bf16, 33);
  std::vector<std::thread> threads;
  std::atomic<int> different{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        different += run_guarded(layer, x.view(), DType::bf16, 33) == expected ? 0 : 1;
      }
    });
  }
  for (const std::int64_t max_m : {9, 16, 24, 40}) {
    EXPECT_TRUE(layer.prepare(max_m));
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace octile
