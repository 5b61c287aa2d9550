// SPDX-License-Identifier: Apache-2.0
// y[m, n] = (sum_k x[m, k] * w[n, k] * sw[n]) * sx[m] + bias[n] with wgmma on e4m3: the family `hopper_decode`, for few
// tokens.
//
// In decoding a linear costs reading its weights once. So the weights are the 64-row operand, the tokens the narrow one:
//
//                     K ->  SPLIT_K blocks of a cluster share a row tile's K
//   w [ 64 channels ][ 128 B ][ 128 B ] ...   one producer thread keeps STAGES x K_CHUNKS x 128 bytes of K in flight (TMA,
//   x [ TOKENS      ][ 128 B ][ 128 B ] ...   mbarriers), one warpgroup multiplies: 64 x TOKENS sums in registers
//
// The sums go to the block's own shared memory; after a cluster barrier every block adds its share of the tokens from all
// blocks of the cluster, in the order of their ranks, through distributed shared memory: no workspace, no atomics, the same
// bits every time. Rows beyond M and N and bytes beyond K arrive as zeros from TMA.
//
// Under programmatic dependent launch the weights are requested before the wait for the kernel that makes the codes, and so
// are the channels' scales. Limited by bytes in flight (ring x blocks an SM) and, on short linears, by the chain wait ->
// codes -> multiply -> reduce -> store.
//
// Defines: TOKENS (8..128, columns of one wgmma), K_CHUNKS (128-byte chunks of K a stage), STAGES, SPLIT_K (1, 2, 4, 8),
// PRECISE (0/1: sums promoted every 128 elements of K), OUT_TYPE (0 bf16, 1 fp16, 2 fp32).
#include "wgmma.cuh"

struct alignas(64) TensorMap {
  u64 opaque[16];
};

struct HopperDecodeParams {
  const float* sx;    // [m]
  const float* sw;    // [n rounded up to a multiple of 16], 16-byte aligned.
  const float* bias;  // [n] or nullptr.
  void* y;            // [m, n] of OUT_TYPE, row stride y_stride elements.
  i64 m;
  i64 n;
  i64 k;  // Below 2^31.
  i64 y_stride;
  u32 y_aligned;         // 1: base and row stride of y are multiples of 4 elements.
  u32 prefetch_weights;  // 1: the weights are not written by the kernel before this one.
};

static_assert(sizeof(HopperDecodeParams) == 72, "the host fills the same struct");

constexpr u32 kRows = 64;
constexpr u32 kConsumers = 128;
constexpr u32 kChunkBytes = 128;
constexpr u32 kBytesW = K_CHUNKS * kRows * kChunkBytes;
constexpr u32 kBytesX = K_CHUNKS * TOKENS * kChunkBytes;
constexpr u32 kBytesStage = kBytesW + kBytesX;
constexpr u32 kSums = TOKENS / 2;
constexpr u32 kStagePitch = kRows + 4;  // Floats a token in the staged sums; without bank conflicts.
constexpr u32 kQuads = TOKENS * kRows / 4;
constexpr u32 kQuadsOfRank = kQuads / SPLIT_K;

static_assert(STAGES <= 32, "a lane of the producing warp a stage");
static_assert(TOKENS % 8 == 0 && TOKENS % SPLIT_K == 0, "every block of a cluster finishes whole tokens");
static_assert(TOKENS * kStagePitch * 4 <= STAGES * kBytesStage, "the staged sums lie where the ring was");

extern __shared__ __align__(1024) u8 ring[];

__device__ __forceinline__ void barrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain_%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra "
      "again_%=;\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void request_box(u32 destination, const TensorMap& map, u32 k, u32 row, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          destination),
      "l"(&map), "r"(k), "r"(row), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ void consumers_barrier() { asm volatile("bar.sync 1, 128;" ::: "memory"); }
// Four floats at `address` of the shared memory of block `rank` of the cluster.
__device__ __forceinline__ float4 load_from_rank(u32 address, u32 rank) {
  float4 v;
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %4, %5;\nld.shared::cluster.v4.f32 {%0, %1, %2, %3}, "
      "[remote];\n}\n"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(address), "r"(rank)
      : "memory");
  return v;
}

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
  work.row = blockIdx.x / SPLIT_K * kRows;
  work.token = blockIdx.y * TOKENS;
  constexpr u32 kStageK = K_CHUNKS * kChunkBytes;
  const u32 stages = (static_cast<u32>(p.k) + kStageK - 1) / kStageK;
  work.begin = static_cast<u32>(static_cast<u64>(stages) * work.rank / SPLIT_K);
  work.end = static_cast<u32>(static_cast<u64>(stages) * (work.rank + 1) / SPLIT_K);
  return work;
}

// One thread: fills the ring. Chunks that begin beyond K are all zeros from TMA, too.
__device__ __forceinline__ void produce(const TensorMap& map_w, const TensorMap& map_x, const HopperDecodeParams& p,
                                        const Work& work, u32 base, u32 full, u32 empty) {
  const u32 stages = work.end - work.begin;
  const u32 ahead = min(stages, static_cast<u32>(STAGES));
  auto request_w = [&](u32 stage, u32 slot) {
#pragma unroll
    for (u32 c = 0; c < K_CHUNKS; ++c) {
      request_box(base + slot * kBytesStage + c * kRows * kChunkBytes, map_w,
                  ((work.begin + stage) * K_CHUNKS + c) * kChunkBytes, work.row, full + 8 * slot);
    }
  };
  auto request_x = [&](u32 stage, u32 slot) {
#pragma unroll
    for (u32 c = 0; c < K_CHUNKS; ++c) {
      request_box(base + slot * kBytesStage + kBytesW + c * TOKENS * kChunkBytes, map_x,
                  ((work.begin + stage) * K_CHUNKS + c) * kChunkBytes, work.token, full + 8 * slot);
    }
  };
  // With nothing to wait for, a stage's codes are requested beside its weights: behind those of the whole ring they would
  // keep the first multiplication waiting (1.3 us for 25 stages).
  const bool early = p.prefetch_weights != 0;
  if (!early) dependency_wait();
  for (u32 s = 0; s < ahead; ++s) {
    barrier_expect(full + 8 * s, kBytesStage);
    request_w(s, s);
    if (!early) request_x(s, s);
  }
  if (early) {
    dependency_wait();
    for (u32 s = 0; s < ahead; ++s) request_x(s, s);
  }
  u32 slot = 0;
  u32 parity = 0;
  for (u32 s = ahead; s < stages; ++s) {
    barrier_wait(empty + 8 * slot, parity);
    barrier_expect(full + 8 * slot, kBytesStage);
    request_w(s, slot);
    request_x(s, slot);
    if (++slot == STAGES) {
      slot = 0;
      parity ^= 1;
    }
  }
}

// The warpgroup: multiplies what arrives.
__device__ __forceinline__ void consume(float (&sums)[kSums], u32 stages, u32 base, u32 full, u32 empty) {
  u32 slot = 0;
  u32 parity = 0;
#pragma unroll
  for (u32 i = 0; i < kSums; ++i) sums[i] = 0.0f;
  for (u32 s = 0; s < stages; ++s) {
    barrier_wait(full + 8 * slot, parity);
    const u64 w = wgmma_descriptor(base + slot * kBytesStage);
    const u64 x = wgmma_descriptor(base + slot * kBytesStage + kBytesW);
#if PRECISE
#pragma unroll
    for (u32 c = 0; c < K_CHUNKS; ++c) {
      float part[kSums];
#pragma unroll
      for (u32 i = 0; i < kSums; ++i) part[i] = 0.0f;
      wgmma_fence();
#pragma unroll
      for (u32 step = 0; step < 4; ++step) {
        wgmma(part, w + c * (kRows * kChunkBytes >> 4) + 2 * step, x + c * (TOKENS * kChunkBytes >> 4) + 2 * step,
              step == 0 ? 0 : 1);
      }
      wgmma_commit();
      wgmma_wait(part);
#pragma unroll
      for (u32 i = 0; i < kSums; ++i) sums[i] += part[i];
    }
#else
    wgmma_fence();
#pragma unroll
    for (u32 c = 0; c < K_CHUNKS; ++c) {
#pragma unroll
      for (u32 step = 0; step < 4; ++step) {
        wgmma(sums, w + c * (kRows * kChunkBytes >> 4) + 2 * step, x + c * (TOKENS * kChunkBytes >> 4) + 2 * step, 1);
      }
    }
    wgmma_commit();
    wgmma_wait(sums);
#endif
    if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * slot);
    if (++slot == STAGES) {
      slot = 0;
      parity ^= 1;
    }
  }
}

// Sums to shared memory as [token][channel]; thread t of warp w holds channels 16 w + t / 4 (+ 8) of tokens 8 j + 2 (t % 4)
// (+ 1).
__device__ __forceinline__ void stage_sums(const float (&sums)[kSums], float* staged) {
  const u32 channel = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  const u32 token = threadIdx.x % 4 * 2;
#pragma unroll
  for (u32 j = 0; j < TOKENS / 8; ++j) {
    float* at = staged + (8 * j + token) * kStagePitch + channel;
    at[0] = sums[4 * j];
    at[kStagePitch] = sums[4 * j + 1];
    at[8] = sums[4 * j + 2];
    at[kStagePitch + 8] = sums[4 * j + 3];
  }
}

extern "C" __global__ void __launch_bounds__(kConsumers + 32, 1)
    octile_hopper_decode(const __grid_constant__ TensorMap map_w, const __grid_constant__ TensorMap map_x,
                         const HopperDecodeParams p) {
  const u32 base = shared_address(ring);
  const u32 full =
      base + STAGES * kBytesStage;  // Behind the ring: STAGES barriers "has arrived", then STAGES "has been read".
  const u32 empty = full + 8 * STAGES;
  const Work work = work_of(p);
  const bool producer = threadIdx.x >= kConsumers;
  if (threadIdx.x == kConsumers) {
    prefetch_map(map_w);
    prefetch_map(map_x);
  }
  if (const u32 s = threadIdx.x - kConsumers; producer && s < STAGES) {
    barrier_init(full + 8 * s, 1);
    barrier_init(empty + 8 * s, kConsumers / 32);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  launch_dependents();

  float4 sw = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const u32 channel = work.row + threadIdx.x % 16 * 4;  // Of this thread's outputs.
  const u32 first_quad = work.rank * kQuadsOfRank + threadIdx.x;
  constexpr u32 kMine = (kQuadsOfRank + kConsumers - 1) / kConsumers;
  float sx[kMine];
  if (producer) {
    if (threadIdx.x == kConsumers) produce(map_w, map_x, p, work, base, full, empty);
  } else {
    if (p.prefetch_weights == 0) dependency_wait();
    // The scales end at a multiple of 16 channels: a quad is whole or beyond them.
    if (channel < p.n) sw = *reinterpret_cast<const float4*>(p.sw + channel);
    dependency_wait();
#pragma unroll
    for (u32 i = 0; i < kMine; ++i) {
      const i64 token = work.token + (first_quad + i * kConsumers) / 16;
      sx[i] = token < p.m && threadIdx.x + i * kConsumers < kQuadsOfRank ? load_relaxed_f32(p.sx + token) : 0.0f;
    }
    float sums[kSums];
    consume(sums, work.end - work.begin, base, full, empty);
    consumers_barrier();  // All four warps have read the last stages.
    stage_sums(sums, reinterpret_cast<float*>(ring));
    if constexpr (SPLIT_K == 1) consumers_barrier();
  }
  if constexpr (SPLIT_K > 1) cluster_barrier();
  if (!producer) {
#pragma unroll
    for (u32 i = 0; i < kMine; ++i) {
      const u32 quad = first_quad + i * kConsumers;
      const i64 token = work.token + quad / 16;
      if (threadIdx.x + i * kConsumers < kQuadsOfRank && token < p.m && channel < p.n) {
        const u32 at = quad / 16 * kStagePitch + quad % 16 * 4;
        float4 total = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if constexpr (SPLIT_K == 1) {
          total = *reinterpret_cast<const float4*>(reinterpret_cast<const float*>(ring) + at);
        } else {
#pragma unroll
          for (u32 rank = 0; rank < SPLIT_K; ++rank) {
            const float4 part = load_from_rank(base + at * 4, rank);
            total = make_float4(total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w);
          }
        }
        const float accumulators[4] = {total.x, total.y, total.z, total.w};
        const float scales[4] = {sw.x, sw.y, sw.z, sw.w};
        float values[4];
#pragma unroll
        for (u32 e = 0; e < 4; ++e) {
          values[e] = channel + e < p.n ? scale_and_bias(accumulators[e], scales[e], sx[i], p.bias, channel + e) : 0.0f;
        }
        store_outputs<OUT_TYPE, 4>(p.y, token * p.y_stride + channel, values, p.n - channel, p.y_aligned != 0);
      }
    }
  }
  if constexpr (SPLIT_K > 1) cluster_barrier();  // Nobody leaves while another block may still read its sums.
}
