// SPDX-License-Identifier: Apache-2.0
// Fp8Weight: what it takes, what it refuses, and which layouts it packs.
#include "octile/linear/weight.h"

#include "layer.h"
#include "octile/core/env.h"
#include "octile/table/table_store.h"
#include "support/fake_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace octile {
namespace {

using test::FakeBackend;
using test::Inputs;
using test::run_guarded;
using test::Weights;
using testing::HasSubstr;
using testing::SizeIs;

class Weight : public testing::Test {
 protected:
  Weight() : weights(17, 12, 5) {
    backend.add("ours");
    source = weights.source();
  }
  // The message of a refusal by invalid_argument; "" where it was taken.
  std::string refusal(const WeightSource& from, const WeightOptions& options = {}) const {
    const auto made = pack_weight(backend.device(), from, options);
    if (made) {
      return "";
    }
    EXPECT_EQ(made.error().code, ErrorCode::invalid_argument) << made.error().message;
    return made.error().message;
  }

  testing::ScopedTrace trace{__FILE__, __LINE__, test::seed_text()};
  FakeBackend backend;
  Weights weights;
  WeightSource source;
};

TEST_F(Weight, StatesItsShapeAndItsBytes) {
  const auto made = pack_weight(backend.device(), source, {});
  ASSERT_TRUE(made);
  EXPECT_EQ(made->n(), 17);
  EXPECT_EQ(made->k(), 12);
  EXPECT_EQ(made->bytes(), 17 * 12 + 17 * 4);
}

TEST_F(Weight, RefusesShapesStridesAndPointersThatBreakTheContract) {
  const auto with = [&](auto change) {
    WeightSource changed = source;
    change(changed);
    return refusal(changed);
  };
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(with([](WeightSource& s) { s.n = 0; }), HasSubstr("[0, 12]"));
  EXPECT_THAT(with([](WeightSource& s) { s.k = 0; }), HasSubstr("[17, 0]"));
  EXPECT_THAT(with([](WeightSource& s) { s.n = -17; }), HasSubstr("[-17, 12]"));
  EXPECT_THAT(with([](WeightSource& s) { s.n = kHuge; }), HasSubstr("9223372036854775807"));
  EXPECT_THAT(with([](WeightSource& s) { s.k = kHuge; }), HasSubstr("9223372036854775807"));
  EXPECT_THAT(with([](WeightSource& s) { s.row_stride = kHuge; }), HasSubstr("9223372036854775807"));
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  EXPECT_THAT(with([](WeightSource& s) { s.n = kLowest; }), HasSubstr("-9223372036854775808"));
  EXPECT_THAT(with([](WeightSource& s) { s.k = kLowest; }), HasSubstr("-9223372036854775808"));
  EXPECT_THAT(with([](WeightSource& s) { s.row_stride = kLowest; }), HasSubstr("-9223372036854775808"));
  EXPECT_THAT(with([](WeightSource& s) { s.n = s.k = s.scale_count = std::int64_t{1} << 30; }), HasSubstr("1073741824"));
  EXPECT_THAT(with([](WeightSource& s) { s.row_stride = 11; }), HasSubstr("11"));
  EXPECT_THAT(with([](WeightSource& s) { s.row_stride = -12; }), HasSubstr("-12"));
  EXPECT_THAT(with([](WeightSource& s) { s.codes = nullptr; }), HasSubstr("null"));
  EXPECT_THAT(with([](WeightSource& s) { s.scales = nullptr; }), HasSubstr("null"));
  EXPECT_THAT(with([](WeightSource& s) { s.scale_count = 12; }), HasSubstr("got 12"));
  EXPECT_THAT(with([](WeightSource& s) { s.scale_count = 0; }), HasSubstr("got 0"));
}

TEST_F(Weight, RefusesDTypesAndNamesE4m3fnuz) {
  source.code_dtype = DType::e4m3fnuz;
  EXPECT_THAT(refusal(source), HasSubstr("e4m3fnuz"));
  source.code_dtype = DType::bf16;
  EXPECT_THAT(refusal(source), HasSubstr("bf16"));
  source.code_dtype = DType::e4m3;
  source.scale_dtype = DType::e4m3;
  EXPECT_THAT(refusal(source), HasSubstr("e4m3"));
  source.scale_dtype = DType::fp32;
  WeightOptions options;
  options.out_dtype = DType::e4m3;
  EXPECT_THAT(refusal(source, options), HasSubstr("output: want bf16, fp16 or fp32, got e4m3"));
}

TEST_F(Weight, RefusesScalesThatAreNotFiniteOrNegative) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), -0.5F}) {
    std::vector<float> scales = weights.scales;
    scales[16] = bad;
    source.scales = scales.data();
    EXPECT_THAT(refusal(source), HasSubstr("16"));
  }
}

TEST_F(Weight, AScaleOfZeroIsForAChannelOfZerosOnly) {
  std::vector<float> scales = weights.scales;
  scales[3] = 0.0F;
  source.scales = scales.data();
  EXPECT_THAT(refusal(source), HasSubstr("not all 0"));
  for (std::int64_t k = 0; k < 12; ++k) {
    weights.codes[static_cast<std::size_t>(3 * weights.row_stride + k)] = k % 2 == 0 ? 0x00 : 0x80;
  }
  EXPECT_EQ(refusal(source), "");
}

TEST_F(Weight, OneScaleForAllIsTheSameAsNEqualOnes) {
  const float one = 0.0123F;
  std::ranges::fill(weights.scales, one);
  WeightSource per_tensor = source;
  per_tensor.scales = &one;
  per_tensor.scale_count = 1;
  const Inputs x(3, 12);
  std::vector<std::vector<unsigned char>> results;
  for (const WeightSource& each : {source, per_tensor}) {
    auto layer = Fp8Linear::create(pack_weight(backend.device(), each, {}).value());
    ASSERT_TRUE(layer->prepare(3));
    results.push_back(run_guarded(*layer, x.view(), DType::bf16, 17));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(Weight, NarrowScalesAreWidenedExactly) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    const std::vector<unsigned char> narrow = test::as_bytes(weights.scales, dtype);
    for (std::int64_t i = 0; i < 17; ++i) {
      weights.scales[static_cast<std::size_t>(i)] = load_as_float(narrow.data(), dtype, i);
    }
    WeightSource from_narrow = source;
    from_narrow.scales = narrow.data();
    from_narrow.scale_dtype = dtype;
    const Inputs x(3, 12);
    std::vector<std::vector<unsigned char>> results;
    for (const WeightSource& each : {source, from_narrow}) {
      auto layer = Fp8Linear::create(pack_weight(backend.device(), each, {}).value());
      ASSERT_TRUE(layer->prepare(3));
      results.push_back(run_guarded(*layer, x.view(), DType::bf16, 17));
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST_F(Weight, TheSourceMayBeFreedAfterPacking) {
  auto owned = std::make_unique<Weights>(9, 8);
  const Weights copy = *owned;
  auto layer = Fp8Linear::create(pack_weight(backend.device(), owned->source(), {}).value());
  std::ranges::fill(owned->codes, std::uint8_t{0x7F});
  owned.reset();
  ASSERT_TRUE(layer->prepare(2));
  const Inputs x(2, 8);
  test::GuardedOutput y(DType::bf16, 2, 9, 9);
  test::Workspace workspace(layer->workspace_bytes(2));
  ASSERT_TRUE(layer->run(x.view(), y.view(), workspace.data(), workspace.bytes()));
  test::expect_close(copy, x, nullptr, y.view());
}

TEST_F(Weight, ADeviceThatIsNotThereIsUnavailable) {
  WeightOptions options;
  options.device = "cuda:77";
  const auto made = Fp8Weight::create(source, options);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::unavailable);
  EXPECT_THAT(made.error().message, HasSubstr("cuda:77"));
}

TEST_F(Weight, ATypoInTheKillSwitchIsAnErrorThatListsTheWords) {
  const env::ScopedOverride typo("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE", "of");
  EXPECT_THAT(refusal(source), testing::AllOf(HasSubstr("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE"), HasSubstr("off")));
}

TEST_F(Weight, WithoutATableTheVendorsLayoutAloneIsPacked) {
  backend.add_vendor("vendor");
  const auto made = pack_weight(backend.device(), source, {});
  ASSERT_TRUE(made);
  EXPECT_THAT(made->impl()->packed, SizeIs(1));
  EXPECT_NE(packed_in_layout(*made->impl(), "vendor_layout"), nullptr);
  EXPECT_EQ(packed_in_layout(*made->impl(), "packed"), nullptr);
}

TEST_F(Weight, AnUpdateRefusesAnotherShapeAndWhatCreateRefuses) {
  auto made = pack_weight(backend.device(), source, {});
  ASSERT_TRUE(made);
  const auto refused = [&](const WeightSource& from, SourceMemory memory = SourceMemory::host) {
    const auto updated = made->update(from, memory);
    EXPECT_FALSE(updated);
    EXPECT_EQ(updated.error().code, ErrorCode::invalid_argument) << updated.error().message;
    return updated.error().message;
  };
  WeightSource other = source;
  other.k = 11;
  EXPECT_THAT(refused(other), HasSubstr("want the weight's shape [17, 12], got [17, 11]"));
  other = source;
  other.codes = nullptr;
  EXPECT_THAT(refused(other), HasSubstr("codes"));
  EXPECT_THAT(refused(other, SourceMemory::device), HasSubstr("want e4m3 codes and [n] = 17 fp32 scales"));
  other = source;
  other.scale_count = 1;
  EXPECT_THAT(refused(other, SourceMemory::device), HasSubstr("got e4m3 codes"));
  other = source;
  other.row_stride = 5;
  EXPECT_THAT(refused(other, SourceMemory::device), HasSubstr("want a row stride >= K = 12, got 5"));
  EXPECT_EQ(made->impl()->updates, 0U);  // Nothing was written, and no call need wait.
}

TEST_F(Weight, WhereWeightsArePackedAnewAnUpdateSaysSo) {
  auto made = pack_weight(backend.device(), source, {});
  ASSERT_TRUE(made);
  const auto updated = made->update(source);
  ASSERT_FALSE(updated);
  EXPECT_EQ(updated.error().code, ErrorCode::unavailable);
  EXPECT_THAT(updated.error().message, HasSubstr("create a new one"));
}

}  // namespace
}  // namespace octile
