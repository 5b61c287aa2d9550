// SPDX-License-Identifier: Apache-2.0
// An engine's own function as the baseline.
#include "octile/linear/baseline_registry.h"

#include "layer.h"
#include "octile/core/env.h"
#include "octile/linear/choose.h"
#include "octile/linear/weight.h"
#include "support/fake_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace octile {
namespace {

using test::bytes_of;
using test::FakeBackend;
using test::GuardedOutput;
using test::Inputs;
using test::run_guarded;
using test::Weights;
using test::Workspace;
using testing::HasSubstr;

// What the engine saw, and its answer.
struct Engine {
  int calls = 0;
  int status = 0;
  std::int64_t last_m = 0;
};

// An engine's kernel: multiplies the two scales first, so that nobody else has its bits.
int engine_kernel(const BaselineCall& call, void* user) {
  auto* engine = static_cast<Engine*>(user);
  if (engine != nullptr) {
    ++engine->calls;
    engine->last_m = call.m;
    if (engine->status != 0) {
      return engine->status;
    }
  }
  const auto* x = static_cast<const std::uint8_t*>(call.codes_x);
  const auto* w = static_cast<const std::uint8_t*>(call.weight_codes);
  for (std::int64_t m = 0; m < call.m; ++m) {
    for (std::int64_t n = 0; n < call.n; ++n) {
      float sum = 0.0F;
      for (std::int64_t k = 0; k < call.k; ++k) {
        sum += e4m3_to_float(x[m * call.k + k]) * e4m3_to_float(w[n * call.k + k]);
      }
      const float scale = call.weight_scales[n] * call.scales_x[m];
      store_from_float(call.y, call.out_dtype, m * call.y_row_stride + n,
                       sum * scale + (call.bias == nullptr ? 0.0F : call.bias[n]));
    }
  }
  return 0;
}

// fp32 outputs, in whose bits an order of products shows.
class Registry : public testing::Test {
 protected:
  Registry() : weights(21, 301, 7), x(5, 301, 3) {
    backend.add("ours");
    backend.add_vendor("vendor");
    weight_options.out_dtype = DType::fp32;
  }
  ~Registry() override { EXPECT_TRUE(register_baseline("cpu", nullptr, nullptr, nullptr)); }
  Fp8Linear layer(std::int64_t max_m, const LinearOptions& options = {}) const {
    auto made = Fp8Linear::create(pack_weight(backend.device(), weights.source(), weight_options).value(), options);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    const auto ok = made->prepare(max_m);
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
    return *made;
  }
  std::vector<unsigned char> direct_call(const float* bias = nullptr) const {
    const std::vector<std::uint8_t> codes_w = weights.contiguous_codes();
    GuardedOutput y(DType::fp32, x.m, 21, 21);
    BaselineCall call;
    call.m = x.m;
    call.n = 21;
    call.k = 301;
    call.codes_x = x.codes.data();
    call.scales_x = x.scales.data();
    call.weight_codes = codes_w.data();
    call.weight_scales = weights.scales.data();
    call.bias = bias;
    call.y = y.data();
    call.y_row_stride = 21;
    call.out_dtype = DType::fp32;
    EXPECT_EQ(engine_kernel(call, nullptr), 0);
    return bytes_of(y.view());
  }

  testing::ScopedTrace trace{__FILE__, __LINE__, test::seed_text()};
  FakeBackend backend;
  WeightOptions weight_options;
  Weights weights;
  Inputs x;
};

TEST_F(Registry, TheEnginesBitsAreThoseOfCallingItDirectly) {
  Engine engine;
  const auto vendors = run_guarded(layer(5), x.view(), DType::fp32, 21);
  ASSERT_TRUE(register_baseline("cpu", "engine_gemm", engine_kernel, &engine));
  const std::vector<float> bias = test::normals(21);
  for (const float* each : {static_cast<const float*>(nullptr), bias.data()}) {
    LinearOptions options;
    options.bias = each;
    const Fp8Linear linear = layer(5, options);
    const auto result = run_guarded(linear, x.view(), DType::fp32, 21);
    EXPECT_EQ(result, direct_call(each));
    EXPECT_EQ(linear.explain(5).choice, "baseline");
    EXPECT_EQ(linear.explain(5).kernel, "engine_gemm");
    EXPECT_EQ(linear.explain(5).bytes, 21 * 301 + 21 * 4);
  }
  EXPECT_NE(direct_call(), vendors) << "the engine's order of products must show, or this test says nothing";
  EXPECT_GT(engine.calls, 0);
}

TEST_F(Registry, CodesArePassedOnAsTheyAreOrMadeContiguous) {
  ASSERT_TRUE(register_baseline("cpu", "engine_gemm", engine_kernel, nullptr));
  const Fp8Linear linear = layer(5);
  std::vector<std::uint8_t> padded(static_cast<std::size_t>(5 * 320), 0x7F);
  for (std::int64_t row = 0; row < 5; ++row) {
    std::memcpy(padded.data() + row * 320, x.codes.data() + row * 301, 301);
  }
  for (const ConstMatrixView codes : {x.codes_view(), ConstMatrixView{padded.data(), DType::e4m3, 5, 301, 320, 1}}) {
    GuardedOutput y(DType::fp32, 5, 21, 30);
    Workspace workspace(linear.workspace_bytes(5));
    ASSERT_TRUE(linear.run_quantized(codes, x.scales.data(), y.view(), workspace.data(), workspace.bytes()));
    EXPECT_TRUE(y.guards_intact());
    EXPECT_TRUE(workspace.guard_intact());
    EXPECT_EQ(bytes_of(y.view()), direct_call());
  }
}

TEST_F(Registry, ChunksReachTheEngineOneByOneWithItsBits) {
  Engine engine;
  ASSERT_TRUE(register_baseline("cpu", "engine_gemm", engine_kernel, &engine));
  const Fp8Linear linear = layer(2);
  engine.calls = 0;
  EXPECT_EQ(run_guarded(linear, x.view(), DType::fp32, 21), direct_call());
  EXPECT_EQ(engine.calls, 3);
  EXPECT_EQ(engine.last_m, 1);
}

TEST_F(Registry, AFailureOfTheEngineIsAnErrorWithItsStatus) {
  Engine engine;
  ASSERT_TRUE(register_baseline("cpu", "engine_gemm", engine_kernel, &engine));
  const Fp8Linear linear = layer(5);
  engine.status = 42;
  GuardedOutput y(DType::fp32, 5, 21, 21);
  Workspace workspace(linear.workspace_bytes(5));
  const auto result = linear.run(x.view(), y.view(), workspace.data(), workspace.bytes());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::failed);
  EXPECT_THAT(result.error().message, testing::AllOf(HasSubstr("engine_gemm"), HasSubstr("42")));
}

TEST_F(Registry, TheKillSwitchLeavesTheEnginesFunction) {
  ASSERT_TRUE(register_baseline("cpu", "engine_gemm", engine_kernel, nullptr));
  const env::ScopedOverride off("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE", "off");
  EXPECT_EQ(run_guarded(layer(5), x.view(), DType::fp32, 21), direct_call());
}

TEST_F(Registry, AWeightPackedBeforeTheRegistrationIsRefused) {
  const Fp8Weight before = pack_weight(backend.device(), weights.source(), weight_options).value();
  ASSERT_TRUE(register_baseline("cpu", "engine_gemm", engine_kernel, nullptr));
  const auto linear = Fp8Linear::create(before);
  ASSERT_FALSE(linear);
  EXPECT_THAT(linear.error().message, HasSubstr("before the baseline was registered"));
}

TEST_F(Registry, ALinearMadeBeforeKeepsTheBaselineItHad) {
  const Fp8Linear linear = layer(5);
  const auto before = run_guarded(linear, x.view(), DType::fp32, 21);
  ASSERT_TRUE(register_baseline("cpu", "engine_gemm", engine_kernel, nullptr));
  EXPECT_EQ(run_guarded(linear, x.view(), DType::fp32, 21), before);
  EXPECT_EQ(linear.explain(5).kernel, "vendor");
}

TEST_F(Registry, RemovingItBringsTheVendorBack) {
  ASSERT_TRUE(register_baseline("cpu", "engine_gemm", engine_kernel, nullptr));
  ASSERT_TRUE(register_baseline("cpu", nullptr, nullptr, nullptr));
  EXPECT_EQ(layer(5).explain(5).kernel, "vendor");
}

TEST_F(Registry, OneKindOfDeviceDoesNotTouchAnother) {
  ASSERT_TRUE(register_baseline("cuda", "gpu_gemm", engine_kernel, nullptr));
  EXPECT_EQ(layer(5).explain(5).kernel, "vendor");
  ASSERT_TRUE(register_baseline("cuda", nullptr, nullptr, nullptr));
}

TEST_F(Registry, RefusesUnknownKindsAndEmptyNames) {
  for (const char* kind : {static_cast<const char*>(nullptr), "", "tpu", "CPU"}) {
    const auto result = register_baseline(kind, "engine_gemm", engine_kernel, nullptr);
    ASSERT_FALSE(result);
    EXPECT_THAT(result.error().message, HasSubstr("want cpu or cuda"));
  }
  EXPECT_FALSE(register_baseline("cpu", nullptr, engine_kernel, nullptr));
  EXPECT_FALSE(register_baseline("cpu", "", engine_kernel, nullptr));
}

}  // namespace
}  // namespace octile
