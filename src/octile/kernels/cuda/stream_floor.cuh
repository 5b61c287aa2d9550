// SPDX-License-Identifier: Apache-2.0
// Reads a weight once and does nothing else: the floor that a linear in decoding cannot beat.
//
// sm_90 and newer: one thread a block keeps a ring of `stages` bulk copies of `chunk_bytes` in flight, which streams at 4.6
// TB/s on an H200; older: 16-byte loads, UNROLL in flight a thread (4.3 TB/s there). The weight is requested before the
// dependency wait, as the kernels that are compared with it do.
//
// Define: UNROLL (16-byte loads in flight a thread, below sm_90).
#include "ptx.cuh"

struct StreamFloorParams {
  const u8* data;   // 16-byte aligned.
  u32* sink;        // [grid]: one word a block, so that no load can be dropped.
  i64 bytes;        // A multiple of 16.
  u32 chunk_bytes;  // A multiple of 16; stages * (chunk_bytes + 8) bytes of dynamic shared memory on sm_90.
  u32 stages;
};

#if __CUDA_ARCH__ >= 900
extern __shared__ __align__(128) u8 stream_ring[];

__device__ __forceinline__ void stream_request(const StreamFloorParams& p, i64 chunk, u32 slot, u32 barrier) {
  const i64 begin = chunk * p.chunk_bytes;
  const i64 left = p.bytes - begin;
  const u32 bytes = left < p.chunk_bytes ? static_cast<u32>(left) : p.chunk_bytes;
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(slot),
               "l"(p.data + begin), "r"(bytes), "r"(barrier)
               : "memory");
}

extern "C" __global__ void __launch_bounds__(32) octile_stream_floor(const StreamFloorParams p) {
  if (threadIdx.x != 0) return;
  const u32 ring = shared_address(stream_ring);
  const u32 barriers = ring + p.stages * p.chunk_bytes;
  for (u32 s = 0; s < p.stages; ++s)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * s) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  launch_dependents();
  const i64 chunks = (p.bytes + p.chunk_bytes - 1) / p.chunk_bytes;
  const i64 begin = chunks * blockIdx.x / gridDim.x;
  const i64 end = chunks * (blockIdx.x + 1) / gridDim.x;
  i64 requested = begin;
  for (u32 s = 0; s < p.stages && requested < end; ++s, ++requested) {
    stream_request(p, requested, ring + s * p.chunk_bytes, barriers + 8 * s);
  }
  dependency_wait();
  u32 sum = 0;
  u32 slot = 0;
  u32 phase = 0;
  for (i64 chunk = begin; chunk < end; ++chunk) {
    const u32 barrier = barriers + 8 * slot;
    asm volatile(
        "{\n.reg .pred done;\nagain_%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra "
        "again_%=;\n}\n" ::"r"(barrier),
        "r"(phase)
        : "memory");
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(ring + slot * p.chunk_bytes) : "memory");
    sum ^= word;
    if (requested < end) stream_request(p, requested++, ring + slot * p.chunk_bytes, barrier);
    if (++slot == p.stages) {
      slot = 0;
      phase ^= 1;
    }
  }
  p.sink[blockIdx.x] = sum;
}
#else
__device__ __forceinline__ uint4 stream_load(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

extern "C" __global__ void octile_stream_floor(const StreamFloorParams p) {
  const uint4* data = reinterpret_cast<const uint4*>(p.data);
  const i64 vectors = p.bytes / 16;
  const i64 stride = static_cast<i64>(gridDim.x) * blockDim.x;
  u32 sum = 0;
  for (i64 base = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; base < vectors; base += stride * UNROLL) {
    uint4 v[UNROLL];
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) {
      v[i] = base + i * stride < vectors ? stream_load(data + base + i * stride) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < UNROLL; ++i) sum ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  }
  // Practically one thread a block writes, but the compiler cannot know that another's loads are not needed.
  if (threadIdx.x == 0 || sum == 0x12345678u) p.sink[blockIdx.x] = sum;
}
#endif
