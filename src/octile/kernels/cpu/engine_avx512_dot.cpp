// SPDX-License-Identifier: Apache-2.0
// The AVX-512 BF16 engine: VDPBF16PS on bf16 operands, weights decoded by byte look-ups.
//
// A code's bf16 value is two bytes, each a function of the low seven bits, so two look-ups in tables of 128 bytes
// (VPERMI2B ignores bit 7), one OR of the sign and two interleaves turn 64 codes into the two operands [16 n][2 k]. Every
// e4m3 value, subnormals included, is a normal bf16, which matters because VDPBF16PS flushes subnormals.
//
//   fused, rows x 64 columns:  | 64 codes | 64 codes | 64 codes | 64 codes |  one step of 4 k
//                                 decode -> w0, w1; for each row: acc += x[0..1] w0; acc += x[2..3] w1
//
// Limits: at M = 1 the stream of codes (6 decoding instructions and 2 products a block: about 7 cycles on Zen 4, where
// DRAM gives one block in about 13 with both cores busy); from M = 4 on the products (one a cycle on Zen 4).
#include "octile/kernels/cpu/engine.h"

#if defined(__x86_64__)

#include "octile/kernels/cpu/avx512_common.h"
#include "octile/kernels/cpu/quantize_avx2.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace octile::cpu {
namespace {

constexpr int kWidest = 4;    // Panels of any tile.
constexpr int kMaxRows = 14;  // Of any tile: 14 rows x 2 panels are 28 accumulators of 32 registers.

// Rows of a tile by panels - 1: accumulators, the panels' weights and one activation fit the 32 registers.
constexpr std::array<int, kMaxPanels> kRowsByPanels = {14, 14, 8, 6};

// bf16 bits of a non-negative e4m3 code: exponent rebiased by 120; subnormals are m * 2^-9.
constexpr std::uint16_t bf16_of_code(unsigned code) {
  const unsigned exponent = code >> 3U;
  const unsigned mantissa = code & 7U;
  const float value = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9F
                                    : std::bit_cast<float>(((exponent + 120U) << 23U) | (mantissa << 20U));
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
}

struct Tables {
  alignas(64) std::array<std::uint8_t, 128> low;
  alignas(64) std::array<std::uint8_t, 128> high;
};
constexpr Tables make_tables() {
  Tables tables{};
  for (unsigned code = 0; code < 128; ++code) {
    tables.low[code] = static_cast<std::uint8_t>(bf16_of_code(code) & 0xFFU);
    tables.high[code] = static_cast<std::uint8_t>(bf16_of_code(code) >> 8U);
  }
  return tables;
}
constexpr Tables kTables = make_tables();

struct Decoder {
  __m512i low0, low1, high0, high1, sign;
};

OCTILE_AVX512_DOT_INLINE Decoder load_decoder() {
  return {_mm512_load_si512(kTables.low.data()), _mm512_load_si512(kTables.low.data() + 64),
          _mm512_load_si512(kTables.high.data()), _mm512_load_si512(kTables.high.data() + 64),
          _mm512_set1_epi8(static_cast<char>(0x80))};
}

// One block to its two k pairs of [16 n][2 k] in bf16.
OCTILE_AVX512_DOT_INLINE void decode_block(const Decoder& d, const std::uint8_t* block, __m512i& pair0, __m512i& pair1) {
  const __m512i codes = _mm512_loadu_si512(block);
  const __m512i low = _mm512_permutex2var_epi8(d.low0, codes, d.low1);
  const __m512i magnitude = _mm512_permutex2var_epi8(d.high0, codes, d.high1);
  const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, d.sign, 0xF8);  // a | (b & c)
  pair0 = _mm512_unpacklo_epi8(low, high);
  pair1 = _mm512_unpackhi_epi8(low, high);
}

OCTILE_AVX512_DOT void decode(const std::uint8_t* codes, std::int64_t step_bytes, int panels, std::int64_t steps,
                              std::int64_t prefetch_bytes, std::uint8_t* decoded) {
  const Decoder decoder = load_decoder();
  const std::int64_t pair_bytes = std::int64_t{panels} * 64;
  for (std::int64_t step = 0; step < steps; ++step, codes += step_bytes, decoded += 2 * pair_bytes) {
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::uint8_t* block = codes + panel * kBlockBytes;
      _mm_prefetch(reinterpret_cast<const char*>(block + prefetch_bytes), _MM_HINT_T0);
      __m512i pair0;
      __m512i pair1;
      decode_block(decoder, block, pair0, pair1);
      _mm512_storeu_si512(decoded + panel * 64, pair0);
      _mm512_storeu_si512(decoded + pair_bytes + panel * 64, pair1);
    }
  }
}

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
OCTILE_AVX512_DOT_INLINE void fused_step(const Decoder& decoder, const std::uint8_t* weights, const std::uint8_t* x,
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
    const Decoder decoder = load_decoder();
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
                            .partial_floats = kZmmFloats,
                            .activation_factor = 1.0F,
                            .decode_cycles = 5.0,
                            .row_cycles = 2.1,
                            .decode_each_up_to_m = 16,
                            .decode = decode,
                            .tile = select_tile};

}  // namespace

const Engine* avx512_dot_engine() noexcept { return &kEngine; }

}  // namespace octile::cpu

#else

namespace octile::cpu {
const Engine* avx512_dot_engine() noexcept { return nullptr; }
}  // namespace octile::cpu

#endif
