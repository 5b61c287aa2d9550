// SPDX-License-Identifier: Apache-2.0
// What the blocks of a cluster do for each other (sm_90 and newer): loads that land in all of them, arrivals at another
// block's barrier. And the way a block's registers move from the warps that request to those that multiply.
#pragma once

#include "tma.cuh"

// request_box() into every block of `blocks` (one bit each), at the same offset of its shared memory; the bytes are counted
// by the barrier at the same offset there.
__device__ __forceinline__ void request_box_for(u32 destination, const TensorMap& map, u32 k, u32 row, u32 barrier,
                                                u16 blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], "
      "[%4], %5;" ::"r"(destination),
      "l"(&map), "r"(k), "r"(row), "r"(barrier), "h"(blocks)
      : "memory");
}
// request_slab_box() into every block of `blocks`, in the same way.
__device__ __forceinline__ void request_slab_box_for(u32 destination, const TensorMap& map, u32 group, u32 chunk, u32 slab,
                                                     u32 barrier, u16 blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(destination),
      "l"(&map), "r"(0), "r"(group), "r"(chunk), "r"(slab), "r"(barrier), "h"(blocks)
      : "memory");
}
// Arrives at the barrier at this offset of block `rank`'s shared memory, this block's own too: whoever waits for it may
// overwrite what this thread has read. Nothing written is published, so the scope stays the default one: with
// `.release.cluster` the compiler puts a fence of the whole GPU before each arrival (MEMBAR.ALL.GPU), which made kernels
// with an arrival a stage 1.2 to 3 times slower.
__device__ __forceinline__ void barrier_arrive_at(u32 barrier, u32 rank) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// All threads of the cluster are here: their barriers are initialised (behind fence.mbarrier_init), or their loads of
// others' shared memory have ended. Publishes no data, and needs no fence of the GPU.
__device__ __forceinline__ void cluster_meeting() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}
// Executed by all warps of a warpgroup. kRegisters: a multiple of 8 in 24..256.
template <int kRegisters>
__device__ __forceinline__ void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
// Four 8 x 8 matrices of 16-bit elements from registers to shared memory: lane i gives the address of row i % 8 of matrix
// i / 8 and holds, of each, the elements in rows 2 (i % 4) and 2 (i % 4) + 1 of column i / 4.
__device__ __forceinline__ void stmatrix_x4_transposed(u32 address, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}
// The same with, of each matrix, the elements in columns 2 (i % 4) and 2 (i % 4) + 1 of row i / 4.
__device__ __forceinline__ void stmatrix_x4(u32 address, const u32 (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}
