// SPDX-License-Identifier: Apache-2.0
// Tiles that are wider than the register file, for the fp32 engines: panels take turns of a few steps, their sums resting in
// L1 in between, so that codes are still read in the order in which they lie in memory. (A stream that takes one line of
// four ran at 60 % of the speed on Zen 4.)
#pragma once

#include "octile/kernels/cpu/engine.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace octile::cpu {

inline constexpr std::int64_t kPairFloats = 2 * kPanelColumns;  // [16 n][2 k] of one k pair and panel.
inline constexpr std::int64_t kTurnSteps = 16;                  // 1 KiB of codes a panel.

// Where some panels of a tile stand.
struct PanelCursor {
  const std::uint8_t* weights = nullptr;
  std::int64_t weights_step_bytes = 0;
  std::int64_t pair_floats = 0;  // Between the k pairs of decoded weights.
  const float* x = nullptr;
  const std::uint8_t* prefetch = nullptr;
  std::int64_t prefetch_step_bytes = 0;
  float* keep = nullptr;
};

// `Tiles` is a struct of static functions:
//   widest(rows)                            panels whose sums fit the registers, for that many rows
//   run<Kind, Width, Rows>(at, steps, sums) multiplies `steps` steps of Width panels; sums [Width][Rows][kPairFloats]
//   write_row(sums, row, panel, output)     the epilogue of kPairFloats sums
template <class Tiles, TileKind Kind, std::int64_t Rows>
void tile_in_turns(const TileArgs& args) {
  constexpr bool kDecoded = Kind == TileKind::decoded;
  constexpr std::int64_t kWidest = Tiles::widest(Rows);
  const std::int64_t panels = args.panels;
  const std::int64_t row_floats = panels * kPairFloats;
  const auto float_bytes = static_cast<std::int64_t>(sizeof(float));
  alignas(64) float sums[kMaxPanels][Rows][kPairFloats] = {};
  if (!args.first_pass) {
    for (std::int64_t i = 0; i < panels * Rows; ++i) {
      std::copy_n(args.partial + i % Rows * row_floats + i / Rows * kPairFloats, kPairFloats, sums[i / Rows][i % Rows]);
    }
  }
  const std::int64_t turn = panels <= kWidest ? args.steps : kTurnSteps;
  PanelCursor at;
  at.weights_step_bytes = kDecoded ? 2 * row_floats * float_bytes : args.step_bytes;
  at.prefetch_step_bytes = kDecoded ? args.prefetch_bytes : args.step_bytes;
  at.pair_floats = row_floats;
  const std::int64_t panel_bytes = kDecoded ? kPairFloats * float_bytes : kBlockBytes;
  for (std::int64_t step = 0; step < args.steps; step += turn) {
    const std::int64_t steps = std::min(turn, args.steps - step);
    for (std::int64_t panel = 0; panel < panels; panel += kWidest) {
      at.weights = args.weights + step * at.weights_step_bytes + panel * panel_bytes;
      at.x = reinterpret_cast<const float*>(args.activations) + step * 4 * Rows;
      at.prefetch = kDecoded ? args.prefetch + step * args.prefetch_bytes : at.weights + args.prefetch_bytes;
      at.keep = reinterpret_cast<float*>(args.keep) + step * 2 * row_floats + panel * kPairFloats;
      if constexpr (kWidest == 2) {
        if (panels - panel >= 2) {
          Tiles::template run<Kind, 2, Rows>(at, steps, sums[panel][0]);
          continue;
        }
      }
      Tiles::template run<Kind, 1, Rows>(at, steps, sums[panel][0]);
    }
  }
  for (std::int64_t i = 0; i < panels * Rows; ++i) {
    const std::int64_t panel = i / Rows;
    const std::int64_t row = i % Rows;
    if (args.last_pass) {
      Tiles::write_row(sums[panel][row], row, panel, args.output);
    } else {
      std::copy_n(sums[panel][row], kPairFloats, args.partial + row * row_floats + panel * kPairFloats);
    }
  }
}

template <class Tiles, TileKind Kind, std::int64_t... RowsMinus1>
constexpr std::array<TileFunction, sizeof...(RowsMinus1)> tiles_in_turns(
    std::integer_sequence<std::int64_t, RowsMinus1...> /*rows*/) {
  return {tile_in_turns<Tiles, Kind, RowsMinus1 + 1>...};
}

// Engine::tile for Tiles::kMaxRows rows at every width.
template <class Tiles>
TileFunction select_tile_in_turns(TileKind kind, int /*panels*/, int rows) noexcept {
  constexpr std::make_integer_sequence<std::int64_t, Tiles::kMaxRows> kRows;
  static constexpr std::array<std::array<TileFunction, Tiles::kMaxRows>, kTileKinds> kTiles = {
      tiles_in_turns<Tiles, TileKind::fused>(kRows), tiles_in_turns<Tiles, TileKind::keeping>(kRows),
      tiles_in_turns<Tiles, TileKind::decoded>(kRows)};
  return kTiles[static_cast<std::size_t>(kind)][static_cast<std::size_t>(rows - 1)];
}

}  // namespace octile::cpu
