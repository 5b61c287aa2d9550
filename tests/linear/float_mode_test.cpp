// SPDX-License-Identifier: Apache-2.0
// Callers whose threads flush subnormals to zero or round otherwise, as torch.set_flush_denormal and -ffast-math leave them:
// every bit is the same, and the thread has its own mode back.
#include <octile/octile.hpp>
#include <octile/producers.hpp>

#include "cpu_table.h"
#include "layer.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <functional>
#include <thread>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace octile {
namespace {

using test::CpuTable;
using test::Inputs;
using test::run_guarded;
using test::Weights;

constexpr std::int64_t kM = 19;
constexpr std::int64_t kN = 70;
constexpr std::int64_t kK = 300;

// What `work` gives on a thread of its own in the default mode, and on one whose mode is another.
void expect_same_bits(const std::function<std::vector<unsigned char>()>& work) {
  std::vector<unsigned char> wanted;
  std::thread([&] { wanted = work(); }).join();
  ASSERT_FALSE(wanted.empty());
  std::thread([&] {
    ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
    EXPECT_EQ(work(), wanted) << "rounding upward";
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
  }).join();
#if defined(__x86_64__)
  std::thread([&] {
    constexpr unsigned kFlushResultsAndOperands = 0x8040;
    const unsigned mode = _mm_getcsr() | kFlushResultsAndOperands;
    _mm_setcsr(mode);
    EXPECT_EQ(work(), wanted) << "subnormals flushed";
    EXPECT_EQ(_mm_getcsr() & kFlushResultsAndOperands, kFlushResultsAndOperands);
  }).join();
#endif
}

// Rows of ordinary values, rows that bf16 holds as subnormals, and rows around the smallest normal.
Inputs small_inputs(std::int64_t k) {
  Inputs inputs(kM, k);
  for (std::int64_t row = 0; row < kM; ++row) {
    const float factor = row % 3 == 0 ? 1.0F : row % 3 == 1 ? 1e-39F : 2e-38F;
    for (std::int64_t i = 0; i < k; ++i) {
      const std::int64_t at = row * k + i;
      store_from_float(inputs.bytes.data(), DType::bf16, at, load_as_float(inputs.bytes.data(), DType::bf16, at) * factor);
    }
  }
  return inputs;
}

class FloatMode : public testing::TestWithParam<std::string> {};

TEST_P(FloatMode, OfTheCallerChangesNoBitOfALinear) {
  const CpuTable table({kN, kK}, GetParam());
  if (!table.available()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  Weights weights(kN, kK);
  for (std::size_t channel = 0; channel < weights.scales.size(); channel += 4) {
    weights.scales[channel] = 1e-39F;
  }
  const Inputs inputs = small_inputs(kK);
  const std::vector<float> bias(kN, 3e-39F);
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{2}, kM}) {
    expect_same_bits([&] {
      auto weight = Fp8Weight::create(weights.source(), table.options());
      if (!weight) {
        ADD_FAILURE() << weight.error().message;
        return std::vector<unsigned char>();
      }
      LinearOptions linear_options;
      linear_options.bias = bias.data();
      auto linear = Fp8Linear::create(*weight, linear_options);
      EXPECT_TRUE(linear) << linear.error().message;
      EXPECT_TRUE(linear->prepare(kM));
      return run_guarded(*linear, inputs.view(kM - rows, rows), DType::bf16, kN);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, FloatMode, testing::Values("reference", "avx2", "avx512", kBaselineKernel),
                         [](const testing::TestParamInfo<std::string>& kernel) { return kernel.param; });

TEST(FloatModeOfTheCaller, ChangesNoBitOfTheQuantiser) {
  const Inputs inputs = small_inputs(kK);
  expect_same_bits([&] {
    std::vector<unsigned char> result(static_cast<std::size_t>(kM * kK));
    std::vector<float> scales(kM);
    EXPECT_TRUE(quantize_per_token(inputs.view(), result.data(), scales.data()));
    const auto* bytes = reinterpret_cast<const unsigned char*>(scales.data());
    result.insert(result.end(), bytes, bytes + scales.size() * sizeof(float));
    return result;
  });
}

TEST(FloatModeOfTheCaller, ChangesNoBitOfAProducer) {
  const Inputs inputs = small_inputs(kK);
  const Inputs gate_up = small_inputs(2 * kK);
  const std::vector<float> gamma(kK, 1.0F / 3);
  const auto codes_of = [](const auto& producer, const auto&... operands) {
    std::vector<unsigned char> codes(static_cast<std::size_t>(kM * kK));
    std::vector<float> scales(kM);
    EXPECT_TRUE(producer.run(operands..., QuantizedRows{{codes.data(), DType::e4m3, kM, kK, kK, 1}, scales.data()}));
    return codes;
  };
  expect_same_bits([&] {
    RmsNormOptions options;
    options.producer.k = kK;
    options.gamma = gamma.data();
    options.gamma_dtype = DType::fp32;
    options.epsilon = 1e-30F;
    const auto norm = RmsNorm::create(options);
    EXPECT_TRUE(norm) << norm.error().message;
    return codes_of(*norm, inputs.view(), nullptr);
  });
  expect_same_bits([&] {
    ProducerOptions options;
    options.k = kK;
    const auto swiglu = SwiGlu::create(options);
    EXPECT_TRUE(swiglu) << swiglu.error().message;
    return codes_of(*swiglu, gate_up.view());
  });
}

}  // namespace
}  // namespace octile
