// SPDX-License-Identifier: Apache-2.0
// The AMX engine's tiles, written against the interface of HardwareTiles so that a test can run them in software.
//
//   sums [16 rows][16 columns] += activations [16 rows][32 k] x weights [16 k pairs][16 columns][2 k]      one TDPBF16PS
//
//   tmm0..3: sums, row block by row block        tmm4, 5: activations of one or two row blocks
//   tmm6, 7: weights of the panels in turn (and tmm5 where there is one row block)
//
// Four sums hide the latency of the products (52 cycles at 16 apiece). 1 x 4 panels serve up to 16 rows: weights are decoded
// into 4 KiB of L1 one step of 32 k ahead, between the products of the step before. 2 x 2 serve more: four loads for four
// products, weights decoded once by the first row block.
#pragma once

#if defined(__x86_64__)

#include "octile/kernels/cpu/amx_tiles.h"
#include "octile/kernels/cpu/avx512_decode.h"
#include "octile/kernels/cpu/quantize_avx2.h"

#include <array>
#include <cstdint>

namespace octile::cpu {

// Codes of the next 32 k, decoded panel by panel between the products of these 32.
struct AmxAhead {
  const std::uint8_t* codes = nullptr;  // nullptr: there are none.
  std::int64_t step_bytes = 0;
  std::int64_t prefetch_bytes = 0;
  std::uint8_t* decoded = nullptr;
};

template <class Tiles>
class AmxEngine {
 public:
  // Between begin() and end() of one unit the tile shapes stay loaded where they are the same: loading them costs some
  // hundred cycles, and other libraries may have loaded theirs since the last unit.
  static void begin_unit() noexcept { loaded_shapes = kNone; }
  static void end_unit() noexcept {
    if (loaded_shapes != kNone) {
      release();
      loaded_shapes = kNone;
    }
  }

  static TileFunction select_tile(TileKind kind, int panels, int rows) noexcept {
    static constexpr std::array<std::array<std::array<TileFunction, kMaxPanels>, 2>, kTileKinds> kTiles = {
        tiles<TileKind::fused>(), tiles<TileKind::keeping>(), tiles<TileKind::decoded>()};
    const std::size_t row_blocks = rows > kTileRows ? 1 : 0;
    return kTiles[static_cast<std::size_t>(kind)][row_blocks][static_cast<std::size_t>(panels - 1)];
  }

  static constexpr Engine kEngine = {.name = "amx",
                                     .isa = Isa::avx2,
                                     .quantize = &kQuantizeAvx2,
                                     .max_rows = {32, 32, 16, 16},
                                     .value_bytes = 2,
                                     .activation_k = kTileK,
                                     .partial_floats = kZmmFloats,
                                     .activation_factor = 1.0F,
                                     .decode_cycles = 5.0,
                                     .row_cycles = 0.125,
                                     .decode_each_up_to_m = 16,
                                     .decoded_panels = 2,
                                     .decode = decode_to_bf16,
                                     .tile = select_tile,
                                     .begin_unit = begin_unit,
                                     .end_unit = end_unit};

 private:
  static constexpr std::int64_t kStepsOfTile = kTileK / kStepK;  // Packed steps of 4 k in one of a tile's 32 k.
  static constexpr std::int64_t kPairsOfTile = kTileK / 2;
  static constexpr int kFirstActivation = 4;
  static constexpr unsigned kNone = 0;

  OCTILE_AMX static void release() noexcept { Tiles::release(); }

  template <int Panels, int RowBlocks>
  OCTILE_AMX_INLINE static void load_shapes(std::int64_t rows) {
    const unsigned wanted = static_cast<unsigned>(rows) * 64U + static_cast<unsigned>(Panels * 8 + RowBlocks);
    if (loaded_shapes == wanted) {
      return;
    }
    TileShapes shapes;
    for (int tile = 0; tile < kTileRegisters; ++tile) {
      shapes.bytes_per_row[tile] = kTileRowBytes;
      shapes.rows[tile] = kTileRows;
    }
    for (int block = 0; block < RowBlocks; ++block) {
      const auto in_block = static_cast<std::uint8_t>(block + 1 < RowBlocks ? kTileRows : rows - block * kTileRows);
      shapes.rows[kFirstActivation + block] = in_block;
      for (int panel = 0; panel < Panels; ++panel) {
        shapes.rows[block * Panels + panel] = in_block;
      }
    }
    Tiles::configure(shapes);
    loaded_shapes = wanted;
  }

  // Sums of row block 0 and then 1, panel by panel; the recursions over tile registers are over constants, as their names
  // in an instruction must be.
  template <int Panels, int RowBlocks, int Tile = 0>
  OCTILE_AMX_INLINE static void begin_sums(const float* partial) {
    if constexpr (Tile < Panels * RowBlocks) {
      if (partial == nullptr) {
        Tiles::template zero<Tile>();
      } else {
        Tiles::template load<Tile>(partial + sum_offset<Panels>(Tile), sum_stride(Panels));
      }
      begin_sums<Panels, RowBlocks, Tile + 1>(partial);
    }
  }
  template <int Panels, int RowBlocks, int Tile = 0>
  OCTILE_AMX_INLINE static void store_sums(float* sums) {
    if constexpr (Tile < Panels * RowBlocks) {
      Tiles::template store<Tile>(sums + sum_offset<Panels>(Tile), sum_stride(Panels));
      store_sums<Panels, RowBlocks, Tile + 1>(sums);
    }
  }
  static constexpr std::int64_t sum_stride(int panels) noexcept { return panels * kTileRowBytes; }
  // [row][panel][16]
  template <int Panels>
  static constexpr std::int64_t sum_offset(int tile) noexcept {
    return (tile / Panels * kTileRows * Panels + tile % Panels) * kZmmFloats;
  }

  template <int Panels>
  OCTILE_AMX_INLINE static void decode_panel(const Bf16Decoder& decoder, const AmxAhead& ahead, std::int64_t panel) {
    const std::uint8_t* codes = ahead.codes + panel * kBlockBytes;
    std::uint8_t* out = ahead.decoded + panel * kTileRowBytes;
#pragma GCC unroll 8
    for (std::int64_t step = 0; step < kStepsOfTile; ++step, codes += ahead.step_bytes) {
      _mm_prefetch(reinterpret_cast<const char*>(codes + ahead.prefetch_bytes), _MM_HINT_T0);
      __m512i pair0;
      __m512i pair1;
      decode_block(decoder, codes, pair0, pair1);
      _mm512_storeu_si512(out + 2 * step * Panels * kTileRowBytes, pair0);
      _mm512_storeu_si512(out + (2 * step + 1) * Panels * kTileRowBytes, pair1);
    }
  }

  template <int RowBlocks>
  OCTILE_AMX_INLINE static void load_activations(const std::uint8_t* x) {
    Tiles::template load<kFirstActivation>(x, kTileRowBytes);
    if constexpr (RowBlocks == 2) {
      Tiles::template load<kFirstActivation + 1>(x + kTileRows * kTileRowBytes, kTileRowBytes);
    }
  }

  template <bool Decode, int Panels, int RowBlocks, int Panel = 0>
  OCTILE_AMX_INLINE static void multiply_panels(const std::uint8_t* decoded, const Bf16Decoder& decoder,
                                                const AmxAhead& ahead) {
    if constexpr (Panel < Panels) {
      constexpr int kFirstWeight = kFirstActivation + RowBlocks;
      constexpr int kWeight = kFirstWeight + Panel % (kTileRegisters - kFirstWeight);
      Tiles::template load<kWeight>(decoded + Panel * kTileRowBytes, Panels * kTileRowBytes);
      Tiles::template multiply<Panel, kFirstActivation, kWeight>();
      if constexpr (RowBlocks == 2) {
        Tiles::template multiply<Panels + Panel, kFirstActivation + 1, kWeight>();
      }
      if constexpr (Decode) {
        if (ahead.codes != nullptr) {
          decode_panel<Panels>(decoder, ahead, Panel);
        }
      }
      multiply_panels<Decode, Panels, RowBlocks, Panel + 1>(decoded, decoder, ahead);
    }
  }

  // Fused and keeping tiles: what is decoded goes to two buffers in turn, or to where it is kept.
  template <bool Keep, int Panels, int RowBlocks>
  OCTILE_AMX_INLINE static void multiply_codes(const TileArgs& args) {
    constexpr std::int64_t kDecodedBytes = kPairsOfTile * Panels * kTileRowBytes;
    alignas(64) std::uint8_t buffers[Keep ? 1 : 2 * kDecodedBytes];
    const Bf16Decoder decoder = load_bf16_decoder();
    const std::int64_t steps = args.steps / kStepsOfTile;
    const std::uint8_t* x = args.activations;
    const auto place = [&](std::int64_t step) {
      return Keep ? args.keep + step * kDecodedBytes : buffers + step % 2 * kDecodedBytes;
    };
    AmxAhead ahead = {args.weights, args.step_bytes, args.prefetch_bytes, place(0)};
#pragma GCC unroll 4
    for (std::int64_t panel = 0; panel < Panels; ++panel) {
      decode_panel<Panels>(decoder, ahead, panel);
    }
    for (std::int64_t step = 0; step < steps; ++step, x += args.rows * kTileRowBytes) {
      const std::uint8_t* decoded = ahead.decoded;
      ahead.codes = step + 1 < steps ? ahead.codes + kStepsOfTile * args.step_bytes : nullptr;
      ahead.decoded = place(step + 1);
      load_activations<RowBlocks>(x);
      multiply_panels<true, Panels, RowBlocks>(decoded, decoder, ahead);
    }
  }

  template <int Panels, int RowBlocks>
  OCTILE_AMX_INLINE static void multiply_decoded(const TileArgs& args) {
    const std::uint8_t* x = args.activations;
    const std::uint8_t* decoded = args.weights;
    const std::uint8_t* prefetch = args.prefetch;
    for (std::int64_t step = 0; step < args.steps; step += kStepsOfTile, x += args.rows * kTileRowBytes) {
      for (std::int64_t i = 0; i < kStepsOfTile; ++i, prefetch += args.prefetch_bytes) {
        _mm_prefetch(reinterpret_cast<const char*>(prefetch), _MM_HINT_T1);
      }
      load_activations<RowBlocks>(x);
      multiply_panels<false, Panels, RowBlocks>(decoded, Bf16Decoder{}, AmxAhead{});
      decoded += kPairsOfTile * Panels * kTileRowBytes;
    }
  }

  template <TileKind Kind, int Panels, int RowBlocks>
  OCTILE_AMX static void tile(const TileArgs& args) {
    load_shapes<Panels, RowBlocks>(args.rows);
    begin_sums<Panels, RowBlocks>(args.first_pass ? nullptr : args.partial);
    if constexpr (Kind == TileKind::decoded) {
      multiply_decoded<Panels, RowBlocks>(args);
    } else {
      multiply_codes<Kind == TileKind::keeping, Panels, RowBlocks>(args);
    }
    if (!args.last_pass) {
      store_sums<Panels, RowBlocks>(args.partial);
      return;
    }
    alignas(64) float sums[RowBlocks * kTileRows * Panels * kZmmFloats];
    store_sums<Panels, RowBlocks>(sums);
    for (std::int64_t row = 0; row < args.rows; ++row) {
      for (std::int64_t panel = 0; panel < Panels; ++panel) {
        write_panel(_mm512_load_ps(sums + (row * Panels + panel) * kZmmFloats), row, panel, args.output);
      }
    }
  }

  template <TileKind Kind>
  static constexpr std::array<std::array<TileFunction, kMaxPanels>, 2> tiles() noexcept {
    return {{{tile<Kind, 1, 1>, tile<Kind, 2, 1>, tile<Kind, 3, 1>, tile<Kind, 4, 1>},
             {tile<Kind, 1, 2>, tile<Kind, 2, 2>, nullptr, nullptr}}};
  }

  static inline thread_local unsigned loaded_shapes = kNone;  // Rows, panels and row blocks of this thread's tiles.
};

}  // namespace octile::cpu

#endif
