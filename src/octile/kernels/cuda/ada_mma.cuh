// SPDX-License-Identifier: Apache-2.0
// y[m, n] = (sum_k x[m, k] * w[n, k] * sw[n]) * sx[m] + bias[n] with mma.sync.m16n8k32 on e4m3, on sm_90 with m16n8k16 on
// codes unpacked to fp16: the family `ada_mma`.
//
// For sm_89 and newer, every M. A block computes a tile of BLOCK_SIZE_M tokens x BLOCK_SIZE_N channels and walks K in steps
// of BLOCK_SIZE_K bytes through a ring of kBuffers shared-memory buffers, filled by cp.async:
//
//        K ->                                    P = the operand with 16-row fragments, Q = the one with 8-row fragments:
//   P [ kP rows ][ BLOCK_SIZE_K ] ---ldmatrix--> tokens are P and channels Q, or with SWAP_AB the other way round, which
//   halves Q [ kQ rows ][ BLOCK_SIZE_K ] ---ldmatrix--> the multiplications at M <= 8.
//
// The WARPS_P x WARPS_Q x WARPS_K warps split the tile's rows, columns and, where a tile has fewer fragments than warps,
// each step's K; the last sum goes through shared memory in the order of the K groups, so bits never depend on timing.
// SPLIT_K > 1 writes fp32 partial sums to the workspace, which octile_ada_mma_reduce adds in the order of the splits.
//
// Limits: at M <= 64 memory (weights are read once; bytes in flight = buffers x tile x blocks an SM), above it the tensor
// cores and, where operands are unpacked (sm_90, and sm_100's emulation), the conversions. Rows beyond M and N are never
// loaded: their sums are wrong and never stored. K's tail is filled with zeros by cp.async in both operands, since 0 x NaN
// would not be 0.
//
// Defines: BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, NUM_WARPS, NUM_STAGES (Triton's meaning), GROUP_SIZE_M, SPLIT_K,
// SWAP_AB, WARPS_P, WARPS_Q, WARPS_K, STAGED (0/1: outputs pass through shared memory), PRECISE (0/1), OUT_TYPE (0 bf16, 1
// fp16, 2 fp32).
#include "ptx.cuh"

struct AdaMmaParams {
  const u8* x;        // e4m3 [m, k], row stride x_stride; base and stride multiples of 16 bytes.
  const float* sx;    // [m]
  const u8* w;        // e4m3 [n, k], row stride w_stride; base and stride multiples of 16 bytes.
  const float* sw;    // [n]
  const float* bias;  // [n] or nullptr.
  void* y;            // [m, n] of OUT_TYPE, row stride y_stride elements.
  float* partials;    // SPLIT_K > 1: [SPLIT_K, m, partial_stride].
  i64 m;
  i64 n;
  i64 k;  // Below 2^31.
  i64 x_stride;
  i64 w_stride;
  i64 y_stride;
  i64 partial_stride;    // n rounded up to a multiple of 4.
  u32 y_aligned;         // 1: base and row stride of y are multiples of 4 elements.
  u32 prefetch_weights;  // 1: the weights are not written by the kernel before this one.
};

static_assert(sizeof(AdaMmaParams) == 120, "the host fills the same struct");

constexpr int kThreads = NUM_WARPS * 32;
constexpr int kBuffers = NUM_STAGES > 2 ? NUM_STAGES - 1 : 1;
constexpr int kP = SWAP_AB ? BLOCK_SIZE_N : BLOCK_SIZE_M;
constexpr int kQ = SWAP_AB ? BLOCK_SIZE_M : BLOCK_SIZE_N;
constexpr int kWarpP = kP / WARPS_P;            // Rows of P a warp multiplies,
constexpr int kWarpQ = kQ / WARPS_Q;            // rows of Q,
constexpr int kSlice = BLOCK_SIZE_K / WARPS_K;  // and bytes of each K step.
constexpr int kFragsP = kWarpP / 16;
constexpr int kFragsQ = kWarpQ / 8;
constexpr int kSegment = kSlice < 128 ? kSlice : 128;  // Bytes of K between two promotions in precise mode.
constexpr int kSums = kFragsP * kFragsQ * 4;
// How a fragment is multiplied. sm_90 has no e4m3 mma.sync: ptxas unpacks both operands of each, multiplies as fp16 into a
// zero accumulator and adds with FADD. There we unpack a fragment once ourselves and let the fp16 instruction accumulate
// (two instructions for three, no FADD): e4m3 and products of two are exact in fp16 and fp32, NaN stays NaN. sm_100 keeps
// the emulation; where a thread's sums leave little room beside unpacked operands (of 255 registers), which is soon, one K
// step at a time is what fits there, and for the largest tiles only the order of the precise mode, which then serves both.
#if __CUDA_ARCH__ == 900
constexpr bool kAsHalves = true;
constexpr bool kPromote = PRECISE;
// Unrolled code keeps more fragments in registers: up to kFewSums eight K steps, up to kRoomySums four, beyond it
// kLeastSteps.
constexpr int kFewSums = PRECISE ? 16 : 32;
constexpr int kRoomySums = PRECISE ? 32 : 64;
constexpr int kLeastSteps = PRECISE ? 1 : 2;
// A step's codes are on their way while the step before is multiplied, where registers suffice (16 warps have 128 each).
constexpr bool kLoadAhead = PRECISE ? kThreads <= 256 : kFragsQ <= 8;
#elif __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
constexpr bool kAsHalves = false;
constexpr bool kPromote = PRECISE || kSums >= 128;
constexpr int kFewSums = 16;
constexpr int kRoomySums = 16;
constexpr int kLeastSteps = 1;
constexpr bool kLoadAhead = false;
#else
constexpr bool kAsHalves = false;
constexpr bool kPromote = PRECISE;
constexpr int kFewSums = 16;
constexpr int kRoomySums = PRECISE ? 64 : 128;
constexpr int kLeastSteps = 1;
constexpr bool kLoadAhead = false;
#endif
constexpr int kWords = kAsHalves ? 2 : 1;  // Registers that hold four codes.
constexpr int kMostUnrolled = kSums <= kFewSums ? 8 : (kSums <= kRoomySums ? 4 : kLeastSteps);
constexpr int kBytesP = kP * BLOCK_SIZE_K;
constexpr int kBytesStage = (kP + kQ) * BLOCK_SIZE_K;
constexpr int kStagePitch = BLOCK_SIZE_N + (SWAP_AB ? 4 : 8);  // Floats; without bank conflicts in the fragments' stores.

static_assert(WARPS_P * WARPS_Q * WARPS_K == NUM_WARPS, "the warp grid has NUM_WARPS warps");
static_assert(kP % (WARPS_P * 16) == 0 && kQ % (WARPS_Q * 8) == 0 && kSlice % 32 == 0, "whole fragments a warp");
static_assert(STAGED || (WARPS_K == 1 && !SWAP_AB), "only plain fragments are stored directly");

extern __shared__ __align__(128) u8 ring[];

// Rows of BLOCK_SIZE_K bytes in shared memory, whose 16-byte chunks are permuted within 128 bytes so that the eight rows an
// ldmatrix reads at one column lie in eight different bank groups.
__device__ __forceinline__ u32 swizzle(u32 row) {
  if constexpr (BLOCK_SIZE_K >= 128) return row & 7;
  if constexpr (BLOCK_SIZE_K == 64) return (row >> 1) & 3;
  return (row >> 2) & 1;
}

// Requests bytes [k_begin, k_begin + BLOCK_SIZE_K) of kRows rows; rows from `rows_left` on are left as they are, bytes from
// k on become zero. kWhole: neither happens here, so that a request is an addition and the copy.
template <int kRows, bool kWhole>
__device__ __forceinline__ void request_rows(u32 destination, const u8* source, i64 stride, i64 rows_left, u32 k_begin,
                                             u32 k) {
  constexpr int kChunks = BLOCK_SIZE_K / 16;
  constexpr int kRowStep = kThreads > kChunks ? kThreads / kChunks : 1;  // Rows between two requests of a thread,
  constexpr int kColumns = kThreads > kChunks ? 1 : kChunks / kThreads;  // and chunks of one row that are its own.
  const u32 first_row = kThreads > kChunks ? threadIdx.x / kChunks : 0;
  const u32 first_chunk = threadIdx.x % kChunks;
  const u32 rows = kWhole || rows_left >= kRows ? kRows : static_cast<u32>(rows_left);
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const u32 chunk = first_chunk + j * kThreads;
    const u32 position = k_begin + chunk * 16;
    const u32 bytes = kWhole ? 16 : (position < k ? min(k - position, 16u) : 0);
    const u8* from = source + first_row * stride + (bytes > 0 ? position : 0);
    // first_row has only bits below kRowStep: the permutation of row i * kRowStep + first_row is that of both parts.
    const u32 to = destination + first_row * BLOCK_SIZE_K + ((chunk ^ swizzle(first_row)) << 4);
#pragma unroll
    for (u32 i = 0; i < (kRows + kRowStep - 1) / kRowStep; ++i) {
      const u32 row = i * kRowStep;
      if ((kWhole && kRows % kRowStep == 0) || first_row + row < rows) {
        cp_async_16((to ^ (swizzle(row) << 4)) + row * BLOCK_SIZE_K, from, bytes);
      }
      from += kRowStep * stride;
    }
  }
}

template <int kRows>
__device__ __forceinline__ void request_tile(u32 destination, const u8* source, i64 stride, i64 rows_left, u32 k_begin,
                                             u32 k) {
  if (rows_left >= kRows && k_begin + BLOCK_SIZE_K <= k) {
    request_rows<kRows, true>(destination, source, stride, rows_left, k_begin, k);
  } else {
    request_rows<kRows, false>(destination, source, stride, rows_left, k_begin, k);
  }
}

// Where a lane reads its fragments: addresses of its warp's K step 0 in a buffer.
struct LaneAddresses {
  u32 p;
  u32 q;
};

__device__ __forceinline__ LaneAddresses lane_addresses(u32 warp_p, u32 warp_q, u32 warp_k) {
  const u32 lane = threadIdx.x % 32;
  const u32 row_p = warp_p * kWarpP + lane % 16;
  const u32 row_q = warp_q * kWarpQ + (kFragsQ > 1 ? lane % 8 + (lane / 16) * 8 : lane % 8);
  // A slice below 128 bytes starts inside the permuted 128 bytes: its offset there is part of the permutation.
  const u32 slice = warp_k * kSlice;
  LaneAddresses a;
  a.p = slice / 128 * 128 + row_p * BLOCK_SIZE_K + ((((lane / 16) ^ swizzle(row_p)) << 4) ^ slice % 128);
  a.q = slice / 128 * 128 + kBytesP + row_q * BLOCK_SIZE_K + ((((lane / 8 % 2) ^ swizzle(row_q)) << 4) ^ slice % 128);
  return a;
}

// The address of 32-byte step `step` of a slice whose step 0 is at `address`.
__device__ __forceinline__ u32 at_step(u32 address, u32 step) { return (address + step / 4 * 128) ^ (step % 4 * 32); }

template <int kCount>
__device__ __forceinline__ void load_fragments_p(u32 (&p)[kCount][4], u32 address) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) ldmatrix_x4(p[i], address + i * 16 * BLOCK_SIZE_K);
}

template <int kCount>
__device__ __forceinline__ void load_fragments_q(u32 (&q)[kCount][2], u32 address) {
#pragma unroll
  for (int j = 0; j + 1 < kCount; j += 2) {
    u32 r[4];
    ldmatrix_x4(r, address + j * 8 * BLOCK_SIZE_K);
    q[j][0] = r[0];
    q[j][1] = r[1];
    q[j + 1][0] = r[2];
    q[j + 1][1] = r[3];
  }
  // The last of an odd count: lanes 0 to 15 hold its rows' addresses for one fragment and for two.
  if constexpr (kCount % 2 != 0) {
    ldmatrix_x2(q[kCount - 1][0], q[kCount - 1][1], address + (kCount - 1) * 8 * BLOCK_SIZE_K);
  }
}

// A fragment's registers of codes as they are multiplied.
template <int kCount>
__device__ __forceinline__ void unpack(u32 (&to)[kCount * kWords], const u32 (&codes)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (kAsHalves) {
      e4m3x4_to_fp16(codes[i], to[i * kWords], to[i * kWords + kWords - 1]);
    } else {
      to[i * kWords] = codes[i];
    }
  }
}

// acc += 32 codes of K of one unpacked fragment each. A lane's four codes of a row lie side by side in e4m3's order; as
// fp16, which wants pairs 8 apart, the instruction's k are a permutation of ours, the same in both operands.
template <int kP, int kQ>
__device__ __forceinline__ void multiply(float (&acc)[4], const u32 (&p)[kP], const u32 (&q)[kQ]) {
  if constexpr (kP == 8) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 a[4] = {p[half * 4], p[half * 4 + 2], p[half * 4 + 1], p[half * 4 + 3]};
      mma_m16n8k16_fp16(acc, a, q[half * 2], q[half * 2 + 1]);
    }
  } else {
    mma_m16n8k32(acc, p, q[0], q[1]);
  }
}

template <int kCountP, int kCountQ>
struct Codes {
  u32 p[kCountP][4];
  u32 q[kCountQ][2];

  __device__ __forceinline__ void load(const LaneAddresses& a, u32 step) {
    load_fragments_p(p, at_step(a.p, step));
    load_fragments_q(q, at_step(a.q, step));
  }
};

template <int kSteps, int kCountP, int kCountQ>
__device__ __forceinline__ void multiply_steps(float (&acc)[kCountP][kCountQ][4], const LaneAddresses& a) {
  Codes<kCountP, kCountQ> codes;
  if constexpr (kLoadAhead) codes.load(a, 0);
  constexpr int kUnrolled = kSteps < kMostUnrolled ? kSteps : kMostUnrolled;
#pragma unroll kUnrolled
  for (int s = 0; s < kSteps; ++s) {
    if constexpr (!kLoadAhead) codes.load(a, s);
    u32 p[kCountP][4 * kWords];
#pragma unroll
    for (int i = 0; i < kCountP; ++i) unpack(p[i], codes.p[i]);
    Codes<kCountP, kCountQ> next = codes;
    if (kLoadAhead && s + 1 < kSteps) next.load(a, s + 1);
#pragma unroll
    for (int j = 0; j < kCountQ; ++j) {
      u32 q[2 * kWords];
      unpack(q, codes.q[j]);
#pragma unroll
      for (int i = 0; i < kCountP; ++i) multiply(acc[i][j], p[i], q);
    }
    codes = next;
  }
}

// A warp's slice of a buffer on the matrix unit's own accumulators.
__device__ __forceinline__ void multiply_fast(float (&acc)[kFragsP][kFragsQ][4], const LaneAddresses& a) {
  multiply_steps<kSlice / 32>(acc, a);
}

// The same with a fresh accumulator every kSegment bytes of K, added to the fp32 sum: the K steps of two by two fragments
// (all three where three are a warp's) run one after the other, so that only those need a second accumulator and not the
// whole tile.
__device__ __forceinline__ void multiply_precise(float (&acc)[kFragsP][kFragsQ][4], const LaneAddresses& a) {
  constexpr int kPairP = kFragsP % 2 == 0 ? 2 : kFragsP;
  constexpr int kPairQ = kFragsQ % 2 == 0 ? 2 : kFragsQ;
  static_assert(kPairP <= 3 && kPairQ <= 3, "a warp's fragments are 1, 3 or an even number each way");
#pragma unroll 1
  for (u32 segment = 0; segment < kSlice; segment += kSegment) {
#pragma unroll
    for (int i = 0; i < kFragsP; i += kPairP) {
#pragma unroll
      for (int j = 0; j < kFragsQ; j += kPairQ) {
        float part[kPairP][kPairQ][4] = {};
        const LaneAddresses pair = {a.p + segment + i * 16 * BLOCK_SIZE_K, a.q + segment + j * 8 * BLOCK_SIZE_K};
        multiply_steps<kSegment / 32>(part, pair);
#pragma unroll
        for (int r = 0; r < kPairP; ++r) {
#pragma unroll
          for (int c = 0; c < kPairQ; ++c) {
#pragma unroll
            for (int e = 0; e < 4; ++e) acc[i + r][j + c][e] += part[r][c][e];
          }
        }
      }
    }
  }
}

// kCount neighbouring channels of one token whose scale is sx: scaled, rounded and stored.
template <int kCount>
__device__ __forceinline__ void finish(const AdaMmaParams& p, i64 m, i64 n, float sx, const float (&sums)[kCount]) {
  float values[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = n + i < p.n ? scale_and_bias(sums[i], p.sw[n + i], sx, p.bias, n + i) : 0.0f;
  }
  store_outputs<OUT_TYPE, kCount>(p.y, m * p.y_stride + n, values, p.n - n, p.y_aligned != 0);
}

// The same for one block's sums: final outputs, or partial sums of this split. Rows m and channels n beyond the matrix are
// dropped.
template <int kCount>
__device__ __forceinline__ void emit(const AdaMmaParams& p, i64 m, i64 n, float sx, const float (&sums)[kCount]) {
  if (m >= p.m || n >= p.n) return;
  if constexpr (SPLIT_K > 1) {
    store_outputs<2, kCount>(p.partials, (blockIdx.z * p.m + m) * p.partial_stride + n, sums, kCount, true);
  } else {
    finish<kCount>(p, m, n, sx, sums);
  }
}

__device__ __forceinline__ float token_scale(const AdaMmaParams& p, i64 m) {
  return SPLIT_K == 1 && m < p.m ? load_relaxed_f32(p.sx + m) : 0.0f;
}

__device__ __forceinline__ void emit_direct(const AdaMmaParams& p, const float (&acc)[kFragsP][kFragsQ][4], u32 warp_p,
                                            u32 warp_q, i64 m0, i64 n0) {
  const u32 lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kFragsP; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i64 m = m0 + warp_p * kWarpP + i * 16 + half * 8 + lane / 4;
      const float sx = token_scale(p, m);
#pragma unroll
      for (int j = 0; j < kFragsQ; ++j) {
        const float pair[2] = {acc[i][j][half * 2], acc[i][j][half * 2 + 1]};
        emit<2>(p, m, n0 + warp_q * kWarpQ + j * 8 + lane % 4 * 2, sx, pair);
      }
    }
  }
}

// Every K group writes its sums to shared memory; then the block adds them in the order of the groups, four channels a
// thread.
__device__ __forceinline__ void emit_staged(const AdaMmaParams& p, const float (&acc)[kFragsP][kFragsQ][4], u32 warp_p,
                                            u32 warp_q, u32 warp_k, i64 m0, i64 n0) {
  float* stage = reinterpret_cast<float*>(ring);
  constexpr int kGroup = BLOCK_SIZE_M * kStagePitch;
  const u32 lane = threadIdx.x % 32;
  __syncthreads();  // The last buffers have been read.
#pragma unroll
  for (int i = 0; i < kFragsP; ++i) {
#pragma unroll
    for (int j = 0; j < kFragsQ; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u32 row_p = warp_p * kWarpP + i * 16 + half * 8 + lane / 4;
        const u32 row_q = warp_q * kWarpQ + j * 8 + lane % 4 * 2;
        float* group = stage + warp_k * kGroup;
        if constexpr (SWAP_AB) {
          group[row_q * kStagePitch + row_p] = acc[i][j][half * 2];
          group[(row_q + 1) * kStagePitch + row_p] = acc[i][j][half * 2 + 1];
        } else {
          *reinterpret_cast<float2*>(group + row_p * kStagePitch + row_q) =
              make_float2(acc[i][j][half * 2], acc[i][j][half * 2 + 1]);
        }
      }
    }
  }
  __syncthreads();
  constexpr int kQuads = BLOCK_SIZE_N / 4;
  for (u32 index = threadIdx.x; index < BLOCK_SIZE_M * kQuads; index += kThreads) {
    const u32 row = index / kQuads;
    const u32 column = index % kQuads * 4;
    float sums[4] = {};
#pragma unroll
    for (int group = 0; group < WARPS_K; ++group) {
      const float4 part = *reinterpret_cast<const float4*>(stage + group * kGroup + row * kStagePitch + column);
      sums[0] += part.x;
      sums[1] += part.y;
      sums[2] += part.z;
      sums[3] += part.w;
    }
    emit<4>(p, m0 + row, n0 + column, token_scale(p, m0 + row), sums);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1) octile_ada_mma(const AdaMmaParams p) {
  // Tiles in groups of GROUP_SIZE_M rows of tiles, down the rows first: blocks that run together share weight tiles in L2.
  const u32 tiles_m = static_cast<u32>((p.m + BLOCK_SIZE_M - 1) / BLOCK_SIZE_M);
  const u32 tiles_n = static_cast<u32>((p.n + BLOCK_SIZE_N - 1) / BLOCK_SIZE_N);
  const u32 group = blockIdx.x / (GROUP_SIZE_M * tiles_n);
  const u32 first_m = group * GROUP_SIZE_M;
  const u32 rows = min(tiles_m - first_m, static_cast<u32>(GROUP_SIZE_M));
  const u32 within = blockIdx.x - group * GROUP_SIZE_M * tiles_n;
  const i64 m0 = static_cast<i64>(first_m + within % rows) * BLOCK_SIZE_M;
  const i64 n0 = static_cast<i64>(within / rows) * BLOCK_SIZE_N;

  const u32 warp = threadIdx.x / 32;
  const u32 warp_p = warp % WARPS_P;
  const u32 warp_q = warp / WARPS_P % WARPS_Q;
  const u32 warp_k = warp / (WARPS_P * WARPS_Q);

  const u32 k = static_cast<u32>(p.k);
  const u32 steps = (k + BLOCK_SIZE_K - 1) / BLOCK_SIZE_K;
  const u32 first = SPLIT_K > 1 ? static_cast<u32>(static_cast<u64>(steps) * blockIdx.z / SPLIT_K) : 0;
  const u32 last = SPLIT_K > 1 ? static_cast<u32>(static_cast<u64>(steps) * (blockIdx.z + 1) / SPLIT_K) : steps;
  const u8* x = p.x + m0 * p.x_stride;
  const u8* w = p.w + n0 * p.w_stride;
  const u32 base = shared_address(ring);
  constexpr u32 kOffsetX = SWAP_AB ? kBytesP : 0;
  constexpr u32 kOffsetW = SWAP_AB ? 0 : kBytesP;
  auto request_x = [&](u32 step, u32 buffer) {
    request_tile<BLOCK_SIZE_M>(base + buffer * kBytesStage + kOffsetX, x, p.x_stride, p.m - m0, step * BLOCK_SIZE_K, k);
  };
  auto request_w = [&](u32 step, u32 buffer) {
    request_tile<BLOCK_SIZE_N>(base + buffer * kBytesStage + kOffsetW, w, p.w_stride, p.n - n0, step * BLOCK_SIZE_K, k);
  };

  launch_dependents();
  constexpr int kAhead = kBuffers > 1 ? kBuffers - 1 : 1;  // Steps requested before the first multiplication.
  if (p.prefetch_weights != 0) {
#pragma unroll
    for (int s = 0; s < kAhead; ++s) {
      if (first + s < last) request_w(first + s, s);
    }
  }
  dependency_wait();
#pragma unroll
  for (int s = 0; s < kAhead; ++s) {
    if (first + s < last) {
      if (p.prefetch_weights == 0) request_w(first + s, s);
      request_x(first + s, s);
    }
    cp_async_commit();
  }

  float acc[kFragsP][kFragsQ][4] = {};
  LaneAddresses lanes = lane_addresses(warp_p, warp_q, warp_k);
  lanes.p += base;
  lanes.q += base;
  u32 buffer = 0;
  for (u32 step = first; step < last; ++step) {
    cp_async_wait<(kBuffers > 1 ? kBuffers - 2 : 0)>();
    __syncthreads();  // Everybody's part of this step has arrived, and nobody reads the buffer of the step before.
    if constexpr (kBuffers > 1) {
      if (step + kAhead < last) {
        const u32 target = buffer == 0 ? kBuffers - 1 : buffer - 1;
        request_w(step + kAhead, target);
        request_x(step + kAhead, target);
      }
      cp_async_commit();
    }
    LaneAddresses here = lanes;
    here.p += buffer * kBytesStage;
    here.q += buffer * kBytesStage;
    if constexpr (kPromote) {
      multiply_precise(acc, here);
    } else {
      multiply_fast(acc, here);
    }
    if constexpr (kBuffers > 1) {
      buffer = buffer + 1 == kBuffers ? 0 : buffer + 1;
    } else if (step + 1 < last) {
      __syncthreads();
      request_w(step + 1, 0);
      request_x(step + 1, 0);
      cp_async_commit();
    }
  }
  cp_async_wait<0>();

  if constexpr (STAGED) {
    emit_staged(p, acc, warp_p, warp_q, warp_k, m0, n0);
  } else {
    emit_direct(p, acc, warp_p, warp_q, m0, n0);
  }
}

#if SPLIT_K > 1
// Adds the partial sums in the order of the splits and finishes: four channels a thread, one row of the grid a token block.
extern "C" __global__ void __launch_bounds__(256) octile_ada_mma_reduce(const AdaMmaParams p) {
  launch_dependents();
  dependency_wait();
  const i64 quads = p.partial_stride / 4;
  const i64 index = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= p.m * quads) return;
  const i64 m = index / quads;
  const i64 n = index % quads * 4;
  float sums[4] = {};
#pragma unroll
  for (int split = 0; split < SPLIT_K; ++split) {
    const float4 part = load_relaxed_f32x4(p.partials + (split * p.m + m) * p.partial_stride + n);
    sums[0] += part.x;
    sums[1] += part.y;
    sums[2] += part.z;
    sums[3] += part.w;
  }
  finish<4>(p, m, n, load_relaxed_f32(p.sx + m), sums);
}
#endif
