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
#include <cstring>

namespace octile::cpu {
namespace {

constexpr int kMaxRows = 3;
constexpr int kQuarters = 4;     // Registers of one row: 4 n x 2 k each.
constexpr int kPairFloats = 32;  // [16 n][2 k] of one k pair.

// Half a block (8 columns), interleaved with zeros so that codes are the high bytes, to e4m3 * 2^-8 in fp16.
OCTILE_AVX2_INLINE __m256i to_fp16(__m256i codes_in_high_bytes) {
  return _mm256_and_si256(_mm256_srai_epi16(codes_in_high_bytes, 1), _mm256_set1_epi16(static_cast<short>(0xBFFF)));
}

template <int Pair>
OCTILE_AVX2_INLINE void decode_pair(__m256i low, __m256i high, __m256* quarter) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i a = to_fp16(Pair == 0 ? _mm256_unpacklo_epi8(zero, low) : _mm256_unpackhi_epi8(zero, low));
  const __m256i b = to_fp16(Pair == 0 ? _mm256_unpacklo_epi8(zero, high) : _mm256_unpackhi_epi8(zero, high));
  quarter[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(a));
  quarter[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1));
  quarter[2] = _mm256_cvtph_ps(_mm256_castsi256_si128(b));
  quarter[3] = _mm256_cvtph_ps(_mm256_extracti128_si256(b, 1));
}

OCTILE_AVX2 void decode(const std::uint8_t* codes, std::int64_t step_bytes, int panels, std::int64_t steps,
                        std::int64_t prefetch_bytes, std::uint8_t* decoded) {
  auto* out = reinterpret_cast<float*>(decoded);
  const std::int64_t pair_floats = std::int64_t{panels} * kPairFloats;
  for (std::int64_t step = 0; step < steps; ++step, codes += step_bytes, out += 2 * pair_floats) {
    for (int panel = 0; panel < panels; ++panel) {
      const std::uint8_t* block = codes + panel * kBlockBytes;
      _mm_prefetch(reinterpret_cast<const char*>(block + prefetch_bytes), _MM_HINT_T0);
      const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block));
      const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 32));
      __m256 quarter[kQuarters];
      float* pair0 = out + panel * kPairFloats;
      decode_pair<0>(low, high, quarter);
      for (int q = 0; q < kQuarters; ++q) {
        _mm256_storeu_ps(pair0 + q * 8, quarter[q]);
      }
      decode_pair<1>(low, high, quarter);
      for (int q = 0; q < kQuarters; ++q) {
        _mm256_storeu_ps(pair0 + pair_floats + q * 8, quarter[q]);
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

OCTILE_AVX2_INLINE void write_row(const __m256* sums, int row, const OutputTile& out) {
  const __m256 scale_x = _mm256_set1_ps(out.scales_x[row]);
  for (int half = 0; half < 2; ++half) {
    const std::int64_t n = half * 8;
    const std::int64_t count = std::min<std::int64_t>(8, out.columns - n);
    if (count <= 0) {
      return;
    }
    // Even and odd k meet; the horizontal addition leaves the columns in the order 0 1 4 5 2 3 6 7.
    const __m256 folded = _mm256_hadd_ps(sums[2 * half], sums[2 * half + 1]);
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

template <bool Fused, int Rows>
OCTILE_AVX2 void tile(const TileArgs& args) {
  __m256 sums[Rows][kQuarters];
  for (int r = 0; r < Rows; ++r) {
    for (int q = 0; q < kQuarters; ++q) {
      sums[r][q] =
          args.first_pass ? _mm256_setzero_ps() : _mm256_loadu_ps(args.partial + r * args.partial_row_floats + q * 8);
    }
  }
  const auto* x = reinterpret_cast<const float*>(args.activations);
  const std::uint8_t* weights = args.weights;
  const std::uint8_t* prefetch = args.prefetch;
  for (std::int64_t step = 0; step < args.steps; ++step, x += 4 * Rows) {
    __m256 quarter[2][kQuarters];
    if constexpr (Fused) {
      _mm_prefetch(reinterpret_cast<const char*>(weights + args.prefetch_bytes), _MM_HINT_T0);
      const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
      const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + 32));
      decode_pair<0>(low, high, quarter[0]);
      decode_pair<1>(low, high, quarter[1]);
      weights += args.step_bytes;
    } else {
      _mm_prefetch(reinterpret_cast<const char*>(prefetch), _MM_HINT_T1);
      prefetch += args.prefetch_bytes;
    }
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; ++pair) {
      __m256 pair_x[Rows];
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        pair_x[r] = broadcast_pair(x + (pair * Rows + r) * 2);
      }
#pragma GCC unroll 4
      for (int q = 0; q < kQuarters; ++q) {
        __m256 w = quarter[pair][q];
        if constexpr (!Fused) {
          w = _mm256_loadu_ps(reinterpret_cast<const float*>(weights) + pair * kPairFloats + q * 8);
        }
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
          sums[r][q] = _mm256_fmadd_ps(pair_x[r], w, sums[r][q]);
        }
      }
    }
    if constexpr (!Fused) {
      weights += 2 * kPairFloats * sizeof(float);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    if (args.last_pass) {
      write_row(sums[r], r, args.output);
    } else {
      for (int q = 0; q < kQuarters; ++q) {
        _mm256_storeu_ps(args.partial + r * args.partial_row_floats + q * 8, sums[r][q]);
      }
    }
  }
}

TileFunction select_tile(bool fused, int /*panels*/, int rows) noexcept {
  static constexpr TileFunction kFused[kMaxRows] = {tile<true, 1>, tile<true, 2>, tile<true, 3>};
  static constexpr TileFunction kDecoded[kMaxRows] = {tile<false, 1>, tile<false, 2>, tile<false, 3>};
  return fused ? kFused[rows - 1] : kDecoded[rows - 1];
}

constexpr Engine kEngine = {"avx2", &kQuantizeAvx2, {kMaxRows, 0, 0, 0}, 4, kPairFloats, 256.0F, decode, select_tile};

}  // namespace

const Engine* avx2_engine() noexcept { return &kEngine; }

}  // namespace octile::cpu

#else

namespace octile::cpu {
const Engine* avx2_engine() noexcept { return nullptr; }
}  // namespace octile::cpu

#endif
