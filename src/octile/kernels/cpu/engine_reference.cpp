// SPDX-License-Identifier: Apache-2.0
// The engine that runs everywhere: plain C++, a table of 256 values to decode, fp32 products and sums. It is limited by its
// arithmetic at every M (about a tenth of the AVX-512 engines' speed where the compiler has only SSE2).
#include "octile/core/float_formats.h"
#include "octile/kernels/cpu/engine.h"
#include "octile/quant/quantize.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace octile::cpu {
namespace {

constexpr int kMaxRows = 4;
constexpr std::int64_t kPairFloats = 32;  // [16 n][2 k] of one k pair.

const std::array<float, 256>& decode_table() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (std::size_t code = 0; code < values.size(); ++code) {
      values[code] = e4m3_to_float(static_cast<std::uint8_t>(code));
    }
    return values;
  }();
  return table;
}

// One block of 64 codes to two k pairs of [16 n][2 k].
void decode_block(const std::array<float, 256>& table, const std::uint8_t* block, float* pair0, float* pair1) {
  for (std::int64_t lane = 0; lane < 4; ++lane) {
    for (std::int64_t i = 0; i < 8; ++i) {
      pair0[lane * 8 + i] = table[block[lane * 16 + i]];
      pair1[lane * 8 + i] = table[block[lane * 16 + 8 + i]];
    }
  }
}

void decode(const std::uint8_t* codes, std::int64_t step_bytes, int panels, std::int64_t steps,
            std::int64_t /*prefetch_bytes*/, std::uint8_t* decoded) {
  const std::array<float, 256>& table = decode_table();
  auto* out = reinterpret_cast<float*>(decoded);
  const std::int64_t pair_floats = std::int64_t{panels} * kPairFloats;
  for (std::int64_t step = 0; step < steps; ++step, codes += step_bytes, out += 2 * pair_floats) {
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      float* pair0 = out + panel * kPairFloats;
      decode_block(table, codes + panel * kBlockBytes, pair0, pair0 + pair_floats);
    }
  }
}

void write_row(const float* sums, std::int64_t row, const OutputTile& out) {
  const std::int64_t element = row * out.y_row_stride;
  for (std::int64_t n = 0; n < out.columns; ++n) {
    const float acc = sums[2 * n] + sums[2 * n + 1];
    float value = (acc * out.scales_w[n]) * out.scales_x[row];
    if (out.bias != nullptr) {
      value = value + out.bias[n];
    }
    store_from_float(out.y, out.dtype, element + n, value);
  }
}

template <TileKind Kind, std::int64_t Rows>
void tile(const TileArgs& args) {
  float sums[Rows][kPairFloats] = {};
  if (!args.first_pass) {
    for (std::int64_t r = 0; r < Rows; ++r) {
      std::copy_n(args.partial + r * kPairFloats, kPairFloats, sums[r]);
    }
  }
  const auto* x = reinterpret_cast<const float*>(args.activations);
  const std::uint8_t* weights = args.weights;
  std::uint8_t* keep = args.keep;
  for (std::int64_t step = 0; step < args.steps; ++step) {
    float block[2 * kPairFloats];
    const float* w = reinterpret_cast<const float*>(weights);
    if constexpr (Kind != TileKind::decoded) {
      decode_block(decode_table(), weights, block, block + kPairFloats);
      w = block;
      weights += args.step_bytes;
      if constexpr (Kind == TileKind::keeping) {
        std::memcpy(keep, block, sizeof(block));
        keep += sizeof(block);
      }
    } else {
      weights += sizeof(block);
    }
    for (std::int64_t pair = 0; pair < 2; ++pair, w += kPairFloats, x += 2 * Rows) {
      for (std::int64_t r = 0; r < Rows; ++r) {
        // Four at a time, as every compiler's vectors of 16 bytes like it.
        const float pair_x[4] = {x[2 * r], x[2 * r + 1], x[2 * r], x[2 * r + 1]};
        for (std::int64_t i = 0; i < kPairFloats; i += 4) {
          for (std::int64_t j = 0; j < 4; ++j) {
            sums[r][i + j] += pair_x[j] * w[i + j];
          }
        }
      }
    }
  }
  for (std::int64_t r = 0; r < Rows; ++r) {
    if (args.last_pass) {
      write_row(sums[r], r, args.output);
    } else {
      std::copy_n(sums[r], kPairFloats, args.partial + r * kPairFloats);
    }
  }
}

template <TileKind Kind, std::int64_t... RowsMinus1>
constexpr std::array<TileFunction, kMaxRows> tiles(std::integer_sequence<std::int64_t, RowsMinus1...> /*rows*/) {
  return {tile<Kind, RowsMinus1 + 1>...};
}

TileFunction select_tile(TileKind kind, int /*panels*/, int rows) noexcept {
  constexpr std::make_integer_sequence<std::int64_t, kMaxRows> kRows;
  static constexpr std::array<std::array<TileFunction, kMaxRows>, kTileKinds> kTiles = {
      tiles<TileKind::fused>(kRows), tiles<TileKind::keeping>(kRows), tiles<TileKind::decoded>(kRows)};
  return kTiles[static_cast<std::size_t>(kind)][static_cast<std::size_t>(rows - 1)];
}

void round_to_grid(const void* x, DType dtype, std::int64_t offset, std::int64_t count, float scale, Division division,
                   float* values) noexcept {
  const float reciprocal = 1.0F / scale;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = load_as_float(x, dtype, offset + i);
    values[i] = e4m3_to_float(float_to_e4m3_saturate(division == Division::exact ? value / scale : value * reciprocal));
  }
}

constexpr QuantizeOps kQuantizeOps = {row_amax, round_to_grid};
constexpr Engine kEngine = {.name = "reference",
                            .isa = Isa::generic,
                            .quantize = &kQuantizeOps,
                            .max_rows = {kMaxRows, 0, 0, 0},
                            .value_bytes = 4,
                            .activation_k = 2,
                            .partial_floats = kPairFloats,
                            .activation_factor = 1.0F,
                            .decode_cycles = 64.0,
                            .row_cycles = 24.0,
                            .decode_each_up_to_m = 4,
                            .decoded_panels = 1,
                            .decode = decode,
                            .tile = select_tile};

}  // namespace

const Engine* reference_engine() noexcept { return &kEngine; }

}  // namespace octile::cpu
