// SPDX-License-Identifier: Apache-2.0
// The producers of the C interface on the CPU: the bits of the plain code, and a clean error for everything that can be
// wrong.
#include "support/producer_case.h"
#include "support/random.h"

#include <octile/octile.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace octile {
namespace {

using test::HalfMatrix;
using test::PlainCodes;
using test::ProducerOperands;
using test::ProducerShape;
using testing::HasSubstr;

constexpr std::int64_t kM = 4;
constexpr std::int64_t kK = 130;

octile_const_matrix in(const HalfMatrix& matrix) {
  return {sizeof(octile_const_matrix), matrix.row(0), matrix.rows, matrix.cols, matrix.row_stride, OCTILE_BF16};
}

class CApiProducers : public testing::Test {
 protected:
  CApiProducers() {
    options.struct_size = sizeof(options);
    options.k = kK;
  }
  ~CApiProducers() override { octile_producer_destroy(producer); }
  void create_norm() {
    ASSERT_EQ(octile_rms_norm_create(&options, norm.gamma.bytes.data(), OCTILE_BF16, norm.epsilon, &producer), OCTILE_OK)
        << octile_last_error();
  }

  testing::ScopedTrace trace{__FILE__, __LINE__, test::seed_text()};
  ProducerOperands norm{ProducerShape{.m = kM, .k = kK, .adds = true, .padding = 6}};
  ProducerOperands gates{ProducerShape{.kind = ProducerKind::swiglu, .m = kM, .k = kK, .padding = 6}};
  octile_producer_options options{};
  octile_producer* producer = nullptr;
};

TEST_F(CApiProducers, RmsNormWithAResidualHasTheBitsOfThePlainCode) {
  create_norm();
  std::vector<unsigned char> sums(kM * kK * 2);
  std::vector<unsigned char> y(kM * kK * 2);
  PlainCodes got;
  got.codes.resize(static_cast<std::size_t>(kM * octile_codes_row_stride(kK)));
  got.scales.resize(kM);
  const octile_const_matrix x = in(norm.x);
  const octile_const_matrix residual = in(norm.residual);
  const octile_matrix sum_view = {sizeof(octile_matrix), sums.data(), kM, kK, 0, OCTILE_BF16};
  const octile_matrix y_view = {sizeof(octile_matrix), y.data(), kM, kK, 0, OCTILE_BF16};
  const octile_matrix codes = {sizeof(octile_matrix), got.codes.data(), kM, kK, octile_codes_row_stride(kK), OCTILE_E4M3};
  ASSERT_EQ(octile_producer_run_unfused(producer, &x, &residual, &sum_view, &y_view, nullptr), OCTILE_OK)
      << octile_last_error();
  EXPECT_EQ(test::first_difference(DType::bf16, kK, y, norm.plain_y()), "");
  EXPECT_EQ(test::first_difference(DType::bf16, kK, sums, norm.plain_sums()), "");
  ASSERT_EQ(octile_producer_run(producer, &x, &residual, &sum_view, &codes, got.scales.data(), nullptr), OCTILE_OK)
      << octile_last_error();
  for (std::int64_t row = 1; row < kM; ++row) {  // Without the padding of the stride.
    std::copy_n(got.codes.begin() + row * octile_codes_row_stride(kK), kK, got.codes.begin() + row * kK);
  }
  got.codes.resize(kM * kK);
  EXPECT_EQ(test::first_difference(kK, got, test::quantised(norm.shape, norm.plain_y())), "");
}

TEST_F(CApiProducers, SwiGluHonoursItsOptions) {
  octile_quantize_options quantize{};
  quantize.struct_size = sizeof(quantize);
  ASSERT_EQ(octile_quantize_preset("sglang", &quantize), OCTILE_OK);
  options.quantize = &quantize;
  options.pdl = OCTILE_PDL_OFF;
  ASSERT_EQ(octile_swiglu_create(&options, &producer), OCTILE_OK) << octile_last_error();
  PlainCodes got;
  got.codes.resize(kM * kK);
  got.scales.resize(kM);
  const octile_const_matrix x = in(gates.x);
  const octile_matrix codes = {sizeof(octile_matrix), got.codes.data(), kM, kK, 0, OCTILE_E4M3};
  ASSERT_EQ(octile_producer_run(producer, &x, nullptr, nullptr, &codes, got.scales.data(), nullptr), OCTILE_OK)
      << octile_last_error();
  ProducerShape shape = gates.shape;
  shape.quantize = quantize_preset("sglang").value();
  EXPECT_EQ(test::first_difference(kK, got, test::quantised(shape, gates.plain_y())), "");
}

TEST_F(CApiProducers, WrongArgumentsAreNamed) {
  const void* gamma = norm.gamma.bytes.data();
  const auto refused = [](octile_status status, const char* message) {
    EXPECT_EQ(status, OCTILE_INVALID_ARGUMENT);
    EXPECT_THAT(octile_last_error(), HasSubstr(message));
  };
  refused(octile_rms_norm_create(&options, gamma, OCTILE_BF16, 1e-6F, nullptr), "producer: got NULL");
  refused(octile_rms_norm_create(nullptr, gamma, OCTILE_BF16, 1e-6F, &producer), "producer_options: got NULL");
  refused(octile_rms_norm_create(&options, nullptr, OCTILE_BF16, 1e-6F, &producer), "want gamma [130], got a null pointer");
  refused(octile_rms_norm_create(&options, gamma, OCTILE_DTYPE_DEFAULT, 1e-6F, &producer), "gamma_dtype");
  refused(octile_rms_norm_create(&options, gamma, OCTILE_BF16, 0.0F, &producer), "epsilon > 0, got 0");
  const auto swiglu_refused = [&](const octile_producer_options& bad, const char* message) {
    refused(octile_swiglu_create(&bad, &producer), message);
    EXPECT_EQ(producer, nullptr);
  };
  octile_producer_options bad = options;
  bad.struct_size = 3;
  swiglu_refused(bad, "producer_options.struct_size");
  bad = options;
  bad.k = 0;
  swiglu_refused(bad, "got 0");
  bad = options;
  bad.dtype = 77;
  swiglu_refused(bad, "producer_options.dtype");
  bad = options;
  bad.pdl = -1;
  swiglu_refused(bad, "producer_options.pdl");
  options.device = "cuda:99";
  EXPECT_EQ(octile_swiglu_create(&options, &producer), OCTILE_UNAVAILABLE);
  options.device = nullptr;

  ASSERT_EQ(octile_swiglu_create(&options, &producer), OCTILE_OK) << octile_last_error();
  std::vector<unsigned char> y(kM * kK * 2);
  const octile_const_matrix x = in(gates.x);
  const octile_matrix y_view = {sizeof(octile_matrix), y.data(), kM, kK, 0, OCTILE_BF16};
  refused(octile_producer_run_unfused(nullptr, &x, nullptr, nullptr, &y_view, nullptr), "producer: got NULL");
  refused(octile_producer_run_unfused(producer, nullptr, nullptr, nullptr, &y_view, nullptr), "x: got NULL");
  refused(octile_producer_run_unfused(producer, &x, nullptr, nullptr, nullptr, nullptr), "y: got NULL");
  refused(octile_producer_run_unfused(producer, &x, &x, nullptr, &y_view, nullptr), "residual_out");
  refused(octile_producer_run_unfused(producer, &x, nullptr, &y_view, &y_view, nullptr), "residual_in");
  refused(octile_producer_run_unfused(producer, &x, &x, &y_view, &y_view, nullptr), "want NULL for SwiGLU");
  refused(octile_producer_run(producer, &x, nullptr, nullptr, &y_view, nullptr, nullptr), "codes: want e4m3, got bf16");
}

TEST_F(CApiProducers, LinearOptionsOfAnOlderHeaderStillServe) {
  octile_linear_options linear_options{};
  linear_options.struct_size = offsetof(octile_linear_options, behind_producer);
  linear_options.behind_producer = 77;  // Behind what an older caller has: not read.
  const std::vector<std::uint8_t> codes(32 * 32, 0x38);
  const float scale = 1.0F;
  octile_weight_source source{};
  source.struct_size = sizeof(source);
  source.n = source.k = 32;
  source.codes = codes.data();
  source.scales = &scale;
  source.scale_count = 1;
  octile_weight* weight = nullptr;
  octile_linear* linear = nullptr;
  ASSERT_EQ(octile_weight_create(&source, nullptr, &weight), OCTILE_OK) << octile_last_error();
  EXPECT_EQ(octile_linear_create(weight, &linear_options, &linear), OCTILE_OK) << octile_last_error();
  octile_linear_destroy(linear);
  linear = nullptr;
  linear_options.struct_size = sizeof(linear_options);
  EXPECT_EQ(octile_linear_create(weight, &linear_options, &linear), OCTILE_INVALID_ARGUMENT);
  EXPECT_THAT(octile_last_error(), HasSubstr("behind_producer: want 0 or 1, got 77"));
  linear_options.behind_producer = 1;
  EXPECT_EQ(octile_linear_create(weight, &linear_options, &linear), OCTILE_OK) << octile_last_error();
  octile_linear_destroy(linear);
  octile_weight_destroy(weight);
}

}  // namespace
}  // namespace octile
