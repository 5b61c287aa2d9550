// SPDX-License-Identifier: Apache-2.0
// mbarriers, the copy engine's loads (TMA) and clusters of sm_90 and newer: named wrappers of their instructions.
#pragma once

#include "ptx.cuh"

struct alignas(64) TensorMap {
  u64 opaque[16];
};

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
// Of a weight in layout "slab64": the box of channels that begins with group `group` (of 8 channels) of slab `slab`, from
// chunk `chunk` of K on. It lies in memory as the swizzle would have put it; zeros beyond the last chunk and slab.
__device__ __forceinline__ void request_slab_box(u32 destination, const TensorMap& map, u32 group, u32 chunk, u32 slab,
                                                 u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::
          "r"(destination),
      "l"(&map), "r"(0), "r"(group), "r"(chunk), "r"(slab), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
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
