// SPDX-License-Identifier: Apache-2.0
// The AVX-512 engine without BF16: fp32 products and sums, weights decoded through fp16 as in engine_avx2.cpp, with the
// same bits as there.
//
//   accumulators of one row and panel:  [n 0..7][2 k] | [n 8..15][2 k]
//
// Limits, on Zen 4: decoding, 14 instructions a block of 64 codes, at M = 1; the FMAs above (92 % of one a cycle at
// M = 128).
#include "octile/kernels/cpu/engine.h"

#if defined(__x86_64__)

#include "octile/kernels/cpu/avx512_common.h"
#include "octile/kernels/cpu/panel_turns.h"
#include "octile/kernels/cpu/quantize_avx2.h"

#include <cstring>

namespace octile::cpu {
namespace {

constexpr std::int64_t kHalves = kPairFloats / kZmmFloats;  // Registers of one row and panel.

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

OCTILE_AVX512_INLINE void store_pair(float* out, const __m512* half) {
  _mm512_storeu_ps(out, half[0]);
  _mm512_storeu_ps(out + kZmmFloats, half[1]);
}

OCTILE_AVX512 void decode(const std::uint8_t* codes, std::int64_t step_bytes, int panels, std::int64_t steps,
                          std::int64_t prefetch_bytes, std::uint8_t* decoded) {
  auto* out = reinterpret_cast<float*>(decoded);
  const std::int64_t pair_floats = panels * kPairFloats;
  for (std::int64_t step = 0; step < steps; ++step, codes += step_bytes, out += 2 * pair_floats) {
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::uint8_t* block = codes + panel * kBlockBytes;
      _mm_prefetch(reinterpret_cast<const char*>(block + prefetch_bytes), _MM_HINT_T0);
      __m512 pair0[kHalves];
      __m512 pair1[kHalves];
      decode_block(block, pair0, pair1);
      store_pair(out + panel * kPairFloats, pair0);
      store_pair(out + pair_floats + panel * kPairFloats, pair1);
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
OCTILE_AVX512_INLINE __m512 fold(__m512 low, __m512 high) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm512_add_ps(_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, odd, high));
}

template <std::int64_t Width, std::int64_t Rows>
OCTILE_AVX512_INLINE void multiply_pair(const float* x, const __m512 (&w)[Width][kHalves],
                                        __m512 (&sums)[Width][Rows][kHalves]) {
#pragma GCC unroll 16
  for (std::int64_t r = 0; r < Rows; ++r) {
    const __m512 pair_x = broadcast_pair(x + r * 2);
#pragma GCC unroll 2
    for (std::int64_t p = 0; p < Width; ++p) {
#pragma GCC unroll 2
      for (std::int64_t h = 0; h < kHalves; ++h) {
        sums[p][r][h] = _mm512_fmadd_ps(pair_x, w[p][h], sums[p][r][h]);
      }
    }
  }
}

// The weights of one step: decoded here, decoded here and kept, or read.
template <TileKind Kind, std::int64_t Width>
OCTILE_AVX512_INLINE void load_step(const PanelCursor& at, __m512 (&pair0)[Width][kHalves],
                                    __m512 (&pair1)[Width][kHalves]) {
#pragma GCC unroll 2
  for (std::int64_t p = 0; p < Width; ++p) {
    if constexpr (Kind == TileKind::decoded) {
      const float* decoded = reinterpret_cast<const float*>(at.weights) + p * kPairFloats;
#pragma GCC unroll 2
      for (std::int64_t h = 0; h < kHalves; ++h) {
        pair0[p][h] = _mm512_loadu_ps(decoded + h * kZmmFloats);
        pair1[p][h] = _mm512_loadu_ps(decoded + at.pair_floats + h * kZmmFloats);
      }
    } else {
      _mm_prefetch(reinterpret_cast<const char*>(at.prefetch + p * kBlockBytes), _MM_HINT_T0);
      decode_block(at.weights + p * kBlockBytes, pair0[p], pair1[p]);
    }
    if constexpr (Kind == TileKind::keeping) {
      store_pair(at.keep + p * kPairFloats, pair0[p]);
      store_pair(at.keep + at.pair_floats + p * kPairFloats, pair1[p]);
    }
  }
  if constexpr (Kind == TileKind::decoded) {
    _mm_prefetch(reinterpret_cast<const char*>(at.prefetch), _MM_HINT_T1);
  }
}

struct Avx512FmaTiles {
  static constexpr std::int64_t kMaxRows = 12;
  // 6 rows x 2 panels or 12 rows x 1 panel are 24 accumulators of 32 registers.
  static constexpr std::int64_t widest(std::int64_t rows) { return rows <= 6 ? 2 : 1; }

  template <TileKind Kind, std::int64_t Width, std::int64_t Rows>
  OCTILE_AVX512 static void run(PanelCursor at, std::int64_t steps, float* rest) {
    __m512 sums[Width][Rows][kHalves];
#pragma GCC unroll 32
    for (std::int64_t i = 0; i < Width * Rows * kHalves; ++i) {
      sums[i / kHalves / Rows][i / kHalves % Rows][i % kHalves] = _mm512_load_ps(rest + i * kZmmFloats);
    }
    for (std::int64_t step = 0; step < steps; ++step) {
      __m512 pair0[Width][kHalves];
      __m512 pair1[Width][kHalves];
      load_step<Kind>(at, pair0, pair1);
      multiply_pair(at.x, pair0, sums);
      multiply_pair(at.x + 2 * Rows, pair1, sums);
      at.weights += at.weights_step_bytes;
      at.x += 4 * Rows;
      at.prefetch += at.prefetch_step_bytes;
      at.keep += Kind == TileKind::keeping ? 2 * at.pair_floats : 0;
    }
#pragma GCC unroll 32
    for (std::int64_t i = 0; i < Width * Rows * kHalves; ++i) {
      _mm512_store_ps(rest + i * kZmmFloats, sums[i / kHalves / Rows][i / kHalves % Rows][i % kHalves]);
    }
  }

  OCTILE_AVX512 static void write_row(const float* sums, std::int64_t row, std::int64_t panel, const OutputTile& out) {
    write_panel(fold(_mm512_load_ps(sums), _mm512_load_ps(sums + kZmmFloats)), row, panel, out);
  }
};

constexpr int kMaxRows = Avx512FmaTiles::kMaxRows;
constexpr Engine kEngine = {.name = "avx512 fma",
                            .isa = Isa::avx2,
                            .quantize = &kQuantizeAvx2,
                            .max_rows = {kMaxRows, kMaxRows, 6, 6},
                            .value_bytes = 4,
                            .activation_k = 2,
                            .partial_floats = kPairFloats,
                            .activation_factor = 256.0F,
                            .decode_cycles = 10.0,
                            .row_cycles = 4.2,
                            .decode_each_up_to_m = 12,
                            .decoded_panels = 4,
                            .decode = decode,
                            .tile = select_tile_in_turns<Avx512FmaTiles>};

}  // namespace

const Engine* avx512_fma_engine() noexcept { return &kEngine; }

}  // namespace octile::cpu

#else

namespace octile::cpu {
const Engine* avx512_fma_engine() noexcept { return nullptr; }
}  // namespace octile::cpu

#endif
