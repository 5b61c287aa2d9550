// SPDX-License-Identifier: Apache-2.0
#include "support/software_tiles.h"

#if defined(__x86_64__)

#include "octile/kernels/cpu/amx_engine.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace octile::test {
namespace {

using cpu::kTileRegisters;
using cpu::kTileRowBytes;
using cpu::kTileRows;
using cpu::TileShapes;

// What the processor would answer by an exception ends the test.
void must(bool condition, const char* what) {
  if (!condition) {
    std::fprintf(stderr, "software tiles: %s\n", what);
    std::abort();
  }
}

struct Registers {
  std::optional<TileShapes> shapes;
  std::array<std::array<std::array<std::uint8_t, kTileRowBytes>, kTileRows>, kTileRegisters> data;
  std::array<bool, kTileRegisters> written = {};

  std::int64_t rows(int tile) const {
    must(shapes.has_value(), "a tile is used without a configuration");
    const std::int64_t rows = shapes->rows[tile];
    must(rows >= 1 && rows <= kTileRows && shapes->bytes_per_row[tile] == kTileRowBytes, "a tile has no shape");
    return rows;
  }
};
thread_local Registers registers;

// Both of a pair of bf16, as fp32.
OCTILE_AVX512_DOT_INLINE __m512 low_half(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
OCTILE_AVX512_DOT_INLINE __m512 high_half(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
}

// Even and odd k are summed apart over the tile, then together, then added to what was there (Intel's manual, TDPBF16PS).
OCTILE_AVX512_DOT void multiply_rows(int sum, int a, int b) {
  const std::int64_t rows = registers.rows(sum);
  must(registers.rows(a) == rows && registers.rows(b) == kTileRows, "tiles of a product do not fit together");
  must(registers.written[static_cast<std::size_t>(sum)] && registers.written[static_cast<std::size_t>(a)] &&
           registers.written[static_cast<std::size_t>(b)],
       "an operand was never written");
  auto& sums = registers.data[static_cast<std::size_t>(sum)];
  const auto& left = registers.data[static_cast<std::size_t>(a)];
  const auto& right = registers.data[static_cast<std::size_t>(b)];
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    __m512 even = _mm512_setzero_ps();
    __m512 odd = _mm512_setzero_ps();
    for (std::size_t pair = 0; pair < static_cast<std::size_t>(kTileRows); ++pair) {
      std::uint32_t values = 0;
      std::memcpy(&values, left[row].data() + pair * 4, sizeof(values));
      const __m512i x = _mm512_set1_epi32(static_cast<int>(values));
      const __m512i w = _mm512_loadu_si512(right[pair].data());
      even = _mm512_fmadd_ps(low_half(x), low_half(w), even);
      odd = _mm512_fmadd_ps(high_half(x), high_half(w), odd);
    }
    const __m512 before = _mm512_loadu_ps(reinterpret_cast<const float*>(sums[row].data()));
    _mm512_storeu_ps(reinterpret_cast<float*>(sums[row].data()), _mm512_add_ps(before, _mm512_add_ps(even, odd)));
  }
}

struct SoftwareTiles {
  static void configure(const TileShapes& shapes) {
    must(shapes.palette == 1 && shapes.start_row == 0, "the configuration is not of palette 1");
    registers.shapes = shapes;
    registers.written = {};
    for (auto& tile : registers.data) {
      for (auto& row : tile) {
        row.fill(0xFF);  // NaN: the architecture says zero, but nothing may rely on it.
      }
    }
  }
  static void release() { registers.shapes.reset(); }
  template <int Tile>
  static void zero() {
    static_cast<void>(registers.rows(Tile));
    for (auto& row : registers.data[Tile]) {
      row.fill(0);
    }
    registers.written[Tile] = true;
  }
  template <int Tile>
  static void load(const void* data, std::int64_t row_stride) {
    for (std::int64_t row = 0; row < registers.rows(Tile); ++row) {
      std::memcpy(registers.data[Tile][static_cast<std::size_t>(row)].data(),
                  static_cast<const std::uint8_t*>(data) + row * row_stride, kTileRowBytes);
    }
    registers.written[Tile] = true;
  }
  template <int Tile>
  static void store(void* data, std::int64_t row_stride) {
    must(registers.written[Tile], "a tile is stored that was never written");
    for (std::int64_t row = 0; row < registers.rows(Tile); ++row) {
      std::memcpy(static_cast<std::uint8_t*>(data) + row * row_stride,
                  registers.data[Tile][static_cast<std::size_t>(row)].data(), kTileRowBytes);
    }
  }
  template <int Sum, int A, int B>
  static void multiply() {
    multiply_rows(Sum, A, B);
  }
};

}  // namespace

const cpu::Engine* software_amx_engine() noexcept { return &cpu::AmxEngine<SoftwareTiles>::kEngine; }

}  // namespace octile::test

#else

namespace octile::test {
const cpu::Engine* software_amx_engine() noexcept { return nullptr; }
}  // namespace octile::test

#endif
