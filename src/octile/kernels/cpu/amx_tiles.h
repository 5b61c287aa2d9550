// SPDX-License-Identifier: Apache-2.0
// AMX's tile registers behind one interface that the engine is written against. The instructions are spelled in assembly:
// GCC's intrinsics are macros that paste register numbers into text and take no template parameter.
#pragma once

#if defined(__x86_64__)

#include "octile/kernels/cpu/avx512_common.h"

#include <cstdint>

#define OCTILE_AMX \
  __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512bf16,amx-tile,amx-bf16")))
#define OCTILE_AMX_INLINE                                                                                            \
  __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512bf16,amx-tile,amx-bf16"), \
                 always_inline)) inline

namespace octile::cpu {

inline constexpr int kTileRegisters = 8;
inline constexpr std::int64_t kTileRows = 16;
inline constexpr std::int64_t kTileRowBytes = 64;
inline constexpr std::int64_t kTileK = 32;  // bf16 of a tile row.

// The operand of LDTILECFG, as the architecture lays it out.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t bytes_per_row[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

struct HardwareTiles {
  OCTILE_AMX_INLINE static void configure(const TileShapes& shapes) { __asm__ volatile("ldtilecfg %0" : : "m"(shapes)); }
  OCTILE_AMX_INLINE static void release() { __asm__ volatile("tilerelease"); }
  template <int Tile>
  OCTILE_AMX_INLINE static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(Tile));
  }
  template <int Tile>
  OCTILE_AMX_INLINE static void load(const void* data, std::int64_t row_stride) {
    __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(Tile), "r"(data), "r"(row_stride) : "memory");
  }
  template <int Tile>
  OCTILE_AMX_INLINE static void store(void* data, std::int64_t row_stride) {
    __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(Tile), "r"(data), "r"(row_stride) : "memory");
  }
  // Sum[m][n] += A[m][2 k] B[k][2 n] + A[m][2 k + 1] B[k][2 n + 1] over the k of the tiles.
  template <int Sum, int A, int B>
  OCTILE_AMX_INLINE static void multiply() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(A), "i"(B));
  }
};

}  // namespace octile::cpu

#endif
