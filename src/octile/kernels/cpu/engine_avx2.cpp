// SPDX-License-Identifier: Apache-2.0
// The AVX2 engine: fp32 products and sums, weights decoded through fp16.
//
// e4m3 shifted into fp16 position is the value times 2^-8 exactly, subnormals included, because fp16 has one exponent bit
// more and its bias is larger by 8: eight codes cost an interleave, a shift, a mask and a conversion (VCVTPH2PS). The factor
// sits in the activations, 2^8 times too large, so the sums are right as they are.
//
//   accumulators of one row and panel:  [n 0..3][2 k] | [n 4..7][2 k] | [n 8..11][2 k] | [n 12..15][2 k]
//
// Limits, on Zen 4: at M = 1 about 11 cycles a block of 64 codes, of which 8 conversions are 8; at large M 73 to 79 % of the
// two FMAs a cycle.
#include "octile/kernels/cpu/engine.h"

#if defined(__x86_64__)

#include "octile/kernels/cpu/avx2_common.h"
#include "octile/kernels/cpu/panel_turns.h"
#include "octile/kernels/cpu/quantize_avx2.h"

#include <algorithm>
#include <cstring>

namespace octile::cpu {
namespace {

constexpr std::int64_t kYmmFloats = 8;
constexpr std::int64_t kQuarters = kPairFloats / kYmmFloats;  // Registers of one row and panel.

// Codes in the high bytes of 16-bit words to e4m3 * 2^-8 in fp16.
OCTILE_AVX2_INLINE __m256i high_bytes_to_halves(__m256i words) {
  return _mm256_and_si256(_mm256_srai_epi16(words, 1), _mm256_set1_epi16(static_cast<short>(0xBFFF)));
}

// One block as fp16 in the order of its two k pairs, [2 k pairs][16 n][2 k].
OCTILE_AVX2_INLINE void block_to_halves(const std::uint8_t* block, std::uint16_t* halves) {
  for (std::int64_t half = 0; half < 2; ++half) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + half * 32));
    const __m256i zero = _mm256_setzero_si256();
    auto* out = reinterpret_cast<__m256i*>(halves + half * 16);
    _mm256_store_si256(out, high_bytes_to_halves(_mm256_unpacklo_epi8(zero, codes)));
    _mm256_store_si256(out + kPairFloats / 16, high_bytes_to_halves(_mm256_unpackhi_epi8(zero, codes)));
  }
}

OCTILE_AVX2 void decode(const std::uint8_t* codes, std::int64_t step_bytes, int panels, std::int64_t steps,
                        std::int64_t prefetch_bytes, std::uint8_t* decoded) {
  auto* out = reinterpret_cast<float*>(decoded);
  const std::int64_t pair_floats = panels * kPairFloats;
  for (std::int64_t step = 0; step < steps; ++step, codes += step_bytes, out += 2 * pair_floats) {
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      const std::uint8_t* block = codes + panel * kBlockBytes;
      _mm_prefetch(reinterpret_cast<const char*>(block + prefetch_bytes), _MM_HINT_T0);
      alignas(32) std::uint16_t halves[kBlockBytes];
      block_to_halves(block, halves);
      for (std::int64_t i = 0; i < kBlockBytes; i += kYmmFloats) {
        const __m256 values = _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(halves + i)));
        _mm256_storeu_ps(out + i / kPairFloats * pair_floats + panel * kPairFloats + i % kPairFloats, values);
      }
    }
  }
}

// Both values of a k pair of one row, in every lane pair.
OCTILE_AVX2_INLINE __m256 broadcast_pair(const float* x) {
  double pair = 0;
  std::memcpy(&pair, x, sizeof(pair));
  return _mm256_castpd_ps(_mm256_set1_pd(pair));
}

// Weights of one k pair, eight at a time: fp16 that is converted as it is loaded, or fp32.
struct Halves {
  const std::uint16_t* data;
  OCTILE_AVX2_INLINE __m256 load(std::int64_t quarter) const {
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(data + quarter * kYmmFloats)));
  }
};
struct Floats {
  const float* data;
  OCTILE_AVX2_INLINE __m256 load(std::int64_t quarter) const { return _mm256_loadu_ps(data + quarter * kYmmFloats); }
};

// `keep`: where the weights go in fp32, or nullptr.
template <class Weights, std::int64_t Rows>
OCTILE_AVX2_INLINE void multiply_pair(const Weights& weights, const float* x, float* keep, __m256 (&sums)[Rows][kQuarters]) {
  __m256 pairs[Rows];
#pragma GCC unroll 4
  for (std::int64_t r = 0; r < Rows; ++r) {
    pairs[r] = broadcast_pair(x + r * 2);
  }
#pragma GCC unroll 4
  for (std::int64_t q = 0; q < kQuarters; ++q) {
    const __m256 w = weights.load(q);
    if (keep != nullptr) {
      _mm256_storeu_ps(keep + q * kYmmFloats, w);
    }
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < Rows; ++r) {
      sums[r][q] = _mm256_fmadd_ps(pairs[r], w, sums[r][q]);
    }
  }
}

struct Avx2Tiles {
  static constexpr std::int64_t kMaxRows = 3;  // 12 accumulators of 16 registers.
  static constexpr std::int64_t widest(std::int64_t /*rows*/) { return 1; }

  template <TileKind Kind, std::int64_t Width, std::int64_t Rows>
  OCTILE_AVX2 static void run(PanelCursor at, std::int64_t steps, float* rest) {
    static_assert(Width == 1);
    __m256 sums[Rows][kQuarters];
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < Rows * kQuarters; ++i) {
      sums[i / kQuarters][i % kQuarters] = _mm256_load_ps(rest + i * kYmmFloats);
    }
    if constexpr (Kind == TileKind::decoded) {
      for (std::int64_t step = 0; step < steps; ++step) {
        _mm_prefetch(reinterpret_cast<const char*>(at.prefetch), _MM_HINT_T0);
        const auto* weights = reinterpret_cast<const float*>(at.weights);
        multiply_pair(Floats{weights}, at.x, nullptr, sums);
        multiply_pair(Floats{weights + at.pair_floats}, at.x + 2 * Rows, nullptr, sums);
        at.weights += at.weights_step_bytes;
        at.x += 4 * Rows;
        at.prefetch += at.prefetch_step_bytes;
      }
    } else {
      multiply_codes<Kind == TileKind::keeping>(at, steps, sums);
    }
#pragma GCC unroll 16
    for (std::int64_t i = 0; i < Rows * kQuarters; ++i) {
      _mm256_store_ps(rest + i * kYmmFloats, sums[i / kQuarters][i % kQuarters]);
    }
  }

  // Some steps of codes to fp16 in L1 first: VCVTPH2PS from memory needs no lane to be moved, and 13.3 cycles a block
  // become 11.0 at M = 1.
  template <bool Keep, std::int64_t Rows>
  OCTILE_AVX2_INLINE static void multiply_codes(PanelCursor at, std::int64_t steps, __m256 (&sums)[Rows][kQuarters]) {
    alignas(64) std::uint16_t halves[kTurnSteps][kBlockBytes];
    for (std::int64_t first = 0; first < steps; first += kTurnSteps) {
      const std::int64_t count = std::min(kTurnSteps, steps - first);
      for (std::int64_t i = 0; i < count; ++i) {
        _mm_prefetch(reinterpret_cast<const char*>(at.prefetch), _MM_HINT_T0);
        block_to_halves(at.weights, halves[i]);
        at.weights += at.weights_step_bytes;
        at.prefetch += at.prefetch_step_bytes;
      }
      for (std::int64_t i = 0; i < count; ++i) {
        multiply_pair(Halves{halves[i]}, at.x, Keep ? at.keep : nullptr, sums);
        multiply_pair(Halves{halves[i] + kPairFloats}, at.x + 2 * Rows, Keep ? at.keep + at.pair_floats : nullptr, sums);
        at.x += 4 * Rows;
        at.keep += Keep ? 2 * at.pair_floats : 0;
      }
    }
  }

  OCTILE_AVX2 static void write_row(const float* sums, std::int64_t row, std::int64_t panel, const OutputTile& out) {
    const __m256 scale_x = _mm256_set1_ps(out.scales_x[row]);
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t n = panel * kPanelColumns + half * kYmmFloats;
      const std::int64_t count = std::min(kYmmFloats, out.columns - n);
      if (count <= 0) {
        return;
      }
      // Even and odd k meet; the horizontal addition leaves the columns in the order 0 1 4 5 2 3 6 7.
      const float* first = sums + half * 2 * kYmmFloats;
      const __m256 folded = _mm256_hadd_ps(_mm256_load_ps(first), _mm256_load_ps(first + kYmmFloats));
      const __m256 acc = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(folded), 0xD8));
      __m256 value = _mm256_mul_ps(_mm256_mul_ps(acc, _mm256_loadu_ps(out.scales_w + n)), scale_x);
      if (out.bias != nullptr) {
        alignas(32) float bias[kYmmFloats] = {};
        std::copy_n(out.bias + n, count, bias);
        value = _mm256_add_ps(value, _mm256_load_ps(bias));
      }
      store_some(out.y, out.dtype, row * out.y_row_stride + n, value, count);
    }
  }
};

constexpr int kMaxRows = Avx2Tiles::kMaxRows;
constexpr Engine kEngine = {.name = "avx2",
                            .isa = Isa::avx2,
                            .quantize = &kQuantizeAvx2,
                            .max_rows = {kMaxRows, kMaxRows, kMaxRows, kMaxRows},
                            .value_bytes = 4,
                            .activation_k = 2,
                            .partial_floats = kPairFloats,
                            .activation_factor = 256.0F,
                            .decode_cycles = 10.0,
                            .row_cycles = 4.5,
                            .decode_each_up_to_m = 6,
                            .decoded_panels = 4,
                            .decode = decode,
                            .tile = select_tile_in_turns<Avx2Tiles>};

}  // namespace

const Engine* avx2_engine() noexcept { return &kEngine; }

}  // namespace octile::cpu

#else

namespace octile::cpu {
const Engine* avx2_engine() noexcept { return nullptr; }
}  // namespace octile::cpu

#endif
