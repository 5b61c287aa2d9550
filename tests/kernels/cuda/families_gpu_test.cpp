// SPDX-License-Identifier: Apache-2.0
// What every family computes on a GPU, against the double-precision reference and against itself. Skipped without one.
#include "family_under_test.h"
#include "octile/core/float_formats.h"
#include "octile/kernels/known_devices.h"
#include "support/product_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace octile::cuda {
namespace {

using test::fitted;
using test::ProductCase;
using test::ProductShape;

constexpr std::uint8_t kOne = 0x38;  // e4m3 of 1.
constexpr std::uint8_t k256 = 0x78;
constexpr std::uint8_t kMinus256 = 0xF8;
constexpr std::uint8_t kNaN = 0x7F;

TEST(FamiliesUnderTest, InSlabsEveryFamilyKeepsManyConfigsInBothModes) {
  for (const FamilyUnderTest& tested : families_and_layouts_under_test()) {
    for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
      Problem problem;
      problem.n = 448;
      problem.k = 1408;
      problem.accumulate = accumulate;
      problem.layout = tested.layout;
      if (tested.layout == WeightLayout::slab64) {
        EXPECT_GT(tested.every_kind(problem, 70).size(), 10U) << tested.name << ' ' << to_string(accumulate);
      }
    }
  }
}

TEST(FamiliesUnderTest, TheirConfigsForEveryShapeAreLegalOnAnH200) {
  const DeviceInfo device = *known_device("NVIDIA_H200");
  const env::ScopedOverride cutlass_too("OCTILE_CUTLASS_ON_ANY_GPU", "on");
  for (const FamilyUnderTest& tested : families_and_layouts_under_test()) {
    if (&tested.family() == &cutlass_family() && cutlass_component().api == nullptr) {
      continue;  // Its kernels are those of a component that is not here.
    }
    for (const std::int64_t n : {1, 2, 17, 64, 96, 520, 1001, 2048}) {
      for (const std::int64_t k : {1, 4, 12, 16, 20, 64, 100, 160, 1040, 4096}) {
        for (const DType out : {DType::bf16, DType::fp16, DType::fp32}) {
          Problem problem;
          const ProductShape shape = fitted({.n = n, .k = k}, tested.layout);
          problem.n = shape.n;
          problem.k = shape.k;
          problem.layout = shape.layout;
          problem.out_dtype = out;
          std::vector<TileConfig> configs = tested.few();
          configs.push_back(tested.wide());
          for (const TileConfig& config : configs) {
            const auto checked = tested.family().check(device, problem, config);
            ASSERT_TRUE(checked) << tested.name << " N=" << n << " K=" << k << ": " << checked.error().message;
          }
        }
      }
    }
  }
}

class Families : public FamilyTest {
 protected:
  // As the family's weights want it.
  static void fit(ProductShape& shape) { shape = fitted(shape, GetParam().layout); }
};
INSTANTIATE_TEST_SUITE_P(Gpu, Families, testing::ValuesIn(families_and_layouts_under_test()), name_of);

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

TEST_P(Families, EveryKindOfConfigIsRightWithTailsInEveryDimension) {
  ProductShape shape;
  shape.n = 331;
  shape.k = 1100;
  shape.bias = true;
  shape.x_pad = 5;
  shape.y_pad = 3;
  for (const std::int64_t m : {1, 17, 150}) {
    shape.m = m;
    fit(shape);
    ProductCase one(shape);
    for (const TileConfig& config : configs_for(one.problem(), m)) {
      one.expect_right(family(), config);
    }
  }
}

TEST_P(Families, EveryKindOfConfigIsRightInPreciseMode) {
  ProductShape shape;
  shape.m = 70;
  shape.n = 200;
  shape.k = 2080;
  shape.accumulate = Accumulate::precise;
  shape.out_dtype = DType::fp32;
  fit(shape);
  ProductCase one(shape);
  for (const TileConfig& config : configs_for(one.problem(), shape.m)) {
    one.expect_right(family(), config);
  }
}

TEST_P(Families, TinyShapesAndEveryOutputType) {
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const std::int64_t k : {1, 4, 12, 16, 20, 100}) {
      for (const std::int64_t n : {1, 2, 17, 1001}) {
        ProductShape shape;
        shape.m = 3;
        shape.n = n;
        shape.k = k;
        shape.out_dtype = dtype;
        shape.bias = n % 2 == 1;
        fit(shape);
        ProductCase one(shape);
        for (const TileConfig& config : GetParam().few()) {
          one.expect_right(family(), config);
        }
      }
    }
  }
}

// A tile that takes a neighbour's scales, or the first tile's, shows here: the scales of rows 41 apart, and of channels 37
// apart, are the only equal ones.
TEST_P(Families, OnesWithPowersOfTwoAsScalesAreExactEverywhere) {
  ProductShape shape;
  shape.m = 260;
  shape.n = 516;
  shape.k = 256;
  shape.out_dtype = DType::fp32;
  for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
    shape.accumulate = accumulate;
    fit(shape);
    ProductCase one(shape);
    one.codes_x.assign(one.codes_x.size(), kOne);
    one.codes_w.assign(one.codes_w.size(), kOne);
    for (std::int64_t i = 0; i < shape.m; ++i) {
      one.scales_x[at(i)] = std::ldexp(1.0F, static_cast<int>(i % 41) - 20);
    }
    for (std::int64_t i = 0; i < shape.n; ++i) {
      one.scales_w[at(i)] = std::ldexp(1.0F, static_cast<int>(i % 37) - 18);
    }
    one.upload();
    for (const TileConfig& config : configs_for(one.problem(), shape.m)) {
      const auto kernel = one.prepare(family(), config);
      ASSERT_NE(kernel, nullptr);
      const auto bytes = one.run(*kernel);
      for (std::int64_t m = 0; m < shape.m; ++m) {
        for (std::int64_t n = 0; n < shape.n; ++n) {
          const float want = 256.0F * one.scales_x[at(m)] * one.scales_w[at(n)];
          ASSERT_EQ(load_as_float(bytes.data(), DType::fp32, m * shape.n + n), want)
              << config.to_json() << " at (" << m << ", " << n << "), accumulate " << to_string(accumulate);
        }
      }
    }
  }
}

// Sums of 2^27 are scaled before they are narrowed: they come out exactly where fp16 holds them, and as infinity beyond,
// never as NaN or the largest finite value. Products and partial sums are powers of two and few bits, which every
// accumulator keeps.
TEST_P(Families, LargeSumsAreScaledBeforeTheyAreNarrowedAndOverflowToInfinity) {
  constexpr std::int64_t kK = 2048;
  constexpr int kSumExponent = 8 + 8 + 11;  // 256 * 256 * 2048.
  ProductShape shape;
  shape.m = 24;
  shape.n = 80;
  shape.k = kK;
  shape.out_dtype = DType::fp16;
  fit(shape);
  ProductCase one(shape);
  one.codes_x.assign(one.codes_x.size(), k256);
  for (std::int64_t n = 0; n < shape.n; ++n) {
    std::fill_n(one.codes_w.begin() + n * kK, kK, n % 2 == 0 ? k256 : kMinus256);
    one.scales_w[at(n)] = 1.0F;
  }
  const auto exponent_of_row = [](std::int64_t m) { return static_cast<int>(m) - 20; };
  for (std::int64_t m = 0; m < shape.m; ++m) {
    one.scales_x[at(m)] = std::ldexp(1.0F, exponent_of_row(m));
  }
  one.upload();
  for (const TileConfig& config : configs_for(one.problem(), shape.m)) {
    SCOPED_TRACE(config.to_json());
    const auto kernel = one.prepare(family(), config);
    ASSERT_NE(kernel, nullptr);
    const auto bytes = one.run(*kernel);
    for (std::int64_t m = 0; m < shape.m; ++m) {
      const int exponent = kSumExponent + exponent_of_row(m);  // 7 to 30; fp16 ends below 2^16.
      const float want = exponent >= 16 ? std::numeric_limits<float>::infinity() : std::ldexp(1.0F, exponent);
      for (std::int64_t n = 0; n < shape.n; ++n) {
        ASSERT_EQ(load_as_float(bytes.data(), DType::fp16, m * shape.n + n), n % 2 == 0 ? want : -want)
            << "(" << m << ", " << n << ")";
      }
    }
  }
}

TEST_P(Families, ARowOrChannelOfNaNStaysAlone) {
  ProductShape shape;
  shape.m = 21;
  shape.n = 70;
  shape.k = 300;
  fit(shape);
  ProductCase one(shape);
  std::fill_n(one.codes_x.begin() + 4 * shape.k, shape.k, kNaN);
  one.scales_x[4] = std::numeric_limits<float>::quiet_NaN();
  one.codes_w[at(33 * shape.k + 299)] = 0xFF;
  one.upload();
  for (const TileConfig& config : configs_for(one.problem(), shape.m)) {
    one.expect_right(family(), config);
  }
}

TEST_P(Families, AHundredRunsGiveTheSameBits) {
  ProductShape shape;
  shape.m = 77;
  shape.n = 1030;
  shape.k = 4100;
  fit(shape);
  ProductCase one(shape);
  for (const TileConfig& config : configs_for(one.problem(), shape.m)) {
    const auto kernel = one.prepare(family(), config);
    ASSERT_NE(kernel, nullptr);
    const auto first = one.run(*kernel);
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(one.run(*kernel), first) << config.to_json() << ", run " << i;
    }
  }
}

// `rows` rows of `all` from `first` on, as a case of its own.
ProductCase rows_of(const ProductCase& all, std::int64_t first, std::int64_t rows) {
  ProductShape shape = all.shape;
  shape.m = rows;
  ProductCase part(shape);
  std::copy_n(all.codes_x.begin() + first * shape.k, rows * shape.k, part.codes_x.begin());
  std::copy_n(all.scales_x.begin() + first, rows, part.scales_x.begin());
  part.codes_w = all.codes_w;
  part.scales_w = all.scales_w;
  part.upload();
  return part;
}

// Where bits are promised, they depend neither on the config nor on the rows beside: every legal config gives row for row
// the bits of the first, with all rows and with one row, 2 and 17 of them.
TEST_P(Families, WhereBitsArePromisedARowHasThemUnderEveryConfigAndAmongAnyOthers) {
  for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
    ProductShape shape;
    shape.m = 34;
    shape.n = 264;
    shape.k = 1500;
    shape.accumulate = accumulate;
    fit(shape);
    ProductCase all(shape);
    Problem problem = all.problem();
    GetParam().promise_bits(problem);
    const std::int64_t row_bytes = shape.n * size_of(shape.out_dtype);
    std::vector<unsigned char> bits;
    std::vector<ProductCase> parts;
    const std::int64_t first_rows[] = {33, 7, 16, 0};
    const std::int64_t row_counts[] = {1, 2, 17, 34};
    for (std::size_t i = 0; i < 4; ++i) {
      parts.push_back(rows_of(all, first_rows[i], row_counts[i]));
    }
    int compared = 0;
    for (const TileConfig& config : configs_for(problem, shape.m)) {
      auto kernel = family().prepare(device(), problem, config, shape.m);
      ASSERT_TRUE(kernel) << kernel.error().message;
      if (bits.empty()) {
        bits = all.run(**kernel);
      }
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const auto came = parts[i].run(**kernel);
        const auto begin = bits.begin() + first_rows[i] * row_bytes;
        EXPECT_EQ(came, (std::vector<unsigned char>(begin, begin + row_counts[i] * row_bytes)))
            << config.to_json() << ", " << row_counts[i] << " rows, accumulate " << to_string(accumulate);
      }
      ++compared;
    }
    EXPECT_GE(compared, 2) << "one config alone shows little";
  }
}

// The same config gives a row the same bits among any others, split or not: what decides is the order along K.
TEST_P(Families, UnderOneConfigARowsBitsDoNotDependOnTheOthers) {
  if (family().is_vendor()) {
    GTEST_SKIP() << "the library's own choice is another kernel for another M";
  }
  ProductShape shape;
  shape.m = 34;
  shape.n = 264;
  shape.k = 1500;
  fit(shape);
  ProductCase all(shape);
  ProductCase alone = rows_of(all, 20, 1);
  ProductCase few = rows_of(all, 20, 3);
  const std::int64_t row_bytes = shape.n * size_of(shape.out_dtype);
  for (const TileConfig& config : configs_for(all.problem(), shape.m)) {
    const auto kernel = all.prepare(family(), config);
    ASSERT_NE(kernel, nullptr);
    const auto bits = all.run(*kernel);
    const auto begin = bits.begin() + 20 * row_bytes;
    EXPECT_EQ(alone.run(*kernel), (std::vector<unsigned char>(begin, begin + row_bytes))) << config.to_json();
    EXPECT_EQ(few.run(*kernel), (std::vector<unsigned char>(begin, begin + 3 * row_bytes))) << config.to_json();
  }
}

// numerics=baseline: every config of ours that is legal in it has the bits of cuBLASLt's own choice.
TEST_P(Families, InTheBaselinesNumericsTheBitsAreCublasLts) {
  if (const auto vendor = cublaslt_family().available(device()); !vendor) {
    GTEST_SKIP() << vendor.error().message;
  }
  for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
    for (const DType out : {DType::bf16, DType::fp32}) {
      ProductShape shape;
      shape.m = 40;
      shape.n = 528;
      shape.k = 4112;
      shape.accumulate = accumulate;
      shape.out_dtype = out;
      fit(shape);
      ProductCase one(shape);
      Problem problem = one.problem();
      problem.numerics = Numerics::baseline;
      const auto candidates = GetParam().every_kind(problem, shape.m);
      if (std::ranges::none_of(candidates,
                               [&](const auto& config) { return family().check(device(), problem, config).has_value(); })) {
        GTEST_SKIP() << GetParam().name << " does not promise these bits";
      }
      auto vendor = cublaslt_family().prepare(device(), problem, {}, shape.m);
      ASSERT_TRUE(vendor) << vendor.error().message;
      // The vendor reads rows.
      ProductCase as_rows(fitted(shape, WeightLayout::automatic));
      as_rows.codes_x = one.codes_x;
      as_rows.scales_x = one.scales_x;
      as_rows.codes_w = one.codes_w;
      as_rows.scales_w = one.scales_w;
      as_rows.upload();
      const auto wanted = as_rows.run(**vendor);
      for (const TileConfig& config : configs_for(problem, shape.m)) {
        auto kernel = family().prepare(device(), problem, config, shape.m);
        ASSERT_TRUE(kernel) << kernel.error().message;
        EXPECT_EQ(one.run(**kernel), wanted)
            << config.to_json() << " accumulate " << to_string(accumulate) << ", " << to_string(out);
      }
    }
  }
}

}  // namespace
}  // namespace octile::cuda
