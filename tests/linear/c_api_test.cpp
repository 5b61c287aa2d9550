// SPDX-License-Identifier: Apache-2.0
// The C interface on the CPU: the same bits as the C++ interface, and a clean error for everything that can be wrong.
#include "layer.h"

#include <octile/octile.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

namespace octile {
namespace {

using test::Inputs;
using test::Weights;
using test::Workspace;
using testing::HasSubstr;

constexpr std::int64_t kN = 48;
constexpr std::int64_t kK = 100;

class CApi : public testing::Test {
 protected:
  CApi() : weights(kN, kK, 4), x(5, kK, 4) {
    source.struct_size = sizeof(source);
    source.n = kN;
    source.k = kK;
    source.codes = weights.codes.data();
    source.row_stride = weights.row_stride;
    source.scales = weights.scales.data();
    source.scale_count = kN;
  }
  ~CApi() override {
    octile_linear_destroy(linear);
    octile_weight_destroy(weight);
  }
  void create(const octile_weight_options* weight_options = nullptr, const octile_linear_options* linear_options = nullptr) {
    ASSERT_EQ(octile_weight_create(&source, weight_options, &weight), OCTILE_OK) << octile_last_error();
    ASSERT_EQ(octile_linear_create(weight, linear_options, &linear), OCTILE_OK) << octile_last_error();
    ASSERT_EQ(octile_linear_prepare(linear, 8), OCTILE_OK) << octile_last_error();
  }
  octile_const_matrix in() const {
    return {sizeof(octile_const_matrix), x.bytes.data(), x.m, kK, x.row_stride, OCTILE_BF16};
  }
  static octile_matrix out(void* data, std::int64_t rows, std::int32_t dtype = OCTILE_BF16) {
    return {sizeof(octile_matrix), data, rows, kN, 0, dtype};
  }

  testing::ScopedTrace trace{__FILE__, __LINE__, test::seed_text()};
  Weights weights;
  Inputs x;
  octile_weight_source source{};
  octile_weight* weight = nullptr;
  octile_linear* linear = nullptr;
};

TEST_F(CApi, GivesTheBitsOfTheCppInterface) {
  create();
  EXPECT_EQ(octile_weight_n(weight), kN);
  EXPECT_EQ(octile_weight_k(weight), kK);
  Workspace workspace(octile_linear_workspace_bytes(linear, 5));
  test::GuardedOutput y(DType::bf16, 5, kN, kN);
  const octile_const_matrix x_view = in();
  const octile_matrix y_view = out(y.data(), 5);
  ASSERT_EQ(octile_linear_run(linear, &x_view, &y_view, workspace.data(), workspace.bytes(), nullptr), OCTILE_OK)
      << octile_last_error();
  EXPECT_TRUE(y.guards_intact());
  EXPECT_TRUE(workspace.guard_intact());
  test::expect_close(weights, x, nullptr, y.view());

  auto cpp = Fp8Linear::create(Fp8Weight::create(weights.source()).value());
  ASSERT_TRUE(cpp->prepare(8));
  EXPECT_EQ(test::bytes_of(y.view()), test::run_guarded(*cpp, x.view(), DType::bf16, kN));
  EXPECT_EQ(octile_weight_bytes(weight), cpp->weight().bytes());
}

TEST_F(CApi, TakesQuantisedActivationsBiasAndOtherOutputTypes) {
  const std::vector<float> bias = test::normals(kN);
  octile_weight_options weight_options{};
  weight_options.struct_size = sizeof(weight_options);
  weight_options.out_dtype = OCTILE_FP16;
  octile_linear_options linear_options{};
  linear_options.struct_size = sizeof(linear_options);
  linear_options.activation = OCTILE_QUANTIZED;
  linear_options.bias = bias.data();
  create(&weight_options, &linear_options);
  Workspace workspace(octile_linear_workspace_bytes(linear, 5));
  test::GuardedOutput y(DType::fp16, 5, kN, kN);
  const octile_const_matrix codes = {sizeof(codes), x.codes.data(), 5, kK, 0, OCTILE_E4M3};
  const octile_matrix y_view = out(y.data(), 5, OCTILE_FP16);
  ASSERT_EQ(
      octile_linear_run_quantized(linear, &codes, x.scales.data(), &y_view, workspace.data(), workspace.bytes(), nullptr),
      OCTILE_OK)
      << octile_last_error();
  test::expect_close(weights, x, bias.data(), y.view());
}

TEST_F(CApi, NoRowsSucceedWithoutDataScalesOrWorkspaceAndWriteNothing) {
  create();
  octile_linear_options options{};
  options.struct_size = sizeof(options);
  options.activation = OCTILE_QUANTIZED;
  octile_linear* of_codes = nullptr;
  ASSERT_EQ(octile_linear_create(weight, &options, &of_codes), OCTILE_OK) << octile_last_error();
  ASSERT_EQ(octile_linear_prepare(of_codes, 8), OCTILE_OK) << octile_last_error();
  test::GuardedOutput y(DType::bf16, 4, kN, kN + 3);
  const octile_const_matrix no_rows = {sizeof(no_rows), nullptr, 0, kK, 0, OCTILE_BF16};
  const octile_const_matrix no_codes = {sizeof(no_codes), nullptr, 0, kK, 0, OCTILE_E4M3};
  for (void* data : {y.data(), static_cast<void*>(nullptr)}) {
    const octile_matrix y_view = out(data, 0);
    EXPECT_EQ(octile_linear_run(linear, &no_rows, &y_view, nullptr, 0, nullptr), OCTILE_OK) << octile_last_error();
    for (const octile_linear* one : {linear, of_codes}) {
      EXPECT_EQ(octile_linear_run_quantized(one, &no_codes, nullptr, &y_view, nullptr, 0, nullptr), OCTILE_OK)
          << octile_last_error();
    }
  }
  octile_linear_destroy(of_codes);
  EXPECT_TRUE(y.guards_intact());
  EXPECT_THAT(test::bytes_of(y.view()), testing::Each(0xFF));
}

TEST_F(CApi, QuantisesAsTheContractSaysAndFillsPresets) {
  std::vector<std::uint8_t> codes(x.codes.size());
  std::vector<float> scales(x.scales.size());
  const octile_const_matrix view = in();
  ASSERT_EQ(octile_quantize_per_token(&view, codes.data(), scales.data(), nullptr), OCTILE_OK) << octile_last_error();
  EXPECT_EQ(codes, x.codes);
  EXPECT_EQ(scales, x.scales);
  octile_quantize_options options{};
  options.struct_size = sizeof(options);
  ASSERT_EQ(octile_quantize_preset("vllm", &options), OCTILE_OK);
  EXPECT_EQ(options.floor, quantize_preset("vllm")->floor);
  ASSERT_EQ(octile_quantize_per_token(&view, codes.data(), scales.data(), &options), OCTILE_OK);
  EXPECT_EQ(octile_quantize_preset("nobody", &options), OCTILE_INVALID_ARGUMENT);
  EXPECT_EQ(octile_quantize_preset(nullptr, &options), OCTILE_INVALID_ARGUMENT);
  EXPECT_EQ(octile_quantize_preset("vllm", nullptr), OCTILE_INVALID_ARGUMENT);
}

TEST_F(CApi, ExplainAndDevicesAreJsonWithTheDocumentedFields) {
  create();
  char* text = nullptr;
  ASSERT_EQ(octile_linear_explain(linear, 5, &text), OCTILE_OK) << octile_last_error();
  const auto explanation = nlohmann::json::parse(text, nullptr, false);
  octile_string_free(text);
  for (const char* field : {"device_name", "n", "k", "m", "choice", "kernel", "config", "table_file", "table_key", "reason",
                            "measured", "stale", "bytes"}) {
    EXPECT_TRUE(explanation.contains(field)) << field;
  }
  EXPECT_EQ(explanation["m"], 5);
  EXPECT_TRUE(explanation["config"].is_object());
  ASSERT_EQ(octile_devices(&text), OCTILE_OK) << octile_last_error();
  const auto devices = nlohmann::json::parse(text, nullptr, false);
  octile_string_free(text);
  ASSERT_TRUE(devices.is_array());
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices[0]["id"], "cpu");
  for (const char* field : {"id", "device_name", "kind", "arch", "families", "vendors"}) {
    EXPECT_TRUE(devices[0].contains(field)) << field;
  }
}

TEST_F(CApi, SizesOfStructuresThatAreNotKnownAreRefused) {
  create();
  Workspace workspace(octile_linear_workspace_bytes(linear, 5));
  std::vector<std::uint16_t> y(static_cast<std::size_t>(5 * kN));
  const std::size_t garbage[] = {0, 1, 7, 8, std::numeric_limits<std::size_t>::max(), std::size_t{1} << 40};
  for (const std::size_t size : garbage) {
    SCOPED_TRACE(size);
    octile_weight* no_weight = nullptr;
    octile_linear* no_linear = nullptr;
    octile_weight_source bad_source = source;
    bad_source.struct_size = size;
    EXPECT_EQ(octile_weight_create(&bad_source, nullptr, &no_weight), OCTILE_INVALID_ARGUMENT);
    EXPECT_THAT(octile_last_error(), HasSubstr("weight_source.struct_size"));
    octile_weight_options bad_weight_options{};
    bad_weight_options.struct_size = size;
    EXPECT_EQ(octile_weight_create(&source, &bad_weight_options, &no_weight), OCTILE_INVALID_ARGUMENT);
    octile_linear_options bad_options{};
    bad_options.struct_size = size;
    EXPECT_EQ(octile_linear_create(weight, &bad_options, &no_linear), OCTILE_INVALID_ARGUMENT);
    octile_quantize_options bad_quantize{};
    bad_quantize.struct_size = size;
    octile_linear_options with_bad_quantize{};
    with_bad_quantize.struct_size = sizeof(with_bad_quantize);
    with_bad_quantize.quantize = &bad_quantize;
    EXPECT_EQ(octile_linear_create(weight, &with_bad_quantize, &no_linear), OCTILE_INVALID_ARGUMENT);
    octile_const_matrix bad_in = in();
    bad_in.struct_size = size;
    octile_matrix good_out = out(y.data(), 5);
    EXPECT_EQ(octile_linear_run(linear, &bad_in, &good_out, workspace.data(), workspace.bytes(), nullptr),
              OCTILE_INVALID_ARGUMENT);
    const octile_const_matrix good_in = in();
    good_out.struct_size = size;
    EXPECT_EQ(octile_linear_run(linear, &good_in, &good_out, workspace.data(), workspace.bytes(), nullptr),
              OCTILE_INVALID_ARGUMENT);
    EXPECT_EQ(no_weight, nullptr);
    EXPECT_EQ(no_linear, nullptr);
  }
}

TEST_F(CApi, NullsAreErrorsThatNameTheArgument) {
  create();
  octile_weight* no_weight = nullptr;
  octile_linear* no_linear = nullptr;
  char* text = nullptr;
  std::vector<std::uint16_t> y(static_cast<std::size_t>(5 * kN));
  const octile_const_matrix x_view = in();
  const octile_matrix y_view = out(y.data(), 5);
  const auto refused = [](octile_status status, const char* argument) {
    EXPECT_EQ(status, OCTILE_INVALID_ARGUMENT) << argument;
    EXPECT_THAT(octile_last_error(), HasSubstr(std::string(argument) + ": got NULL"));
  };
  refused(octile_weight_create(nullptr, nullptr, &no_weight), "weight_source");
  refused(octile_weight_create(&source, nullptr, nullptr), "weight");
  refused(octile_linear_create(nullptr, nullptr, &no_linear), "weight");
  refused(octile_linear_create(weight, nullptr, nullptr), "linear");
  refused(octile_linear_prepare(nullptr, 4), "linear");
  refused(octile_linear_run(nullptr, &x_view, &y_view, nullptr, 0, nullptr), "linear");
  refused(octile_linear_run(linear, nullptr, &y_view, nullptr, 0, nullptr), "x");
  refused(octile_linear_run(linear, &x_view, nullptr, nullptr, 0, nullptr), "y");
  refused(octile_linear_run_quantized(nullptr, &x_view, nullptr, &y_view, nullptr, 0, nullptr), "linear");
  refused(octile_linear_run_quantized(linear, nullptr, nullptr, &y_view, nullptr, 0, nullptr), "codes");
  refused(octile_linear_explain(nullptr, 1, &text), "linear");
  refused(octile_linear_explain(linear, 1, nullptr), "json");
  refused(octile_devices(nullptr), "json");
  refused(octile_quantize_per_token(nullptr, nullptr, nullptr, nullptr), "x");
  EXPECT_EQ(octile_quantize_per_token(&x_view, nullptr, nullptr, nullptr), OCTILE_INVALID_ARGUMENT);
  EXPECT_EQ(octile_linear_run(linear, &x_view, &y_view, nullptr, 0, nullptr), OCTILE_INVALID_ARGUMENT);
  EXPECT_EQ(octile_linear_workspace_bytes(nullptr, 4), 0);
  EXPECT_EQ(octile_weight_n(nullptr), 0);
  EXPECT_EQ(octile_weight_k(nullptr), 0);
  EXPECT_EQ(octile_weight_bytes(nullptr), 0);
  octile_weight_destroy(nullptr);
  octile_linear_destroy(nullptr);
  octile_string_free(nullptr);
}

TEST_F(CApi, ValuesOutsideTheirEnumerationsAreRefusedByName) {
  const auto refused = [&](auto change, const char* field) {
    octile_weight_options weight_options{};
    weight_options.struct_size = sizeof(weight_options);
    octile_weight_source changed = source;
    change(changed, weight_options);
    octile_weight* none = nullptr;
    EXPECT_EQ(octile_weight_create(&changed, &weight_options, &none), OCTILE_INVALID_ARGUMENT) << field;
    EXPECT_THAT(octile_last_error(), HasSubstr(field));
  };
  for (const std::int32_t value :
       {-1, 99, std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()}) {
    refused([&](auto& s, auto&) { s.code_dtype = value; }, "code_dtype");
    refused([&](auto& s, auto&) { s.scale_dtype = value; }, "scale_dtype");
    refused([&](auto&, auto& o) { o.out_dtype = value; }, "out_dtype");
    refused([&](auto&, auto& o) { o.accumulate = value; }, "accumulate");
    refused([&](auto&, auto& o) { o.numerics = value; }, "numerics");
    refused([&](auto&, auto& o) { o.batch_invariant = value; }, "batch_invariant");
    refused([&](auto&, auto& o) { o.pdl = value; }, "pdl");
  }
  refused([](auto& s, auto&) { s.code_dtype = OCTILE_E4M3FNUZ; }, "e4m3fnuz");
  refused([](auto&, auto& o) { o.out_dtype = OCTILE_E4M3; }, "e4m3");
  octile_weight_options absent{};
  absent.struct_size = sizeof(absent);
  absent.device = "cuda:99";
  octile_weight* none = nullptr;
  EXPECT_EQ(octile_weight_create(&source, &absent, &none), OCTILE_UNAVAILABLE);
}

TEST_F(CApi, EveryLaunchModeIsTakenAndWhatIsNoneIsRefusedWithWhatWasWanted) {
  octile_weight_options options{};
  options.struct_size = sizeof(options);
  for (const std::int32_t pdl : {OCTILE_PDL_DEFAULT, OCTILE_PDL_OFF, OCTILE_PDL_CONSUME, OCTILE_PDL_FULL}) {
    options.pdl = pdl;
    octile_weight* made = nullptr;
    EXPECT_EQ(octile_weight_create(&source, &options, &made), OCTILE_OK) << pdl << ": " << octile_last_error();
    EXPECT_EQ(octile_weight_n(made), kN);
    octile_weight_destroy(made);
  }
  for (const std::int32_t pdl : {4, -1}) {
    options.pdl = pdl;
    octile_weight* none = nullptr;
    EXPECT_EQ(octile_weight_create(&source, &options, &none), OCTILE_INVALID_ARGUMENT) << pdl;
    EXPECT_EQ(octile_last_error(), "weight_options.pdl: want 0 to 3, got " + std::to_string(pdl));
    EXPECT_EQ(none, nullptr);
  }
}

TEST_F(CApi, ACallerWhoseWeightOptionsEndBeforeTheLaunchModeGetsTheDefaultAndIsNotReadBeyondThem) {
  constexpr std::size_t kOlder = offsetof(octile_weight_options, pdl);
  octile_weight_options options{};
  options.struct_size = kOlder;
  options.out_dtype = OCTILE_FP16;
  options.pdl = -1;  // What lies behind an older structure is anybody's.
  std::vector<unsigned char> older(kOlder);
  std::memcpy(older.data(), &options, kOlder);
  for (const void* given : {static_cast<const void*>(older.data()), static_cast<const void*>(&options)}) {
    octile_weight* made = nullptr;
    EXPECT_EQ(octile_weight_create(&source, static_cast<const octile_weight_options*>(given), &made), OCTILE_OK)
        << octile_last_error();
    octile_weight_destroy(made);
  }
  options.struct_size = kOlder - 1;
  octile_weight* none = nullptr;
  EXPECT_EQ(octile_weight_create(&source, &options, &none), OCTILE_INVALID_ARGUMENT);
  EXPECT_THAT(octile_last_error(), HasSubstr("weight_options.struct_size: want 40 to 56 bytes, got 39"));
}

TEST_F(CApi, ACallerWhoseLinearOptionsEndBeforeTheLimitOfMultiprocessorsHasNoneAndIsNotReadBeyondThem) {
  octile_weight* made = nullptr;
  ASSERT_EQ(octile_weight_create(&source, nullptr, &made), OCTILE_OK) << octile_last_error();
  octile_linear_options options{};
  options.max_sms = 8;
  octile_linear* held = nullptr;
  for (const std::size_t older : {offsetof(octile_linear_options, reserved_2), offsetof(octile_linear_options, max_sms)}) {
    options.struct_size = older;
    ASSERT_EQ(octile_linear_create(made, &options, &held), OCTILE_OK) << octile_last_error();
    octile_linear_destroy(held);
  }
  options.struct_size = sizeof(options);
  EXPECT_EQ(octile_linear_create(made, &options, &held), OCTILE_INVALID_ARGUMENT);
  EXPECT_THAT(octile_last_error(), HasSubstr("max_sms: want 0 on a CPU"));
  octile_weight_destroy(made);
}

TEST_F(CApi, AWeightsLayoutIsTakenByItsNumberAndUnpackingSaysWhatIsMissing) {
  octile_weight_options options{};
  options.struct_size = sizeof(options);
  options.reserved = 7;  // Not read.
  options.layout = OCTILE_LAYOUT_ROW_MAJOR;
  octile_weight* made = nullptr;
  ASSERT_EQ(octile_weight_create(&source, &options, &made), OCTILE_OK) << octile_last_error();
  std::vector<unsigned char> codes(static_cast<std::size_t>(source.n * source.k));
  EXPECT_EQ(octile_weight_unpack(made, codes.data(), 0, nullptr, 0, nullptr), OCTILE_UNAVAILABLE) << "a CPU's layout";
  EXPECT_EQ(octile_weight_unpack(made, nullptr, 0, nullptr, 0, nullptr), OCTILE_INVALID_ARGUMENT);
  EXPECT_EQ(octile_weight_unpack(nullptr, codes.data(), 0, nullptr, 0, nullptr), OCTILE_INVALID_ARGUMENT);
  octile_weight_destroy(made);
  made = nullptr;
  options.layout = OCTILE_LAYOUT_SLAB64;
  EXPECT_EQ(octile_weight_create(&source, &options, &made), OCTILE_UNAVAILABLE);
  EXPECT_THAT(octile_last_error(), HasSubstr("layout slab64"));
  options.layout = 3;
  EXPECT_EQ(octile_weight_create(&source, &options, &made), OCTILE_INVALID_ARGUMENT);
  EXPECT_THAT(octile_last_error(), HasSubstr("weight_options.layout: want 0 to 2, got 3"));
}

TEST_F(CApi, AWeightsUpdateNamesWhatIsWrongAndWhereItCannotBeHad) {
  create();
  EXPECT_EQ(octile_weight_update(nullptr, &source, 0, nullptr), OCTILE_INVALID_ARGUMENT);
  EXPECT_THAT(octile_last_error(), HasSubstr("weight"));
  EXPECT_EQ(octile_weight_update(weight, nullptr, 0, nullptr), OCTILE_INVALID_ARGUMENT);
  EXPECT_THAT(octile_last_error(), HasSubstr("weight_source"));
  octile_weight_source other = source;
  other.n -= 1;
  other.scale_count = other.n;
  EXPECT_EQ(octile_weight_update(weight, &other, 0, nullptr), OCTILE_INVALID_ARGUMENT);
  EXPECT_THAT(octile_last_error(), HasSubstr("want the weight's shape"));
  EXPECT_EQ(octile_weight_update(weight, &source, 0, nullptr), OCTILE_UNAVAILABLE);
  EXPECT_THAT(octile_last_error(), HasSubstr("create a new one"));
}

TEST_F(CApi, StatusesHaveNamesAndErrorsBelongToTheirThread) {
  EXPECT_STREQ(octile_status_name(OCTILE_OK), "ok");
  EXPECT_STREQ(octile_status_name(OCTILE_NOT_PREPARED), "not_prepared");
  EXPECT_STREQ(octile_status_name(1234), "unknown");
  EXPECT_STREQ(octile_status_name(-1), "unknown");
  EXPECT_STREQ(octile_version(), version());
  ASSERT_EQ(octile_devices(nullptr), OCTILE_INVALID_ARGUMENT);
  std::string in_another_thread = "unset";
  std::thread([&] { in_another_thread = octile_last_error(); }).join();
  EXPECT_EQ(in_another_thread, "");
  EXPECT_THAT(octile_last_error(), HasSubstr("json"));
}

TEST_F(CApi, RunBeforePrepareHasAStatusOfItsOwn) {
  ASSERT_EQ(octile_weight_create(&source, nullptr, &weight), OCTILE_OK) << octile_last_error();
  ASSERT_EQ(octile_linear_create(weight, nullptr, &linear), OCTILE_OK) << octile_last_error();
  std::vector<std::uint16_t> y(static_cast<std::size_t>(5 * kN));
  const octile_const_matrix x_view = in();
  const octile_matrix y_view = out(y.data(), 5);
  EXPECT_EQ(octile_linear_run(linear, &x_view, &y_view, nullptr, 0, nullptr), OCTILE_NOT_PREPARED);
  EXPECT_EQ(octile_linear_prepare(linear, 0), OCTILE_INVALID_ARGUMENT);
}

// Counts itself in `user`, and writes m * n ones.
int ones(const octile_baseline_call* call, void* user) {
  ++*static_cast<int*>(user);
  if (call->struct_size != sizeof(octile_baseline_call) || call->out_dtype != OCTILE_FP32) {
    return 1;
  }
  for (std::int64_t row = 0; row < call->m; ++row) {
    std::fill_n(static_cast<float*>(call->y) + row * call->y_row_stride, call->n, 1.0F);
  }
  return 0;
}

TEST_F(CApi, AnEnginesFunctionIsTheBaseline) {
  int calls = 0;
  ASSERT_EQ(octile_register_baseline("cpu", "ones", ones, &calls), OCTILE_OK) << octile_last_error();
  octile_weight_options options{};
  options.struct_size = sizeof(options);
  options.out_dtype = OCTILE_FP32;
  create(&options);
  ASSERT_EQ(octile_register_baseline("cpu", nullptr, nullptr, nullptr), OCTILE_OK);
  Workspace workspace(octile_linear_workspace_bytes(linear, 5));
  std::vector<float> y(static_cast<std::size_t>(5 * kN));
  const octile_const_matrix x_view = in();
  const octile_matrix y_view = out(y.data(), 5, OCTILE_FP32);
  calls = 0;
  ASSERT_EQ(octile_linear_run(linear, &x_view, &y_view, workspace.data(), workspace.bytes(), nullptr), OCTILE_OK)
      << octile_last_error();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(std::ranges::count(y, 1.0F), 5 * kN);
  EXPECT_EQ(octile_register_baseline("tpu", "ones", ones, nullptr), OCTILE_INVALID_ARGUMENT);
  EXPECT_EQ(octile_register_baseline(nullptr, "ones", ones, nullptr), OCTILE_INVALID_ARGUMENT);
}

TEST_F(CApi, ALinearOutlivesItsWeightHandle) {
  create();
  octile_weight_destroy(weight);
  weight = nullptr;
  Workspace workspace(octile_linear_workspace_bytes(linear, 5));
  std::vector<std::uint16_t> y(static_cast<std::size_t>(5 * kN));
  const octile_const_matrix x_view = in();
  const octile_matrix y_view = out(y.data(), 5);
  EXPECT_EQ(octile_linear_run(linear, &x_view, &y_view, workspace.data(), workspace.bytes(), nullptr), OCTILE_OK);
}

}  // namespace
}  // namespace octile
