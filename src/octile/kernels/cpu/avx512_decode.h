// SPDX-License-Identifier: Apache-2.0
// Packed e4m3 codes to bf16 in AVX-512 registers, for the engines that multiply bf16.
//
// A code's bf16 value is two bytes, each a function of the low seven bits, so two look-ups in tables of 128 bytes
// (VPERMI2B ignores bit 7), one OR of the sign and two interleaves turn 64 codes into the two operands [16 n][2 k]. Every
// e4m3 value, subnormals included, is a normal bf16, which matters because VDPBF16PS and TDPBF16PS flush subnormals.
#pragma once

#if defined(__x86_64__)

#include "octile/kernels/cpu/avx512_common.h"

#include <array>
#include <bit>
#include <cstdint>

namespace octile::cpu {

// bf16 bits of a non-negative e4m3 code: exponent rebiased by 120; subnormals are m * 2^-9.
constexpr std::uint16_t bf16_of_code(unsigned code) {
  const unsigned exponent = code >> 3U;
  const unsigned mantissa = code & 7U;
  const float value = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9F
                                    : std::bit_cast<float>(((exponent + 120U) << 23U) | (mantissa << 20U));
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
}

struct Bf16Tables {
  alignas(64) std::array<std::uint8_t, 128> low;
  alignas(64) std::array<std::uint8_t, 128> high;
};
constexpr Bf16Tables make_bf16_tables() {
  Bf16Tables tables{};
  for (unsigned code = 0; code < 128; ++code) {
    tables.low[code] = static_cast<std::uint8_t>(bf16_of_code(code) & 0xFFU);
    tables.high[code] = static_cast<std::uint8_t>(bf16_of_code(code) >> 8U);
  }
  return tables;
}
inline constexpr Bf16Tables kBf16Tables = make_bf16_tables();

struct Bf16Decoder {
  __m512i low0, low1, high0, high1, sign;
};

OCTILE_AVX512_DOT_INLINE Bf16Decoder load_bf16_decoder() {
  return {_mm512_load_si512(kBf16Tables.low.data()), _mm512_load_si512(kBf16Tables.low.data() + 64),
          _mm512_load_si512(kBf16Tables.high.data()), _mm512_load_si512(kBf16Tables.high.data() + 64),
          _mm512_set1_epi8(static_cast<char>(0x80))};
}

// One block to its two k pairs of [16 n][2 k] in bf16.
OCTILE_AVX512_DOT_INLINE void decode_block(const Bf16Decoder& d, const std::uint8_t* block, __m512i& pair0, __m512i& pair1) {
  const __m512i codes = _mm512_loadu_si512(block);
  const __m512i low = _mm512_permutex2var_epi8(d.low0, codes, d.low1);
  const __m512i magnitude = _mm512_permutex2var_epi8(d.high0, codes, d.high1);
  const __m512i high = _mm512_ternarylogic_epi32(magnitude, codes, d.sign, 0xF8);  // a | (b & c)
  pair0 = _mm512_unpacklo_epi8(low, high);
  pair1 = _mm512_unpackhi_epi8(low, high);
}

// DecodeFunction of these engines.
OCTILE_AVX512_DOT inline void decode_to_bf16(const std::uint8_t* codes, std::int64_t step_bytes, int panels,
                                             std::int64_t steps, std::int64_t prefetch_bytes, std::uint8_t* decoded) {
  const Bf16Decoder decoder = load_bf16_decoder();
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

}  // namespace octile::cpu

#endif
