// SPDX-License-Identifier: Apache-2.0
// Quantisation of activations by the engine's operations, in chunks that stay in L1, and their interleaving into tiles.
#include "octile/kernels/cpu/activations.h"

#include "octile/core/float_formats.h"
#include "octile/kernels/cpu/row_values.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

namespace octile::cpu {
namespace {

constexpr std::int64_t kChunk = 512;  // Elements at a time: 2 KiB of fp32.

// Places in a tile for consecutive values of one row: [k / group][row][group], group = Engine::activation_k.
struct RowWriter {
  const Engine* engine;
  std::uint8_t* tile;
  std::int64_t row;
  std::int64_t rows;

  // values[0, count) are those of k [k_begin, k_begin + count), both multiples of the group.
  void write(const float* values, std::int64_t k_begin, std::int64_t count) const noexcept {
    const std::int64_t group = engine->activation_k;
    const std::int64_t first = k_begin * rows + row * group;
    if (engine->value_bytes == 4) {
      auto* out = reinterpret_cast<float*>(tile) + first;
      for (std::int64_t k = 0; k < count; k += 2, out += 2 * rows) {
        out[0] = values[k] * engine->activation_factor;
        out[1] = values[k + 1] * engine->activation_factor;
      }
    } else if (group == 2) {
      write_bf16<2>(values, count, first);
    } else {
      write_bf16<kLongGroup>(values, count, first);
    }
  }

 private:
  static constexpr std::int64_t kLongGroup = 32;

  template <std::int64_t Group>
  void write_bf16(const float* values, std::int64_t count, std::int64_t first) const noexcept {
    auto* out = reinterpret_cast<std::uint16_t*>(tile) + first;
    for (std::int64_t k = 0; k < count; k += Group, out += Group * rows) {
      for (std::int64_t i = 0; i < Group; ++i) {
        // Grid values have 4 significant bits: the upper half of fp32 is the exact bf16.
        out[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[k + i]) >> 16U);
      }
    }
  }
};

bool has_nan_code(const std::uint8_t* codes, std::int64_t count) noexcept {
  return std::any_of(codes, codes + count, [](std::uint8_t code) { return (code & kE4m3NaN) == kE4m3NaN; });
}

// The row's scale; NaN for a row that is not finite.
float scale_of_row(const Engine& engine, const Activation& activation, std::int64_t row) noexcept {
  const ConstMatrixView& x = activation.x;
  if (activation.scales != nullptr && has_nan_code(static_cast<const std::uint8_t*>(x.data) + row * x.row_stride, x.cols)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return row_scale(activation, row, engine.isa);
}

}  // namespace

void prepare_activations(const GemmPlan& plan, const Activation& activation, std::int64_t row_begin, std::int64_t row_end,
                         std::uint8_t* tiles, float* scales_x) noexcept {
  const ConstMatrixView& x = activation.x;
  const Engine& engine = *plan.engine;
  const bool is_static = activation.static_scale > 0.0F;
  const Division division = is_static ? Division::exact : activation.quantize.division;
  std::array<float, kChunk> values;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const auto* source = static_cast<const std::uint8_t*>(x.data) + row * x.row_stride * size_of(x.dtype);
    const float scale = scale_of_row(engine, activation, row);
    scales_x[row] = scale;
    const GemmPlan::RowPlace place = plan.place_of_row(row);
    const RowWriter writer = {&engine, tiles + place.tile_offset_bytes, place.row_in_tile, place.tile_rows};
    for (std::int64_t k0 = 0; k0 < plan.padded_k; k0 += kChunk) {
      const std::int64_t padded = std::min(kChunk, plan.padded_k - k0);
      const std::int64_t count = std::isnan(scale) ? 0 : std::clamp<std::int64_t>(x.cols - k0, 0, padded);
      if (activation.scales != nullptr) {
        decode_codes(source + k0, count, DType::fp32, reinterpret_cast<std::byte*>(values.data()));
      } else if (count > 0) {
        engine.quantize->round_to_grid(source, x.dtype, k0, count, scale, division, values.data());
      }
      std::fill_n(values.begin() + count, padded - count, 0.0F);
      writer.write(values.data(), k0, padded);
    }
  }
}

}  // namespace octile::cpu
