// SPDX-License-Identifier: Apache-2.0
// Rows of e4m3 values: the plain quantiser's codes, decoded, for every input type and instruction set; and the epilogue.
#include "octile/kernels/cpu/row_values.h"

#include "octile/core/float_formats.h"
#include "octile/kernels/cpu/row_epilogue.h"
#include "octile/quant/quantize.h"
#include "support/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace octile::cpu {
namespace {

std::vector<Isa> usable() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512, Isa::avx512bf16}) {
    if (isa <= isa_of(cpu_features())) {
      all.push_back(isa);
    }
  }
  return all;
}

std::vector<float> as_floats(const std::vector<unsigned char>& bytes, DType dtype) {
  std::vector<float> values(bytes.size() / static_cast<std::size_t>(size_of(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_as_float(bytes.data(), dtype, static_cast<std::int64_t>(i));
  }
  return values;
}

// One row through row_scale() and row_values().
struct Row {
  float scale;
  std::vector<float> values;
};
Row row_of(const Activation& activation, std::int64_t row, DType dtype, Isa isa) {
  const std::int64_t k = activation.x.cols;
  std::vector<unsigned char> bytes(static_cast<std::size_t>(k * size_of(dtype)), 0xFF);
  const float scale = row_scale(activation, row, isa);
  row_values(activation, row, scale, dtype, reinterpret_cast<std::byte*>(bytes.data()), isa);
  return {scale, as_floats(bytes, dtype)};
}

TEST(DecodeCodes, DecodesAll256CodesExactlyInBothTypes) {
  std::vector<std::uint8_t> codes(256);
  for (std::size_t i = 0; i < 256; ++i) {
    codes[i] = static_cast<std::uint8_t>(i);
  }
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(256 * size_of(dtype)));
    decode_codes(codes.data(), 256, dtype, reinterpret_cast<std::byte*>(bytes.data()));
    const std::vector<float> values = as_floats(bytes, dtype);
    for (std::size_t i = 0; i < 256; ++i) {
      const float wanted = e4m3_to_float(codes[i]);
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(values[i])) << "code " << i;
      } else {
        EXPECT_EQ(values[i], wanted) << "code " << i;
        EXPECT_EQ(std::signbit(values[i]), std::signbit(wanted)) << "code " << i;
      }
    }
  }
}

TEST(RowValues, AreTheDecodedCodesOfThePlainQuantiser) {
  SCOPED_TRACE(test::seed_text());
  const std::int64_t m = 4;
  for (const std::int64_t k : {1, 4, 7, 8, 33, 511, 512, 513, 1100}) {
    const std::int64_t stride = k + 3;
    const std::vector<float> raw = test::normals_with_outliers(m * stride);
    for (const DType x_dtype : {DType::bf16, DType::fp16, DType::fp32}) {
      const std::vector<unsigned char> x = test::as_bytes(raw, x_dtype);
      for (const float static_scale : {0.0F, 0.013F}) {
        for (const Division division : {Division::exact, Division::reciprocal}) {
          Activation activation;
          activation.x = {x.data(), x_dtype, m, k, stride, 1};
          activation.static_scale = static_scale;
          activation.quantize.division = division;
          for (std::int64_t row = 0; row < m; ++row) {
            const unsigned char* begin = x.data() + row * stride * size_of(x_dtype);
            std::vector<std::uint8_t> codes(static_cast<std::size_t>(k));
            const float scale = static_scale > 0.0F ? quantize_row_static(begin, x_dtype, k, codes.data(), static_scale)
                                                    : quantize_row(begin, x_dtype, k, codes.data(), activation.quantize);
            for (const Isa isa : usable()) {
              for (const DType dtype : {DType::bf16, DType::fp32}) {
                const Row got = row_of(activation, row, dtype, isa);
                ASSERT_EQ(got.scale, scale) << isa_name(isa) << " K=" << k;
                for (std::size_t i = 0; i < codes.size(); ++i) {
                  ASSERT_EQ(got.values[i], e4m3_to_float(codes[i]))
                      << isa_name(isa) << ' ' << to_string(x_dtype) << " K=" << k << " row " << row << " element " << i;
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(RowValues, OfARowThatIsNotFiniteAreZerosWithAScaleOfNaN) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(20, 1.0F);
    x[13] = bad;
    const std::vector<unsigned char> bytes = test::as_bytes(x, DType::bf16);
    Activation activation;
    activation.x = {bytes.data(), DType::bf16, 2, 10, 10, 1};
    for (const Isa isa : usable()) {
      EXPECT_TRUE(std::isfinite(row_of(activation, 0, DType::bf16, isa).scale));
      const Row got = row_of(activation, 1, DType::bf16, isa);
      EXPECT_TRUE(std::isnan(got.scale));
      EXPECT_EQ(got.values, std::vector<float>(10, 0.0F));
    }
  }
}

TEST(RowValues, OfCodesAreTheirValuesAndTheScaleIsTheGivenOne) {
  SCOPED_TRACE(test::seed_text());
  const std::vector<std::uint8_t> codes = test::random_codes(3 * 40);
  const std::vector<float> scales = test::random_scales(3);
  Activation activation;
  activation.x = {codes.data(), DType::e4m3, 3, 37, 40, 1};
  activation.scales = scales.data();
  const Row got = row_of(activation, 2, DType::bf16, Isa::generic);
  EXPECT_EQ(got.scale, scales[2]);
  for (std::size_t i = 0; i < 37; ++i) {
    EXPECT_EQ(got.values[i], e4m3_to_float(codes[80 + i]));
  }
}

TEST(FinishRow, RoundsOnceAfterScalesAndBiasInTheContractsOrder) {
  SCOPED_TRACE(test::seed_text());
  for (const std::int64_t count : {1, 7, 8, 9, 16, 31, 100}) {
    const std::vector<float> acc = test::normals(count, 1000.0F);
    const std::vector<float> scales = test::random_scales(count);
    const std::vector<float> bias = test::normals(count);
    for (const float scale_x : {0.0123F, std::numeric_limits<float>::quiet_NaN(), 1e30F}) {
      for (const bool with_bias : {false, true}) {
        for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
          for (const Isa isa : usable()) {
            test::GuardedOutput y(dtype, 1, count, count);
            finish_row(acc.data(), scales.data(), scale_x, with_bias ? bias.data() : nullptr, count, y.data(), dtype, isa);
            EXPECT_TRUE(y.guards_intact());
            for (std::int64_t i = 0; i < count; ++i) {
              const auto at = static_cast<std::size_t>(i);
              float value = (acc[at] * scales[at]) * scale_x;
              value = with_bias ? value + bias[at] : value;
              float wanted = 0.0F;
              store_from_float(&wanted, dtype, 0, value);
              wanted = load_as_float(&wanted, dtype, 0);
              const float got = load_as_float(y.data(), dtype, i);
              ASSERT_TRUE(got == wanted || (std::isnan(got) && std::isnan(wanted)))
                  << isa_name(isa) << ' ' << to_string(dtype) << " element " << i << ": want " << wanted << ", got " << got;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace octile::cpu
