// SPDX-License-Identifier: Apache-2.0
// e4m3 codes [n, k] from rows to slabs and back: the weight layout "slab64".
//
// Each slab of 64 channels keeps its 64 x k bytes, but as k / 128 tiles of 64 rows x 128 bytes, one behind the other:
//
//   row-major    slab 0: row 0 [ k bytes ] row 1 [ k bytes ] ...            slab 1: ...
//   slab64       slab 0: tile 0 [ 64 x 128 bytes ] tile 1 [ 64 x 128 ] ...  slab 1: ...
//
// In a tile 16-byte column c of row r lies at column c XOR r % 8: as TMA's 128-byte swizzle would have put it into shared
// memory, so that the copy engine moves whole lines of 1024 bytes (eight rows) and has nothing left to arrange.
//
// One block a tile, four vectors of 16 bytes a thread under way; a warp reads four rows' 128 bytes and writes 512 in a row,
// or the other way about. Limited by memory.
#include "ptx.cuh"

struct Slab64Params {
  u8* rows;         // [n, k], n % 64 = 0 and k % 128 = 0.
  u8* slabs;        // As many bytes, 16-byte aligned.
  i64 stride;       // Bytes between rows.
  u32 chunks;       // k / 128.
  u32 row_aligned;  // 1: every row starts at a multiple of 16 bytes.
};

static_assert(sizeof(Slab64Params) == 32, "the host fills the same struct");

constexpr u32 kThreads = 128;
constexpr u32 kTileRows = 64;
constexpr u32 kTileBytes = 8192;
constexpr u32 kColumns = 8;  // Of 16 bytes, in a tile's row.
constexpr u32 kVectors = kTileRows * kColumns / kThreads;

union Vector {
  uint4 whole;
  u8 bytes[16];
};

template <bool kToSlabs>
__device__ __forceinline__ void permute(const Slab64Params& p) {
  u8* const tile = p.slabs + static_cast<i64>(blockIdx.x) * kTileBytes;
  u8* const corner = p.rows + static_cast<i64>(blockIdx.x / p.chunks) * kTileRows * p.stride + blockIdx.x % p.chunks * 128;
  Vector held[kVectors];
#pragma unroll
  for (u32 i = 0; i < kVectors; ++i) {
    const u32 row = (threadIdx.x + kThreads * i) / kColumns;
    const u32 column = threadIdx.x % kColumns;
    const u8* const source =
        kToSlabs ? corner + row * p.stride + 16 * column : tile + row * 128 + 16 * (column ^ row % kColumns);
    if (!kToSlabs || p.row_aligned != 0) {
      held[i].whole = *reinterpret_cast<const uint4*>(source);
    } else {
#pragma unroll
      for (u32 byte = 0; byte < 16; ++byte) held[i].bytes[byte] = source[byte];
    }
  }
#pragma unroll
  for (u32 i = 0; i < kVectors; ++i) {
    const u32 row = (threadIdx.x + kThreads * i) / kColumns;
    const u32 column = threadIdx.x % kColumns;
    u8* const target = kToSlabs ? tile + row * 128 + 16 * (column ^ row % kColumns) : corner + row * p.stride + 16 * column;
    if (kToSlabs || p.row_aligned != 0) {
      *reinterpret_cast<uint4*>(target) = held[i].whole;
    } else {
#pragma unroll
      for (u32 byte = 0; byte < 16; ++byte) target[byte] = held[i].bytes[byte];
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreads) octile_rows_to_slabs(const Slab64Params p) { permute<true>(p); }
extern "C" __global__ void __launch_bounds__(kThreads) octile_slabs_to_rows(const Slab64Params p) { permute<false>(p); }
