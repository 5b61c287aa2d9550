// SPDX-License-Identifier: Apache-2.0
// The AVX-512 engine without BF16: fp32 products and sums, weights decoded through fp16 as in engine_avx2.cpp, with the
// same bits as there.
//
//   accumulators of one row and panel:  [n 0..7][2 k] | [n 8..15][2 k]     (even and odd k apart)
//
// Limit: fused, 14 decoding instructions a block and 4 FMAs for each row; decoded, the FMAs.
#include "octile/kernels/cpu/engine.h"

#if defined(__x86_64__)

#include "octile/kernels/cpu/avx512_common.h"
#include "octile/kernels/cpu/quantize_avx2.h"

#include <array>
#include <cstring>
#include <utility>

namespace octile::cpu {
namespace {

constexpr int kWidest = 2;    // Panels of any tile.
constexpr int kMaxRows = 12;  // 12 rows x 1 panel, 6 rows x 2 panels: 24 accumulators.
constexpr int kHalves = 2;    // Registers of one row and panel: 8 n x 2 k each.
constexpr int kPairFloats = 32;
constexpr std::array<int, kMaxPanels> kRowsByPanels = {12, 6, 0, 0};

// Half a block as the high bytes of 16-bit words to e4m3 * 2^-8 in fp16, then to fp32.
OCTILE_AVX512_INLINE void widen(__m512i codes_in_high_bytes, __m512* half) {
  const __m512i shifted = _mm512_srai_epi16(codes_in_high_bytes, 1);
  const __m512i fp16 = _mm512_and_si512(shifted, _mm512_set1_epi16(static_cast<short>(0xBFFF)));
  half[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(fp16));
  half[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(fp16, 1));
}

OCTILE_AVX512_INLINE void decode_block(const std::uint8_t* block, __m512* pair0, __m512* pair1) {
  const __m512i codes = _mm512_loadu_si512(block);
  const __m512i zero = _mm512_setzero_si512();
  widen(_mm512_unpacklo_epi8(zero, codes), pair0);
  widen(_mm512_unpackhi_epi8(zero, codes), pair1);
}

OCTILE_AVX512 void decode(const std::uint8_t* codes, std::int64_t step_bytes, int panels, std::int64_t steps,
                          std::int64_t prefetch_bytes, std::uint8_t* decoded) {
  auto* out = reinterpret_cast<float*>(decoded);
  const std::int64_t pair_floats = std::int64_t{panels} * kPairFloats;
  for (std::int64_t step = 0; step < steps; ++step, codes += step_bytes, out += 2 * pair_floats) {
    for (int panel = 0; panel < panels; ++panel) {
      const std::uint8_t* block = codes + panel * kBlockBytes;
      _mm_prefetch(reinterpret_cast<const char*>(block + prefetch_bytes), _MM_HINT_T0);
      __m512 pair0[kHalves];
      __m512 pair1[kHalves];
      decode_block(block, pair0, pair1);
      for (int h = 0; h < kHalves; ++h) {
        _mm512_storeu_ps(out + panel * kPairFloats + h * kZmmFloats, pair0[h]);
        _mm512_storeu_ps(out + pair_floats + panel * kPairFloats + h * kZmmFloats, pair1[h]);
      }
    }
  }
}

// Both values of a k pair of one row, in every lane pair.
OCTILE_AVX512_INLINE __m512 broadcast_pair(const float* x) {
  double pair = 0;
  std::memcpy(&pair, x, sizeof(pair));
  return _mm512_castpd_ps(_mm512_set1_pd(pair));
}

// Even and odd k meet: 16 columns in order.
OCTILE_AVX512_INLINE __m512 fold(const __m512* half) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm512_add_ps(_mm512_permutex2var_ps(half[0], even, half[1]), _mm512_permutex2var_ps(half[0], odd, half[1]));
}

template <TileKind Kind, int Panels, int Rows>
OCTILE_AVX512 void tile(const TileArgs& args) {
  __m512 sums[Rows][Panels][kHalves];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < Panels; ++p) {
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        const float* partial = args.partial + r * Panels * kPairFloats + p * kPairFloats + h * kZmmFloats;
        sums[r][p][h] = args.first_pass ? _mm512_setzero_ps() : _mm512_loadu_ps(partial);
      }
    }
  }
  const auto* x = reinterpret_cast<const float*>(args.activations);
  const std::uint8_t* weights = args.weights;
  const std::uint8_t* prefetch = args.prefetch;
  auto* keep = reinterpret_cast<float*>(args.keep);
  for (std::int64_t step = 0; step < args.steps; ++step, x += 4 * Rows) {
    __m512 w[2][Panels][kHalves];
    if constexpr (Kind != TileKind::decoded) {
#pragma GCC unroll 4
      for (int p = 0; p < Panels; ++p) {
        const std::uint8_t* block = weights + p * kBlockBytes;
        _mm_prefetch(reinterpret_cast<const char*>(block + args.prefetch_bytes), _MM_HINT_T0);
        decode_block(block, w[0][p], w[1][p]);
      }
      weights += args.step_bytes;
      if constexpr (Kind == TileKind::keeping) {
#pragma GCC unroll 16
        for (int i = 0; i < 2 * Panels * kHalves; ++i) {
          _mm512_storeu_ps(keep + i * kZmmFloats, w[i / (Panels * kHalves)][i / kHalves % Panels][i % kHalves]);
        }
        keep += 2 * Panels * kPairFloats;
      }
    } else {
      _mm_prefetch(reinterpret_cast<const char*>(prefetch), _MM_HINT_T1);
      prefetch += args.prefetch_bytes;
    }
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; ++pair) {
      if constexpr (Kind == TileKind::decoded) {
#pragma GCC unroll 4
        for (int p = 0; p < Panels; ++p) {
#pragma GCC unroll 2
          for (int h = 0; h < kHalves; ++h) {
            w[pair][p][h] = _mm512_loadu_ps(reinterpret_cast<const float*>(weights) + p * kPairFloats + h * kZmmFloats);
          }
        }
        weights += Panels * kPairFloats * sizeof(float);
      }
#pragma GCC unroll 16
      for (int r = 0; r < Rows; ++r) {
        const __m512 pair_x = broadcast_pair(x + (pair * Rows + r) * 2);
#pragma GCC unroll 4
        for (int p = 0; p < Panels; ++p) {
#pragma GCC unroll 2
          for (int h = 0; h < kHalves; ++h) {
            sums[r][p][h] = _mm512_fmadd_ps(pair_x, w[pair][p][h], sums[r][p][h]);
          }
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < Panels; ++p) {
      if (args.last_pass) {
        write_panel(fold(sums[r][p]), r, p, args.output);
      } else {
        float* partial = args.partial + r * Panels * kPairFloats + p * kPairFloats;
        _mm512_storeu_ps(partial, sums[r][p][0]);
        _mm512_storeu_ps(partial + kZmmFloats, sums[r][p][1]);
      }
    }
  }
}

template <TileKind Kind, int Panels, int... RowsMinus1>
constexpr std::array<TileFunction, kMaxRows> tiles(std::integer_sequence<int, RowsMinus1...> /*rows*/) {
  return {tile<Kind, Panels, RowsMinus1 + 1>...};
}
template <TileKind Kind, int... PanelsMinus1>
constexpr std::array<std::array<TileFunction, kMaxRows>, kWidest> tiles_of(
    std::integer_sequence<int, PanelsMinus1...> /*panels*/) {
  return {tiles<Kind, PanelsMinus1 + 1>(std::make_integer_sequence<int, kRowsByPanels[PanelsMinus1]>())...};
}

TileFunction select_tile(TileKind kind, int panels, int rows) noexcept {
  constexpr std::make_integer_sequence<int, kWidest> kPanels;
  static constexpr std::array<std::array<std::array<TileFunction, kMaxRows>, kWidest>, kTileKinds> kTiles = {
      tiles_of<TileKind::fused>(kPanels), tiles_of<TileKind::keeping>(kPanels), tiles_of<TileKind::decoded>(kPanels)};
  return kTiles[static_cast<std::size_t>(kind)][static_cast<std::size_t>(panels - 1)][static_cast<std::size_t>(rows - 1)];
}

constexpr Engine kEngine = {.name = "avx512 fma",
                            .isa = Isa::avx2,
                            .quantize = &kQuantizeAvx2,
                            .max_rows = {kRowsByPanels[0], kRowsByPanels[1], kRowsByPanels[2], kRowsByPanels[3]},
                            .value_bytes = 4,
                            .partial_floats = kPairFloats,
                            .activation_factor = 256.0F,
                            .decode_cycles = 10.0,
                            .row_cycles = 4.2,
                            .decode_each_up_to_m = 12,
                            .decode = decode,
                            .tile = select_tile};

}  // namespace

const Engine* avx512_fma_engine() noexcept { return &kEngine; }

}  // namespace octile::cpu

#else

namespace octile::cpu {
const Engine* avx512_fma_engine() noexcept { return nullptr; }
}  // namespace octile::cpu

#endif
