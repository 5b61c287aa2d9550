// SPDX-License-Identifier: Apache-2.0
// The fast quantiser against the plain one, bit for bit, and the layout of tiles.
#include "octile/kernels/cpu/activations.h"

#include "octile/core/float_formats.h"
#include "octile/quant/quantize.h"
#include "support/cpu_linear.h"
#include "support/random.h"
#include "support/software_tiles.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

namespace octile::cpu {
namespace {

struct EngineUnderTest {
  const char* label;
  const Engine* engine;
  Isa isa;
};

class CpuActivations : public ::testing::TestWithParam<EngineUnderTest> {
 protected:
  void SetUp() override {
    if (engine() == nullptr || isa_of(cpu_features()) < GetParam().isa) {
      GTEST_SKIP() << "this CPU has no " << isa_name(GetParam().isa);
    }
  }
  const Engine* engine() const { return GetParam().engine; }

  // Rows as tiles of at most micro_m, read back: value (row, k).
  struct Prepared {
    GemmPlan plan;
    std::vector<std::uint8_t> tiles;
    std::vector<float> scales;
    float value(std::int64_t row, std::int64_t k) const {
      const GemmPlan::RowPlace place = plan.place_of_row(row);
      const std::int64_t group = plan.engine->activation_k;
      const std::int64_t index = (k / group * place.tile_rows + place.row_in_tile) * group + k % group;
      const std::uint8_t* tile = tiles.data() + place.tile_offset_bytes;
      return plan.engine->value_bytes == 2 ? load_as_float(tile, DType::bf16, index)
                                           : load_as_float(tile, DType::fp32, index) / plan.engine->activation_factor;
    }
  };
  Prepared prepare(const Activation& activation, int micro_m, std::int64_t block_m) const {
    Prepared p;
    p.plan.config.micro_m = micro_m;
    p.plan.config.block_m = block_m;
    p.plan.engine = engine();
    p.plan.m = activation.x.rows;
    p.plan.n = 16;
    p.plan.padded_k = round_up(activation.x.cols, kPaddingK);
    p.tiles.assign(static_cast<std::size_t>(p.plan.activation_bytes()), 0xFF);
    p.scales.assign(static_cast<std::size_t>(p.plan.m), -1.0F);
    prepare_activations(p.plan, activation, 0, p.plan.m, p.tiles.data(), p.scales.data());
    return p;
  }
};

// All bf16 (fp16) bit patterns that are finite, in rows of 1000, scaled so that every code and every tie occurs.
TEST_P(CpuActivations, EveryFiniteInputGetsTheCodeOfThePlainQuantiser) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    std::vector<std::uint16_t> bits;
    for (std::uint32_t b = 0; b < 65536; ++b) {
      if (std::isfinite(load_as_float(&b, dtype, 0))) {
        bits.push_back(static_cast<std::uint16_t>(b));
      }
    }
    const auto count = static_cast<std::int64_t>(bits.size());
    std::vector<float> values(bits.size());
    std::vector<std::uint8_t> codes(bits.size());
    for (const float scale : {1.0F, 0.0371F, 3.3e-4F, 1.7e20F, 0x1p-126F}) {
      for (const Division division : {Division::exact, Division::reciprocal}) {
        engine()->quantize->round_to_grid(bits.data(), dtype, 0, count, scale, division, values.data());
        for (std::size_t i = 0; i < bits.size(); ++i) {
          const float x = load_as_float(&bits[i], dtype, 0);
          const float want =
              e4m3_to_float(float_to_e4m3_saturate(division == Division::exact ? x / scale : x * (1.0F / scale)));
          ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(want))
              << to_string(dtype) << " " << x << " by " << scale << ": want " << want << ", got " << values[i];
        }
      }
    }
  }
}

TEST_P(CpuActivations, Fp32InputsAroundEveryTieGetTheCodeOfThePlainQuantiser) {
  std::vector<float> x;
  for (int code = 0; code < 126; ++code) {
    const float tie =
        (e4m3_to_float(static_cast<std::uint8_t>(code)) + e4m3_to_float(static_cast<std::uint8_t>(code + 1))) / 2;
    for (const float v : {tie, std::nextafterf(tie, 0.0F), std::nextafterf(tie, 1000.0F)}) {
      x.push_back(v);
      x.push_back(-v);
    }
  }
  for (const float v : {464.0F, 464.1F, 480.0F, 1e30F, 3.4e38F, 1e-45F, 0.0F}) {
    x.push_back(v);
    x.push_back(-v);
  }
  std::vector<float> values(x.size());
  engine()->quantize->round_to_grid(x.data(), DType::fp32, 0, static_cast<std::int64_t>(x.size()), 1.0F, Division::exact,
                                    values.data());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float want = e4m3_to_float(float_to_e4m3_saturate(x[i]));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(want)) << x[i];
  }
}

TEST_P(CpuActivations, FindTheLargestMagnitudeAndEveryElementThatIsNotFinite) {
  SCOPED_TRACE(test::seed_text());
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const std::int64_t k : {1, 7, 8, 15, 16, 17, 40}) {
      for (std::int64_t at = 0; at < k; ++at) {
        std::vector<unsigned char> row = test::as_bytes(test::normals(k), dtype);
        store_from_float(row.data(), dtype, at, -1000.0F);
        EXPECT_EQ(engine()->quantize->row_amax(row.data(), dtype, k), load_as_float(row.data(), dtype, at) * -1.0F);
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity()}) {
          store_from_float(row.data(), dtype, at, bad);
          EXPECT_TRUE(std::isnan(engine()->quantize->row_amax(row.data(), dtype, k)))
              << to_string(dtype) << ", " << bad << " at " << at << " of " << k;
        }
      }
    }
  }
}

TEST_P(CpuActivations, RowsLandInTheirTilesWithScalesAndPadding) {
  SCOPED_TRACE(test::seed_text());
  for (const std::int64_t k : {1, 31, 33, 600}) {
    const test::LinearOperands operands = test::LinearOperands::random(23, 1, k);
    Activation activation;
    activation.x = operands.x_view();
    const Prepared p = prepare(activation, 4, 9);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(k));
    for (std::int64_t row = 0; row < 23; ++row) {
      const float scale = quantize_row(operands.x.data() + row * operands.x_stride * 2, DType::bf16, k, codes.data(), {});
      ASSERT_EQ(p.scales[static_cast<std::size_t>(row)], scale);
      for (std::int64_t i = 0; i < p.plan.padded_k; ++i) {
        const float want = i < k ? e4m3_to_float(codes[static_cast<std::size_t>(i)]) : 0.0F;
        ASSERT_EQ(p.value(row, i), want) << "row " << row << ", k " << i << " of " << k;
      }
    }
  }
}

TEST_P(CpuActivations, ARowThatIsNotFiniteBecomesZerosWithAScaleOfNaN) {
  test::LinearOperands operands = test::LinearOperands::random(3, 1, 50);
  store_from_float(operands.x.data(), DType::bf16, operands.x_stride + 49, std::numeric_limits<float>::infinity());
  Activation activation;
  activation.x = operands.x_view();
  const Prepared p = prepare(activation, 4, 9);
  EXPECT_TRUE(std::isnan(p.scales[1]));
  EXPECT_TRUE(std::isfinite(p.scales[0]) && std::isfinite(p.scales[2]));
  for (std::int64_t k = 0; k < p.plan.padded_k; ++k) {
    EXPECT_EQ(p.value(1, k), 0.0F);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, CpuActivations,
                         ::testing::Values(EngineUnderTest{"reference", reference_engine(), Isa::generic},
                                           EngineUnderTest{"avx2", avx2_engine(), Isa::avx2},
                                           EngineUnderTest{"avx512_fma", avx512_fma_engine(), Isa::avx512},
                                           EngineUnderTest{"avx512_dot", avx512_dot_engine(), Isa::avx512bf16},
                                           EngineUnderTest{"amx", test::software_amx_engine(), Isa::avx512bf16}),
                         [](const auto& instance) { return instance.param.label; });

}  // namespace
}  // namespace octile::cpu
