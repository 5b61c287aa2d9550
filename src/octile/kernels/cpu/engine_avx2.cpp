// SPDX-License-Identifier: Apache-2.0
// The AVX2 engine: fp32 products and sums, weights decoded through fp16.
//
// e4m3 shifted into fp16 position is the value times 2^-8 exactly, subnormals included, because fp16 has one exponent bit
// more and its bias is larger by 8: four codes cost an interleave, a shift, a mask and a conversion (VCVTPH2PS). The factor
// sits in the activations, 2^8 times too large, so the sums are right as they are.
//
//   accumulators of one row:  [n 0..3][2 k] | [n 4..7][2 k] | [n 8..11][2 k] | [n 12..15][2 k]     (even and odd k apart)
//
// Limit: fused, about 32 instructions a block of 64 codes and row, so one core follows about 20 GB/s of codes at M = 1;
// decoded, 12 accumulators fill the register file and two FMAs a cycle are in reach (7 loads for 12 FMAs).
#include "octile/kernels/cpu/engine.h"

#if defined(__x86_64__)

#include "octile/kernels/cpu/avx2_common.h"
#include "octile/kernels/cpu/quantize_avx2.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace octile::cpu {
namespace {

constexpr int kMaxRows = 3;
constexpr int kQuarters = 4;             // Registers of one row: 4 n x 2 k each.
constexpr std::int64_t kTurnSteps = 16;  // 1 KiB of codes a panel.
constexpr int kPairFloats = 32;          // [16 n][2 k] of one k pair.

// Half a block (8 columns), interleaved with zeros so that codes are the high bytes, to e4m3 * 2^-8 in fp16.
OCTILE_AVX2_INLINE __m256i to_fp16(__m256i codes_in_high_bytes) {
  return _mm256_and_si256(_mm256_srai_epi16(codes_in_high_bytes, 1), _mm256_set1_epi16(static_cast<short>(0xBFFF)));
}

// Columns [8 half, 8 half + 8) of k pair `Pair` of a block: two registers of [4 n][2 k].
template <int Pair>
OCTILE_AVX2_INLINE void decode_half(const std::uint8_t* block, int half, __m256& first, __m256& second) {
  const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + half * 32));
  const __m256i zero = _mm256_setzero_si256();
  const __m256i fp16 = to_fp16(Pair == 0 ? _mm256_unpacklo_epi8(zero, codes) : _mm256_unpackhi_epi8(zero, codes));
  first = _mm256_cvtph_ps(_mm256_castsi256_si128(fp16));
  second = _mm256_cvtph_ps(_mm256_extracti128_si256(fp16, 1));
}

template <int Pair>
OCTILE_AVX2_INLINE void decode_pair(const std::uint8_t* block, float* out) {
  for (int half = 0; half < 2; ++half) {
    __m256 first;
    __m256 second;
    decode_half<Pair>(block, half, first, second);
    _mm256_storeu_ps(out + half * 16, first);
    _mm256_storeu_ps(out + half * 16 + 8, second);
  }
}

OCTILE_AVX2 void decode(const std::uint8_t* codes, std::int64_t step_bytes, int panels, std::int64_t steps,
                        std::int64_t prefetch_bytes, std::uint8_t* decoded) {
  auto* out = reinterpret_cast<float*>(decoded);
  const std::int64_t pair_floats = std::int64_t{panels} * kPairFloats;
  for (std::int64_t step = 0; step < steps; ++step, codes += step_bytes, out += 2 * pair_floats) {
    for (int panel = 0; panel < panels; ++panel) {
      const std::uint8_t* block = codes + panel * kBlockBytes;
      _mm_prefetch(reinterpret_cast<const char*>(block + prefetch_bytes), _MM_HINT_T0);
      float* pair0 = out + panel * kPairFloats;
      decode_pair<0>(block, pair0);
      decode_pair<1>(block, pair0 + pair_floats);
    }
  }
}

// Both values of a k pair of one row, in every lane pair.
OCTILE_AVX2_INLINE __m256 broadcast_pair(const float* x) {
  double pair = 0;
  std::memcpy(&pair, x, sizeof(pair));
  return _mm256_castpd_ps(_mm256_set1_pd(pair));
}

OCTILE_AVX2_INLINE void write_row(const float* sums, int row, int panel, const OutputTile& out) {
  const __m256 scale_x = _mm256_set1_ps(out.scales_x[row]);
  for (int half = 0; half < 2; ++half) {
    const std::int64_t n = panel * kPanelColumns + half * 8;
    const std::int64_t count = std::min<std::int64_t>(8, out.columns - n);
    if (count <= 0) {
      return;
    }
    // Even and odd k meet; the horizontal addition leaves the columns in the order 0 1 4 5 2 3 6 7.
    const __m256 folded = _mm256_hadd_ps(_mm256_loadu_ps(sums + 16 * half), _mm256_loadu_ps(sums + 16 * half + 8));
    const __m256 acc = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(folded), 0xD8));
    __m256 value = _mm256_mul_ps(_mm256_mul_ps(acc, _mm256_loadu_ps(out.scales_w + n)), scale_x);
    if (out.bias != nullptr) {
      alignas(32) float bias[8] = {};
      std::copy_n(out.bias + n, count, bias);
      value = _mm256_add_ps(value, _mm256_load_ps(bias));
    }
    store_some(out.y, out.dtype, row * out.y_row_stride + n, value, count);
  }
}

// Where one panel of a tile stands.
struct Cursor {
  const std::uint8_t* weights;
  std::int64_t weights_step;  // Bytes.
  std::int64_t pair_floats;   // Between the k pairs of decoded weights.
  const float* x;
  const std::uint8_t* prefetch;
  std::int64_t prefetch_step;
  float* keep;
};

template <TileKind Kind, int Pair, int Rows>
OCTILE_AVX2_INLINE void multiply_pair(const Cursor& at, __m256 (&sums)[Rows][kQuarters]) {
  __m256 x[Rows];
#pragma GCC unroll 4
  for (int r = 0; r < Rows; ++r) {
    x[r] = broadcast_pair(at.x + (Pair * Rows + r) * 2);
  }
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    __m256 w[2];
    if constexpr (Kind == TileKind::decoded) {
      const float* decoded = reinterpret_cast<const float*>(at.weights) + Pair * at.pair_floats + half * 16;
      w[0] = _mm256_loadu_ps(decoded);
      w[1] = _mm256_loadu_ps(decoded + 8);
    } else {
      decode_half<Pair>(at.weights, half, w[0], w[1]);
    }
    if constexpr (Kind == TileKind::keeping) {
      _mm256_storeu_ps(at.keep + Pair * at.pair_floats + half * 16, w[0]);
      _mm256_storeu_ps(at.keep + Pair * at.pair_floats + half * 16 + 8, w[1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        sums[r][2 * half + i] = _mm256_fmadd_ps(x[r], w[i], sums[r][2 * half + i]);
      }
    }
  }
}

// `steps` steps of one panel; its sums rest in memory before and after.
template <TileKind Kind, int Rows>
OCTILE_AVX2_INLINE void run_panel(Cursor at, std::int64_t steps, float (*rest)[kPairFloats]) {
  __m256 sums[Rows][kQuarters];
#pragma GCC unroll 16
  for (int i = 0; i < Rows * kQuarters; ++i) {
    sums[i / kQuarters][i % kQuarters] = _mm256_load_ps(rest[i / kQuarters] + i % kQuarters * 8);
  }
  for (std::int64_t step = 0; step < steps; ++step) {
    _mm_prefetch(reinterpret_cast<const char*>(at.prefetch), _MM_HINT_T0);
    multiply_pair<Kind, 0>(at, sums);
    multiply_pair<Kind, 1>(at, sums);
    at.weights += at.weights_step;
    at.x += 4 * Rows;
    at.prefetch += at.prefetch_step;
    at.keep += Kind == TileKind::keeping ? 2 * at.pair_floats : 0;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows * kQuarters; ++i) {
    _mm256_store_ps(rest[i / kQuarters] + i % kQuarters * 8, sums[i / kQuarters][i % kQuarters]);
  }
}

template <TileKind Kind, int Rows>
OCTILE_AVX2 void tile(const TileArgs& args) {
  alignas(32) float sums[kMaxPanels][Rows][kPairFloats] = {};
  const std::int64_t row_floats = std::int64_t{args.panels} * kPairFloats;
  if (!args.first_pass) {
    for (int i = 0; i < args.panels * Rows; ++i) {
      const float* partial = args.partial + i % Rows * row_floats + i / Rows * kPairFloats;
      std::copy_n(partial, kPairFloats, sums[i / Rows][i % Rows]);
    }
  }
  // The register file holds one panel's sums. Panels take turns every few steps, so that the codes are still read in the
  // order in which they lie in memory: a stream that takes one line of four runs at half the speed.
  const std::int64_t turn = args.panels == 1 ? args.steps : kTurnSteps;
  const std::int64_t weights_step =
      Kind == TileKind::decoded ? 2 * row_floats * std::int64_t{sizeof(float)} : args.step_bytes;
  const std::int64_t panel_bytes = Kind == TileKind::decoded ? kPairFloats * std::int64_t{sizeof(float)} : kBlockBytes;
  for (std::int64_t step = 0; step < args.steps; step += turn) {
    const std::int64_t steps = std::min(turn, args.steps - step);
    for (int panel = 0; panel < args.panels; ++panel) {
      Cursor at;
      at.weights = args.weights + step * weights_step + panel * panel_bytes;
      at.weights_step = weights_step;
      at.pair_floats = row_floats;
      at.x = reinterpret_cast<const float*>(args.activations) + step * 4 * Rows;
      at.prefetch =
          Kind == TileKind::decoded ? args.prefetch + step * args.prefetch_bytes : at.weights + args.prefetch_bytes;
      at.prefetch_step = Kind == TileKind::decoded ? args.prefetch_bytes : args.step_bytes;
      at.keep = reinterpret_cast<float*>(args.keep) + step * 2 * row_floats + panel * kPairFloats;
      run_panel<Kind, Rows>(at, steps, sums[panel]);
    }
  }
  for (int i = 0; i < args.panels * Rows; ++i) {
    const int panel = i / Rows;
    const int row = i % Rows;
    if (args.last_pass) {
      write_row(sums[panel][row], row, panel, args.output);
    } else {
      std::copy_n(sums[panel][row], kPairFloats, args.partial + row * row_floats + panel * kPairFloats);
    }
  }
}

template <TileKind Kind, int... RowsMinus1>
constexpr std::array<TileFunction, kMaxRows> tiles(std::integer_sequence<int, RowsMinus1...> /*rows*/) {
  return {tile<Kind, RowsMinus1 + 1>...};
}

TileFunction select_tile(TileKind kind, int /*panels*/, int rows) noexcept {
  constexpr std::make_integer_sequence<int, kMaxRows> kRows;
  static constexpr std::array<std::array<TileFunction, kMaxRows>, kTileKinds> kTiles = {
      tiles<TileKind::fused>(kRows), tiles<TileKind::keeping>(kRows), tiles<TileKind::decoded>(kRows)};
  return kTiles[static_cast<std::size_t>(kind)][static_cast<std::size_t>(rows - 1)];
}

constexpr Engine kEngine = {.name = "avx2",
                            .isa = Isa::avx2,
                            .quantize = &kQuantizeAvx2,
                            .max_rows = {kMaxRows, kMaxRows, kMaxRows, kMaxRows},
                            .value_bytes = 4,
                            .partial_floats = kPairFloats,
                            .activation_factor = 256.0F,
                            .decode_cycles = 12.0,
                            .row_cycles = 4.5,
                            .decode_each_up_to_m = 6,
                            .decode = decode,
                            .tile = select_tile};

}  // namespace

const Engine* avx2_engine() noexcept { return &kEngine; }

}  // namespace octile::cpu

#else

namespace octile::cpu {
const Engine* avx2_engine() noexcept { return nullptr; }
}  // namespace octile::cpu

#endif
