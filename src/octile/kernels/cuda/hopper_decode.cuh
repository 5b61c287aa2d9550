// SPDX-License-Identifier: Apache-2.0
// y[m, n] = (sum_k x[m, k] * w[n, k] * sw[n]) * sx[m] + bias[n] with wgmma on e4m3: the family `hopper_decode`, for few
// tokens.
//
// In decoding a linear costs reading its weights once. So the weights are the 64-row operand, the tokens the narrow one:
//
//                     K ->  SPLIT_K blocks of a cluster share a row tile's K
//   w [ ROWS channels ][ 128 B ][ 128 B ] ...   one thread keeps up to STAGES x K_CHUNKS x 128 bytes of K under way (TMA,
//   x [ TOKENS        ][ 128 B ][ 128 B ] ...   mbarriers), a warpgroup a 64 channels multiplies: 64 x TOKENS sums each
//
// ROWS below 64 let a layer have a block for nearly every SM (qkv 48, o 32 of an H200's 132) without a split of K: the
// multiplication still takes 64 rows and reads what lies behind the block's own, which reaches no output; it has the time.
//
// The sums go to the block's own shared memory; after a cluster barrier every block adds its share of the tokens from all
// blocks of the cluster, in the order of their ranks, through distributed shared memory: no workspace, no atomics, the same
// bits every time. Rows beyond M and N and bytes beyond K arrive as zeros from TMA.
//
// Under programmatic dependent launch the weights are requested before the wait for the kernel that makes the codes, and so
// are the channels' scales. Limited by bytes in flight (ring x blocks an SM) and, on short linears, by the chain wait ->
// codes -> multiply -> reduce -> store.
//
// Defines: ROWS (32, 48 or 64..256 in steps of 64: channels of a block), TOKENS (8..128, columns of one wgmma), K_CHUNKS
// (128-byte chunks of K a stage), SLAB (0/1: the weight's layout is row_major or slab64), STAGES, SPLIT_K (1, 2, 4, 8),
// CHAINS (1, 2, 4: independent sums along K in fast mode), PRECISE (0/1: sums promoted every 128 elements of K), OUT_TYPE (0
// bf16, 1 fp16, 2 fp32).
#include "cluster.cuh"
#include "wgmma.cuh"

struct HopperDecodeParams {
  const float* sx;    // [m]
  const float* sw;    // [n rounded up to a multiple of 16], 16-byte aligned.
  const float* bias;  // [n] or nullptr.
  void* y;            // [m, n] of OUT_TYPE, row stride y_stride elements.
  i64 m;
  i64 n;
  i64 k;  // Below 2^31.
  i64 y_stride;
  u32 y_aligned;  // 1: base and row stride of y are multiples of 4 elements.
  u32 window;     // Stages of weights under way at most, 1..STAGES.
};

static_assert(sizeof(HopperDecodeParams) == 72, "the host fills the same struct");

constexpr u32 kGroups = SWAP ? TOKENS / 64 : (ROWS + 63) / 64;  // Multiplying warpgroups.
constexpr u32 kConsumers = 128 * kGroups;
constexpr u32 kWarps = kConsumers / 32;
constexpr u32 kChunkBytes = 128;
// Of the weight's tensor map. A box of a weight in slabs lies in one of them.
constexpr u32 kRowsOfRowMajorBox = ROWS < 64 ? ROWS : (ROWS == 96 ? 48 : 64);
constexpr u32 kRowsOfSlabBox = ROWS == 48 ? 16 : (ROWS % 64 == 0 ? 64 : 32);
constexpr u32 kRowsOfBox = SLAB ? kRowsOfSlabBox : kRowsOfRowMajorBox;
constexpr u32 kBoxes = ROWS / kRowsOfBox;
constexpr u32 kBoxW = kRowsOfBox * kChunkBytes;
constexpr u32 kBoxX = TOKENS * kChunkBytes;
constexpr u32 kBytesW = K_CHUNKS * kBoxes * kBoxW;
constexpr u32 kBytesStage = kBytesW + K_CHUNKS * kBoxX;
constexpr u32 kBytesRing = STAGES * kBytesStage;
// Of the ring: what the last multiplication reads too much.
constexpr u32 kBytesBehind = !SWAP && ROWS < 64 ? (64 - ROWS) * kChunkBytes : 0;
constexpr u32 kBarriers = (3 * STAGES + 1) / 2 * 2;  // Even, so that 16 bytes stay aligned behind them.
constexpr u32 kSums = SWAP ? ROWS / 2 : TOKENS / 2;
constexpr u32 kStagePitch = ROWS + 4;  // Floats a token in the staged sums; without bank conflicts.
constexpr u32 kQuadsOfToken = ROWS / 4;
constexpr u32 kQuadsOfRank = TOKENS * kQuadsOfToken / SPLIT_K;
// Few sums are stored by the threads that hold them, two bytes at a time, 0.1 to 0.2 us sooner than through shared memory;
// many small stores cost more than that.
constexpr bool kDirect = SPLIT_K == 1 && TOKENS == 8;
constexpr u32 kTokensOfThread = TOKENS / 4;

static_assert(ROWS == 32 || ROWS == 48 || ROWS == 96 || (ROWS % 64 == 0 && ROWS <= 256), "whole boxes of the weight's map");
static_assert(ROWS % kRowsOfBox == 0 && kBoxW % 1024 == 0, "a box begins where the swizzle does");
static_assert(SWAP ? TOKENS % 64 == 0 && ROWS <= 128 : ROWS != 96, "the 64-row operand is whole");
static_assert(CHAINS == 1 || CHAINS == 2 || CHAINS == 4, "a step of 32 elements of K belongs to one chain");
static_assert(STAGES >= 2 && STAGES <= 32, "a thread of the first warp a stage, and one read while the next arrives");
static_assert(TOKENS % 8 == 0 && TOKENS % SPLIT_K == 0, "every block of a cluster finishes whole tokens");
static_assert(TOKENS * kStagePitch * 4 <= kBytesRing, "the staged sums lie where the ring was");

extern __shared__ __align__(1024) u8 ring[];

__device__ __forceinline__ void consumers_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory"); }

struct Work {
  u32 row;    // First channel.
  u32 token;  // First token.
  u32 rank;   // Of the split.
  u32 begin;  // Stages [begin, end) of K.
  u32 end;
};

__device__ __forceinline__ Work work_of(const HopperDecodeParams& p) {
  Work work;
  work.rank = SPLIT_K > 1 ? blockIdx.x % SPLIT_K : 0;
  work.row = blockIdx.x / SPLIT_K * ROWS;
  work.token = blockIdx.y * TOKENS;
  constexpr u32 kStageK = K_CHUNKS * kChunkBytes;
  const u32 stages = (static_cast<u32>(p.k) + kStageK - 1) / kStageK;
  work.begin = static_cast<u32>(static_cast<u64>(stages) * work.rank / SPLIT_K);
  work.end = static_cast<u32>(static_cast<u64>(stages) * (work.rank + 1) / SPLIT_K);
  return work;
}

// Where the block's pieces lie in shared memory.
struct Shared {
  u32 base;    // The ring.
  u32 full_w;  // STAGES barriers "the weights have arrived".
  u32 full_x;  // STAGES barriers "the codes have arrived".
  u32 empty;   // STAGES barriers "has been read".
};

// One thread each for weights and codes, so that codes wait behind no request of weights. Chunks that begin beyond K are all
// zeros from TMA.
__device__ __forceinline__ void request_stage_of_weights(const TensorMap& map, const Work& work, const Shared& shared, u32 s,
                                                         u32 slot) {
  barrier_expect(shared.full_w + 8 * slot, kBytesW);
#if SLAB
  // A tile of one box asks for all of a stage's chunks at once.
  constexpr u32 kChunksOfBox = kBoxes == 1 ? K_CHUNKS : 1;
#pragma unroll
  for (u32 c = 0; c < K_CHUNKS; c += kChunksOfBox) {
#pragma unroll
    for (u32 b = 0; b < kBoxes; ++b) {
      const u32 row = work.row + kRowsOfBox * b;
      request_slab_box(shared.base + slot * kBytesStage + (c * kBoxes + b) * kBoxW, map, row % 64 / 8,
                       (work.begin + s) * K_CHUNKS + c, row / 64, shared.full_w + 8 * slot);
    }
  }
#else
#pragma unroll
  for (u32 c = 0; c < K_CHUNKS; ++c) {
#pragma unroll
    for (u32 b = 0; b < kBoxes; ++b) {
      request_box(shared.base + slot * kBytesStage + (c * kBoxes + b) * kBoxW, map,
                  ((work.begin + s) * K_CHUNKS + c) * kChunkBytes, work.row + kRowsOfBox * b, shared.full_w + 8 * slot);
    }
  }
#endif
}

// The weights from stage `s` on, of which there are none yet or a whole window under way.
//
// No more than `window` stages are under way: whatever a ring asks for beyond what keeps the memory busy (about 35 KB an SM)
// waits there, and with it whatever is asked later by anyone: rings of 200 KB made the quantiser's last store and the first
// codes 2 us late. The loops are not unrolled: less code to fetch at each launch won up to 1.5 %.
__device__ __forceinline__ void request_weights(const TensorMap& map, const HopperDecodeParams& p, const Work& work,
                                                const Shared& shared, u32 s) {
  const u32 stages = work.end - work.begin;
  u32 slot = s == STAGES ? 0 : s;
  u32 parity = s == STAGES ? 0 : 1;  // 1: of the round before the first, since the slots begin empty.
  u32 landing = 0;                   // The slot whose weights must have arrived before the next are asked for.
  u32 landing_parity = 0;
#pragma unroll 1
  for (; s < stages; ++s) {
    if (s >= p.window) {
      barrier_wait(shared.full_w + 8 * landing, landing_parity);
      if (++landing == STAGES) {
        landing = 0;
        landing_parity ^= 1;
      }
    }
    if (s >= STAGES) barrier_wait(shared.empty + 8 * slot, parity);
    request_stage_of_weights(map, work, shared, s, slot);
    if (++slot == STAGES) {
      slot = 0;
      parity ^= 1;
    }
  }
}
__device__ __forceinline__ void request_codes(const TensorMap& map, const Work& work, const Shared& shared) {
  const u32 stages = work.end - work.begin;
  u32 slot = 0;
  u32 parity = 1;
#pragma unroll 1
  for (u32 s = 0; s < stages; ++s) {
    if (s >= STAGES) barrier_wait(shared.empty + 8 * slot, parity);
    barrier_expect(shared.full_x + 8 * slot, K_CHUNKS * kBoxX);
#pragma unroll
    for (u32 c = 0; c < K_CHUNKS; ++c) {
      request_box(shared.base + slot * kBytesStage + kBytesW + c * kBoxX, map,
                  ((work.begin + s) * K_CHUNKS + c) * kChunkBytes, work.token, shared.full_x + 8 * slot);
    }
    if (++slot == STAGES) {
      slot = 0;
      parity ^= 1;
    }
  }
}

// The warpgroups: multiply what arrives. A multiplication waits for the one before it into the same sums (about 40 clocks
// with 8 tokens, of which the operands' way takes 16): so fast mode may alternate between CHAINS of them, which are added at
// the end, and precise mode begins a chunk before it promotes the last. A slot is given back when its multiplications have
// ended; the next ones have been issued by then.
__device__ __forceinline__ void consume(float (&sums)[kSums], u32 stages, const Shared& shared) {
  const u32 group = threadIdx.x / 128;
  u32 slot = 0;
  u32 parity = 0;
  // Sums of the chains, or of the chunk that runs and the one before it.
  constexpr u32 kParts = PRECISE ? 2 : CHAINS;
  float parts[kParts][kSums];
#pragma unroll
  for (u32 i = 0; i < kSums; ++i) {
    sums[i] = 0.0f;
#pragma unroll
    for (u32 part = 0; part < kParts; ++part) parts[part][i] = 0.0f;
  }
  for (u32 s = 0; s < stages; ++s) {
    barrier_wait(shared.full_x + 8 * slot, parity);
    barrier_wait(shared.full_w + 8 * slot, parity);
    // The operand of 64 rows, the other, and what lies between two chunks of each.
    const u32 w = shared.base + slot * kBytesStage;
    const u64 a = wgmma_descriptor(SWAP ? w + kBytesW + group * 64 * kChunkBytes : w + group * 64 * kChunkBytes);
    const u64 b = wgmma_descriptor(SWAP ? w : w + kBytesW);
    constexpr u32 kNextA = (SWAP ? kBoxX : kBoxes * kBoxW) >> 4;
    constexpr u32 kNextB = (SWAP ? kBoxes * kBoxW : kBoxX) >> 4;
#if PRECISE
#pragma unroll
    for (u32 c = 0; c < K_CHUNKS; ++c) {
      wgmma_fence();
#pragma unroll
      for (u32 step = 0; step < 4; ++step) {
        wgmma(parts[c % 2], a + c * kNextA + 2 * step, b + c * kNextB + 2 * step, step == 0 ? 0 : 1);
      }
      wgmma_commit();
      if (c > 0) {
        wgmma_wait_for<1>(parts[(c - 1) % 2]);
#pragma unroll
        for (u32 i = 0; i < kSums; ++i) sums[i] += parts[(c - 1) % 2][i];
      }
    }
    wgmma_wait_for<0>(parts[(K_CHUNKS - 1) % 2]);
#pragma unroll
    for (u32 i = 0; i < kSums; ++i) sums[i] += parts[(K_CHUNKS - 1) % 2][i];
    if (threadIdx.x % 32 == 0) barrier_arrive(shared.empty + 8 * slot);
#else
    wgmma_fence();
#pragma unroll
    for (u32 c = 0; c < K_CHUNKS; ++c) {
#pragma unroll
      for (u32 step = 0; step < 4; ++step) {
        wgmma(parts[step % CHAINS], a + c * kNextA + 2 * step, b + c * kNextB + 2 * step, 1);
      }
    }
    wgmma_commit();
    wgmma_wait_all_but_last();
    if (s > 0 && threadIdx.x % 32 == 0) barrier_arrive(shared.empty + 8 * (slot == 0 ? STAGES - 1 : slot - 1));
#endif
    if (++slot == STAGES) {
      slot = 0;
      parity ^= 1;
    }
  }
#if !PRECISE
#pragma unroll
  for (u32 part = 0; part < CHAINS; ++part) {
    wgmma_wait_for<0>(parts[part]);
#pragma unroll
    for (u32 i = 0; i < kSums; ++i) sums[i] = part == 0 ? parts[0][i] : sums[i] + parts[part][i];
  }
#endif
}

// The channel of a thread's first sums: thread t of warp w holds channels 16 w + t / 4 (+ 8) of tokens 8 j + 2 (t % 4) (+
// 1).
__device__ __forceinline__ u32 channel_of_thread() { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4; }
// The thread's token i of kTokensOfThread.
__device__ __forceinline__ u32 token_of_thread(u32 i) { return i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2; }

// Whether the thread's warp multiplies channels of the block, and not what lies behind fewer than 64.
__device__ __forceinline__ bool has_channels() { return ROWS >= 64 || channel_of_thread() < ROWS; }

// The scales of the sums that a thread holds: of its two channels, and of its tokens.
struct ThreadScales {
  float channels[2];
  float tokens[kTokensOfThread];
};
__device__ __forceinline__ void load_channel_scales(const HopperDecodeParams& p, const Work& work, ThreadScales& scales) {
#pragma unroll
  for (u32 half = 0; half < 2; ++half) {
    const u32 channel = work.row + channel_of_thread() + 8 * half;
    scales.channels[half] = has_channels() && channel < p.n ? p.sw[channel] : 0.0f;
  }
}
__device__ __forceinline__ void load_token_scales(const HopperDecodeParams& p, const Work& work, ThreadScales& scales) {
#pragma unroll
  for (u32 i = 0; i < kTokensOfThread; ++i) {
    const u32 token = work.token + token_of_thread(i);
    scales.tokens[i] = token < p.m ? load_relaxed_f32(p.sx + token) : 0.0f;
  }
}

// Sums to y from the registers that hold them.
__device__ __forceinline__ void store_sums(const HopperDecodeParams& p, const Work& work, const float (&sums)[kSums],
                                           const ThreadScales& scales) {
  if (!has_channels()) return;
#pragma unroll
  for (u32 i = 0; i < kTokensOfThread; ++i) {
    const i64 token = work.token + token_of_thread(i);
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
      const u32 channel = work.row + channel_of_thread() + 8 * half;
      if (token < p.m && channel < p.n) {
        const float value =
            scale_and_bias(sums[i / 2 * 4 + half * 2 + i % 2], scales.channels[half], scales.tokens[i], p.bias, channel);
        static_cast<Output<OUT_TYPE>::Element*>(p.y)[token * p.y_stride + channel] = Output<OUT_TYPE>::convert(value);
      }
    }
  }
}

// Sums to shared memory as [token][channel].
__device__ __forceinline__ void stage_sums(const float (&sums)[kSums], float* staged) {
#if SWAP
  // Thread t of warp w holds tokens 16 w + t / 4 (+ 8) of channels 8 j + 2 (t % 4) (+ 1).
  float* const at = staged + (threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) * kStagePitch + threadIdx.x % 4 * 2;
#pragma unroll
  for (u32 j = 0; j < ROWS / 8; ++j) {
    *reinterpret_cast<float2*>(at + 8 * j) = make_float2(sums[4 * j], sums[4 * j + 1]);
    *reinterpret_cast<float2*>(at + 8 * kStagePitch + 8 * j) = make_float2(sums[4 * j + 2], sums[4 * j + 3]);
  }
#else
  if (!has_channels()) return;
#pragma unroll
  for (u32 j = 0; j < TOKENS / 8; ++j) {
    float* const at = staged + (8 * j + token_of_thread(0)) * kStagePitch + channel_of_thread();
    at[0] = sums[4 * j];
    at[kStagePitch] = sums[4 * j + 1];
    at[8] = sums[4 * j + 2];
    at[kStagePitch + 8] = sums[4 * j + 3];
  }
#endif
}

extern "C" __global__ void __launch_bounds__(kConsumers + 64, 1)
    octile_hopper_decode(const __grid_constant__ TensorMap map_w, const __grid_constant__ TensorMap map_x,
                         const HopperDecodeParams p) {
  launch_dependents();
  const Work work = work_of(p);
  Shared shared;
  shared.base = shared_address(ring);
  shared.full_w = shared.base + kBytesRing + kBytesBehind;
  shared.full_x = shared.full_w + 8 * STAGES;
  shared.empty = shared.full_x + 8 * STAGES;
  float* const row_scales = reinterpret_cast<float*>(ring + kBytesRing + kBytesBehind + 8 * kBarriers);  // [ROWS]
  float* const token_scales = row_scales + ROWS;                                                         // [TOKENS]
  const bool requests = threadIdx.x >= kConsumers;
  u32 requested = 0;
  if (threadIdx.x == kConsumers) {
    // This thread alone asks for weights. With EARLY it does so before the others are there, 0.3 to 0.5 us sooner.
    for (u32 s = 0; s < STAGES; ++s) barrier_init(shared.full_w + 8 * s, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    if constexpr (EARLY) {
      const u32 window = min(work.end - work.begin, p.window);
#pragma unroll 1
      for (; requested < window; ++requested) request_stage_of_weights(map_w, work, shared, requested, requested);
    } else {
      prefetch_map(map_w);
    }
  }
  if (threadIdx.x == kConsumers + 32) prefetch_map(map_x);
  if (threadIdx.x < STAGES) {
    barrier_init(shared.full_x + 8 * threadIdx.x, 1);
    barrier_init(shared.empty + 8 * threadIdx.x, kWarps);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (requests) {
    if (threadIdx.x == kConsumers) {
      request_weights(map_w, p, work, shared, requested);
    } else if (threadIdx.x == kConsumers + 32) {
      dependency_wait();
      request_codes(map_x, work, shared);
    }
  } else if constexpr (kDirect) {
    ThreadScales scales;
    load_channel_scales(p, work, scales);
    dependency_wait();
    load_token_scales(p, work, scales);
    float sums[kSums];
    consume(sums, work.end - work.begin, shared);
    store_sums(p, work, sums, scales);
  } else {
    // The scales of the weight end at a multiple of 16 channels: a quad is whole or beyond them.
    if (threadIdx.x < kQuadsOfToken) {
      const u32 channel = work.row + threadIdx.x * 4;
      reinterpret_cast<float4*>(row_scales)[threadIdx.x] =
          channel < p.n ? *reinterpret_cast<const float4*>(p.sw + channel) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    dependency_wait();
    if (threadIdx.x < TOKENS) {
      token_scales[threadIdx.x] = work.token + threadIdx.x < p.m ? load_relaxed_f32(p.sx + work.token + threadIdx.x) : 0.0f;
    }
    float sums[kSums];
    consume(sums, work.end - work.begin, shared);
    consumers_barrier();  // All warps have read the last stages.
    stage_sums(sums, reinterpret_cast<float*>(ring));
    if constexpr (SPLIT_K == 1) consumers_barrier();
  }
  if constexpr (kDirect) return;
  if constexpr (SPLIT_K > 1) cluster_barrier();
  if (!requests) {
    for (u32 i = threadIdx.x; i < kQuadsOfRank; i += kConsumers) {
      const u32 quad = work.rank * kQuadsOfRank + i;
      const u32 row = quad % kQuadsOfToken * 4;
      const u32 channel = work.row + row;
      const i64 token = work.token + quad / kQuadsOfToken;
      if (token < p.m && channel < p.n) {
        const u32 at = quad / kQuadsOfToken * kStagePitch + row;
        float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if constexpr (SPLIT_K == 1) {
          total = *reinterpret_cast<const float4*>(reinterpret_cast<const float*>(ring) + at);
        } else {
#pragma unroll
          for (u32 rank = 0; rank < SPLIT_K; ++rank) {
            const float4 part = load_from_rank(shared.base + at * 4, rank);
            total = make_float4(total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w);
          }
        }
        const float accumulators[4] = {total.x, total.y, total.z, total.w};
        float values[4];
#pragma unroll
        for (u32 e = 0; e < 4; ++e) {
          values[e] = channel + e < p.n ? scale_and_bias(accumulators[e], row_scales[row + e],
                                                         token_scales[quad / kQuadsOfToken], p.bias, channel + e)
                                        : 0.0f;
        }
        store_outputs<OUT_TYPE, 4>(p.y, token * p.y_stride + channel, values, p.n - channel, p.y_aligned != 0);
      }
    }
  }
  if constexpr (SPLIT_K > 1) cluster_meeting();  // Nobody leaves while another block may still read its sums.
}
