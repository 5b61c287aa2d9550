// SPDX-License-Identifier: Apache-2.0
// The AVX-512 BF16 engine: VDPBF16PS on bf16 operands, weights decoded by byte look-ups.
//
//   fused, rows x 64 columns:  | 64 codes | 64 codes | 64 codes | 64 codes |  one step of 4 k
//                                 decode -> w0, w1; for each row: acc += x[0..1] w0; acc += x[2..3] w1
//
// Limits: at M = 1 the stream of codes (6 decoding instructions and 2 products a block: about 7 cycles on Zen 4, where
// DRAM gives one block in about 13 with both cores busy); from M = 4 on the products (one a cycle on Zen 4).
#include "octile/kernels/cpu/engine.h"

#if defined(__x86_64__)

#include "octile/kernels/cpu/avx512_common.h"
#include "octile/kernels/cpu/avx512_decode.h"
#include "octile/kernels/cpu/quantize_avx2.h"

#include <array>
#include <cstring>
#include <utility>

namespace octile::cpu {
namespace {

constexpr int kWidest = 4;    // Panels of any tile.
constexpr int kMaxRows = 14;  // Of any tile: 14 rows x 2 panels are 28 accumulators of 32 registers.

// Rows of a tile by panels - 1: accumulators, the panels' weights and one activation fit the 32 registers.
constexpr std::array<int, kMaxPanels> kRowsByPanels = {14, 14, 8, 6};

OCTILE_AVX512_DOT_INLINE __m512i broadcast_pair(const std::uint8_t* x) {
  int pair = 0;
  std::memcpy(&pair, x, sizeof(pair));
  return _mm512_set1_epi32(pair);
}

OCTILE_AVX512_DOT_INLINE __m512 dot(__m512 sum, __m512i x, __m512i w) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
}

// One step of 4 k: decode, multiply, and where `Keep` store what was decoded.
template <bool Keep, std::int64_t Panels, std::int64_t Rows>
OCTILE_AVX512_DOT_INLINE void fused_step(const Bf16Decoder& decoder, const std::uint8_t* weights, const std::uint8_t* x,
                                         std::int64_t prefetch_bytes, std::uint8_t* keep, __m512 (&sums)[Rows][Panels]) {
#pragma GCC unroll 4
  for (std::int64_t p = 0; p < Panels; ++p) {
    _mm_prefetch(reinterpret_cast<const char*>(weights + p * kBlockBytes + prefetch_bytes), _MM_HINT_T0);
    __m512i pair0;
    __m512i pair1;
    decode_block(decoder, weights + p * kBlockBytes, pair0, pair1);
    if constexpr (Keep) {
      _mm512_storeu_si512(keep + p * 64, pair0);
      _mm512_storeu_si512(keep + (Panels + p) * 64, pair1);
    }
#pragma GCC unroll 16
    for (std::int64_t r = 0; r < Rows; ++r) {
      sums[r][p] = dot(sums[r][p], broadcast_pair(x + r * 4), pair0);
    }
#pragma GCC unroll 16
    for (std::int64_t r = 0; r < Rows; ++r) {
      sums[r][p] = dot(sums[r][p], broadcast_pair(x + (Rows + r) * 4), pair1);
    }
  }
}

template <std::int64_t Panels, std::int64_t Rows>
OCTILE_AVX512_DOT_INLINE void decoded_pair(const std::uint8_t* weights, const std::uint8_t* x,
                                           __m512 (&sums)[Rows][Panels]) {
  __m512i w[Panels];
#pragma GCC unroll 4
  for (std::int64_t p = 0; p < Panels; ++p) {
    w[p] = _mm512_loadu_si512(weights + p * 64);
  }
#pragma GCC unroll 16
  for (std::int64_t r = 0; r < Rows; ++r) {
    const __m512i pair_x = broadcast_pair(x + r * 4);
#pragma GCC unroll 4
    for (std::int64_t p = 0; p < Panels; ++p) {
      sums[r][p] = dot(sums[r][p], pair_x, w[p]);
    }
  }
}

template <TileKind Kind, std::int64_t Panels, std::int64_t Rows>
OCTILE_AVX512_DOT void tile(const TileArgs& args) {
  __m512 sums[Rows][Panels];
#pragma GCC unroll 16
  for (std::int64_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (std::int64_t p = 0; p < Panels; ++p) {
      sums[r][p] =
          args.first_pass ? _mm512_setzero_ps() : _mm512_loadu_ps(args.partial + r * Panels * kZmmFloats + p * kZmmFloats);
    }
  }
  const std::uint8_t* x = args.activations;
  const std::uint8_t* weights = args.weights;
  if constexpr (Kind != TileKind::decoded) {
    constexpr bool kKeep = Kind == TileKind::keeping;
    const Bf16Decoder decoder = load_bf16_decoder();
    std::uint8_t* keep = args.keep;
    for (std::int64_t step = 0; step < args.steps; ++step, x += 8 * Rows, weights += args.step_bytes) {
      fused_step<kKeep>(decoder, weights, x, args.prefetch_bytes, keep, sums);
      keep += kKeep ? 128 * Panels : 0;
    }
  } else {
    const std::uint8_t* prefetch = args.prefetch;
    for (std::int64_t step = 0; step < args.steps; ++step, x += 8 * Rows, weights += 128 * Panels) {
      _mm_prefetch(reinterpret_cast<const char*>(prefetch), _MM_HINT_T1);
      prefetch += args.prefetch_bytes;
      decoded_pair(weights, x, sums);
      decoded_pair(weights + 64 * Panels, x + 4 * Rows, sums);
    }
  }
#pragma GCC unroll 16
  for (std::int64_t r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (std::int64_t p = 0; p < Panels; ++p) {
      if (args.last_pass) {
        write_panel(sums[r][p], r, p, args.output);
      } else {
        _mm512_storeu_ps(args.partial + r * Panels * kZmmFloats + p * kZmmFloats, sums[r][p]);
      }
    }
  }
}

template <TileKind Kind, std::int64_t Panels, std::int64_t... RowsMinus1>
constexpr std::array<TileFunction, kMaxRows> tiles(std::integer_sequence<std::int64_t, RowsMinus1...> /*rows*/) {
  return {tile<Kind, Panels, RowsMinus1 + 1>...};
}
template <TileKind Kind, std::int64_t... PanelsMinus1>
constexpr std::array<std::array<TileFunction, kMaxRows>, kWidest> tiles_of(
    std::integer_sequence<std::int64_t, PanelsMinus1...> /*panels*/) {
  return {tiles<Kind, PanelsMinus1 + 1>(std::make_integer_sequence<std::int64_t, kRowsByPanels[PanelsMinus1]>())...};
}

TileFunction select_tile(TileKind kind, int panels, int rows) noexcept {
  constexpr std::make_integer_sequence<std::int64_t, kWidest> kPanels;
  static constexpr std::array<std::array<std::array<TileFunction, kMaxRows>, kWidest>, kTileKinds> kTiles = {
      tiles_of<TileKind::fused>(kPanels), tiles_of<TileKind::keeping>(kPanels), tiles_of<TileKind::decoded>(kPanels)};
  return kTiles[static_cast<std::size_t>(kind)][static_cast<std::size_t>(panels - 1)][static_cast<std::size_t>(rows - 1)];
}

constexpr Engine kEngine = {.name = "avx512 dot",
                            .isa = Isa::avx2,
                            .quantize = &kQuantizeAvx2,
                            .max_rows = {kRowsByPanels[0], kRowsByPanels[1], kRowsByPanels[2], kRowsByPanels[3]},
                            .value_bytes = 2,
                            .activation_k = 2,
                            .partial_floats = kZmmFloats,
                            .activation_factor = 1.0F,
                            .decode_cycles = 5.0,
                            .row_cycles = 2.1,
                            .decode_each_up_to_m = 16,
                            .decoded_panels = 4,
                            .decode = decode_to_bf16,
                            .tile = select_tile};

}  // namespace

const Engine* avx512_dot_engine() noexcept { return &kEngine; }

}  // namespace octile::cpu

#else

namespace octile::cpu {
const Engine* avx512_dot_engine() noexcept { return nullptr; }
}  // namespace octile::cpu

#endif
