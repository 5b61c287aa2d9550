// SPDX-License-Identifier: Apache-2.0
// y[m, n] = (sum_k x[m, k] * w[n, k] * sw[n]) * sx[m] + bias[n] with wgmma on e4m3: the family `hopper_wgmma`, for many
// tokens.
//
// Here a linear costs multiplications, 4096 a clock an SM, and what feeds them. The channels are the 64-row operand, the
// tokens the other one, in steps of 8, so that M = 144 is one tile of 144:
//
//   block = producers + GROUPS warpgroups             ring of STAGES in shared memory
//     a thread for weights  -- TMA -->  [ w: BLOCK_SIZE_N x K ]   full  (both threads' bytes have landed)
//     a thread for codes    -- TMA -->  [ x: BLOCK_SIZE_M x K ]   empty (all readers have released it)
//     warpgroups            <- wgmma --  64 channels x BLOCK_SIZE_M tokens of sums a row block, in registers
//
// SWAP 1: the tokens are the 64-row operand, the channels the other one, in steps of 8: N = 6144 is 128 tiles of 48 or 43 of
// 144, which fill the SMs where tiles of 64 do not.
//
// together (PINGPONG 0): the warpgroups share a tile's rows. In turn (PINGPONG 1): each multiplies every GROUPS-th tile
// alone, and while one writes its outputs the next multiplies.
//
// A block takes tile after tile (grid = SMs at most), GROUP_SIZE_M token tiles for each tile of channels, so that what runs
// at the same time reads the same rows from L2. The blocks of a cluster take neighbouring tiles and each loads half of the
// operand that they share, for both (CLUSTER_M: two token tiles share the weights; CLUSTER_N: two channel tiles the codes).
// Rows beyond M and N and bytes beyond K arrive as zeros from TMA; nothing is stored there.
//
// Every sum is one chain along K in the order of hopper_decode without split and chains: the same bits.
//
// No role may count otherwise than the others, or the device hangs. So all of them walk the same loop: for_each_tile(), and
// in it stages_of() stages. What makes a wait end:
//   full[slot], round r:  its two requesting threads arrive once each in every round of the slot, and the bytes they expect
//     come from requests that they, and in a cluster their peers, make in round r of the same slot: peers walk the same
//     tiles. A peer's bytes may be counted before this block expects them; the round cannot end without this block's
//     arrivals.
//   empty[slot], round r: kReleases arrivals, one of each warp that reads the slot, in each block of the cluster. Such a
//   warp
//     releases a slot once in each round that is its own. It cannot arrive for round r + 1 before round r has ended, since
//     full[slot] of r + 1 needs the threads that wait for empty[slot] of round r, those of the peer too.
//   First round: a fresh barrier counts as having ended the round before (parity 1), so that producers need no special case.
//   A parity tells a round from the one before only. So nobody may wait for full[slot] of round r while round r - 1 is under
//     way, and a warpgroup that leaves out the tiles of others would: it begins its tile when the one that has the tile
//     before has seen all of that tile's stages land (await_turn(), pass_turn(); each has one arrival for one wait).
// A block leaves when its cluster has: nobody's arrival or bytes can come for one that is gone.
//
// Defines: BLOCK_SIZE_N (channels), BLOCK_SIZE_M (tokens), one of them 64..256 in steps of 64, the other 16..256 in steps of
// 8; SWAP (0: channels are the former, 1: tokens), SLAB (0/1: the weight's layout is row_major or slab64; the latter wants
// BLOCK_SIZE_N / CLUSTER_M in steps of 16), BLOCK_SIZE_K (128 or 256), STAGES, GROUPS (1..3), PINGPONG (0/1), CLUSTER_M,
// CLUSTER_N (1 or 2, one of them), PRECISE (0/1: sums promoted every 128 elements of K) with PIECES and PARTS (below),
// OUT_TYPE (0 bf16, 1 fp16, 2 fp32).
#include "cluster.cuh"
#include "tma.cuh"
#include "wgmma.cuh"
#include "wgmma_wide.cuh"

struct HopperWgmmaParams {
  const float* sx;    // [m]
  const float* sw;    // [n]
  const float* bias;  // [n] or nullptr.
  void* y;            // [m, n] of OUT_TYPE, row stride y_stride elements.
  i64 m;              // Below 2^31, as n and k are.
  i64 n;
  i64 k;
  i64 y_stride;
  u32 tiles_m;  // A cluster's tiles along tokens and channels.
  u32 tiles_n;
  u32 group_m;    // Of tiles_m, for each tile of channels.
  u32 early;      // Stages of weights requested before the wait for the kernel before.
  u32 y_aligned;  // 1: base and row stride of y are multiples of 16 bytes.
  u32 window;     // Stages of weights under way at most, 1..STAGES.
};

static_assert(sizeof(HopperWgmmaParams) == 88, "the host fills the same struct");

constexpr u32 kCluster = CLUSTER_M * CLUSTER_N;
constexpr u32 kConsumers = 128 * GROUPS;
// Registers move between whole warpgroups only; one multiplying warpgroup has enough without.
constexpr bool kMovesRegisters = GROUPS > 1;
constexpr u32 kProducers = kMovesRegisters ? 128 : 64;
constexpr u32 kProducerRegisters = GROUPS == 2 ? 40 : 32;
constexpr u32 kConsumerRegisters = GROUPS == 2 ? 232 : 160;
constexpr u32 kRows = SWAP ? BLOCK_SIZE_M : BLOCK_SIZE_N;         // Of the operand that comes by 64 rows;
constexpr u32 kColumns = SWAP ? BLOCK_SIZE_N : BLOCK_SIZE_M;      // of the other.
constexpr u32 kRowBlocks = kRows / 64 / (PINGPONG ? 1 : GROUPS);  // Of 64 rows, a warpgroup's.
constexpr u32 kGroupRows = 64 * kRowBlocks;
constexpr u32 kGroupChannels = SWAP ? BLOCK_SIZE_N : kGroupRows;
constexpr u32 kGroupTokens = SWAP ? kGroupRows : BLOCK_SIZE_M;
constexpr u32 kSums = kColumns / 2;  // A thread's, of a row block.
constexpr u32 kChunkBytes = 128;
constexpr u32 kChunks = BLOCK_SIZE_K / kChunkBytes;
constexpr u32 kChunkW = BLOCK_SIZE_N * kChunkBytes;
constexpr u32 kChunkX = BLOCK_SIZE_M * kChunkBytes;
constexpr u32 kBytesW = kChunks * kChunkW;
constexpr u32 kBytesX = kChunks * kChunkX;
constexpr u32 kBytesStage = kBytesW + kBytesX;
constexpr u32 kBytesRing = STAGES * kBytesStage;
// What a block itself requests: where CLUSTER_M (CLUSTER_N) blocks share an operand, its part for all of them.
constexpr u32 kRequestedW = BLOCK_SIZE_N / CLUSTER_M;
constexpr u32 kRequestedX = BLOCK_SIZE_M / CLUSTER_N;
// Rows of the weight's map. A box of a weight in slabs begins at a multiple of its rows, so that it lies in one slab.
constexpr u32 kBoxRowsW = SWAP && !SLAB ? kRequestedW : (kRequestedW % 64 == 0 ? 64 : (kRequestedW % 32 == 0 ? 32 : 16));
constexpr u32 kReleases = 4 * (PINGPONG ? 1 : GROUPS) * kCluster;

// Outputs on their way: two slabs of each warpgroup, all of its channels of some tokens, or 64 bytes of channels (whole
// sectors of memory) of all of its tokens.
constexpr u32 kOutBytes = OUT_TYPE == 2 ? 4 : 2;
constexpr u32 kElementsOfVector = 16 / kOutBytes;
constexpr u32 kSlabTokens = SWAP ? kGroupRows : (OUT_TYPE == 2 ? 8 : 16);
constexpr u32 kSlabChannels = SWAP ? 64 / kOutBytes : kGroupRows;
constexpr u32 kSlabPitch = kSlabChannels * kOutBytes + 16;  // Bytes a token; without bank conflicts.
constexpr u32 kSlabBytes = kSlabTokens * kSlabPitch;
constexpr u32 kVectorsOfToken = kSlabChannels / kElementsOfVector;
constexpr u32 kVectorsOfThread = kSlabTokens * kVectorsOfToken / 128;
// Channels' scales, biases, tokens' scales; floats of a warpgroup.
constexpr u32 kScales = 2 * kGroupChannels + kGroupTokens;

static_assert(kColumns % 8 == 0 && kColumns >= 16 && kColumns <= 256, "columns of one wgmma");
static_assert(kRowBlocks >= 1 && kRows == kGroupRows * (PINGPONG ? 1 : GROUPS), "whole row blocks a warpgroup");
static_assert(kCluster <= 2 && kRequestedX % 8 == 0 && kRequestedW % 8 == 0, "halves of whole swizzle atoms");
static_assert(kRequestedW % kBoxRowsW == 0, "whole boxes");
static_assert(kSlabTokens * kVectorsOfToken == 128 * kVectorsOfThread, "a slab is a few whole vectors a thread");

extern __shared__ __align__(1024) u8 ring_memory[];

struct Shared {
  u32 ring;   // STAGES stages: kChunks chunks of weights, then as many of codes.
  u32 full;   // STAGES barriers "has landed".
  u32 empty;  // STAGES barriers "has been read".
};

// A place in the ring and the parity of its round, for whoever waits for it to be filled.
struct Place {
  u32 slot = 0;
  u32 parity = 0;

  __device__ __forceinline__ void next() {
    if (++slot == STAGES) {
      slot = 0;
      parity ^= 1;
    }
  }
  // As `stages` times next().
  __device__ __forceinline__ void skip(u32 stages) {
    const u32 far = slot + stages;
    slot = far % STAGES;
    parity ^= (far / STAGES) & 1;
  }
};

struct Tile {
  u32 token;
  u32 channel;
  u32 turn;   // Of this block's tiles, from 0;
  bool last;  // the last of them.
};

__device__ __forceinline__ u32 rank_in_cluster() { return kCluster == 1 ? 0 : blockIdx.x % kCluster; }

__device__ __forceinline__ u32 stages_of(const HopperWgmmaParams& p) {
  return (static_cast<u32>(p.k) + BLOCK_SIZE_K - 1) / BLOCK_SIZE_K;
}

// The tiles of this block, in order. Blocks of a cluster have equally many; one that lies beyond M or N is all zeros.
template <class Body>
__device__ __forceinline__ void for_each_tile(const HopperWgmmaParams& p, const Body& body) {
  const u32 tiles = p.tiles_m * p.tiles_n;
  const u32 step = gridDim.x / kCluster;
  const u32 rank = rank_in_cluster();
  u32 turn = 0;
  for (u32 index = blockIdx.x / kCluster; index < tiles; index += step, ++turn) {
    const u32 group = index / (p.group_m * p.tiles_n);
    const u32 first = group * p.group_m;
    const u32 height = min(p.tiles_m - first, p.group_m);
    const u32 inside = index - first * p.tiles_n;
    const u32 tile_m = first + inside % height;
    const u32 tile_n = inside / height;
    body(Tile{(tile_m * CLUSTER_M + (CLUSTER_M == 2 ? rank : 0)) * BLOCK_SIZE_M,
              (tile_n * CLUSTER_N + (CLUSTER_N == 2 ? rank : 0)) * BLOCK_SIZE_N, turn, index + step >= tiles});
  }
}

// One request of a weight in slabs: for this block, or for both of a cluster.
__device__ __forceinline__ void request_of_slab(u32 destination, const TensorMap& map, u32 chunk, u32 row, u32 barrier) {
  if constexpr (CLUSTER_M == 2) {
    request_slab_box_for(destination, map, row % 64 / 8, chunk, row / 64, barrier, 3);
  } else {
    request_slab_box(destination, map, row % 64 / 8, chunk, row / 64, barrier);
  }
}

// One request: for this block, or for both of a cluster that share the operand.
template <bool kShared>
__device__ __forceinline__ void request(u32 destination, const TensorMap& map, u32 k, u32 row, u32 barrier) {
  if constexpr (kShared) {
    request_box_for(destination, map, k, row, barrier, 3);
  } else {
    request_box(destination, map, k, row, barrier);
  }
}

// One thread each for weights and codes: the weights of the first stages need not wait for the kernel that makes the codes.
//
// No more than `window` stages of weights are under way, as in hopper_decode.cuh: what is asked for beyond what keeps the
// memory busy only makes codes wait. Stage s is asked for when stage s - window has landed whole, codes too; its barrier
// cannot begin another round before this thread asks for it.
__device__ __forceinline__ void request_weights(const TensorMap& map, const HopperWgmmaParams& p, const Shared& shared) {
  const u32 part = CLUSTER_M == 2 ? rank_in_cluster() * kRequestedW : 0;
  const u32 stages = stages_of(p);
  u32 requested = 0;
  Place place;
  Place landing;
  for_each_tile(p, [&](const Tile& tile) {
    for (u32 s = 0; s < stages; ++s, ++requested) {
      if (requested == p.early) dependency_wait();
      if (requested >= p.window) {
        barrier_wait(shared.full + 8 * landing.slot, landing.parity);
        landing.next();
      }
      const u32 full = shared.full + 8 * place.slot;
      barrier_wait(shared.empty + 8 * place.slot, place.parity ^ 1);
      barrier_expect(full, kBytesW);
#pragma unroll
      for (u32 c = 0; c < kChunks; ++c) {
#pragma unroll
        for (u32 row = 0; row < kRequestedW; row += kBoxRowsW) {
          const u32 destination = shared.ring + place.slot * kBytesStage + c * kChunkW + (part + row) * kChunkBytes;
          if constexpr (SLAB) {
            request_of_slab(destination, map, s * kChunks + c, tile.channel + part + row, full);
          } else {
            request<CLUSTER_M == 2>(destination, map, (s * kChunks + c) * kChunkBytes, tile.channel + part + row, full);
          }
        }
      }
      place.next();
    }
  });
}
__device__ __forceinline__ void request_codes(const TensorMap& map, const HopperWgmmaParams& p, const Shared& shared) {
  const u32 part = CLUSTER_N == 2 ? rank_in_cluster() * kRequestedX : 0;
  const u32 stages = stages_of(p);
  Place place;
  for_each_tile(p, [&](const Tile& tile) {
    for (u32 s = 0; s < stages; ++s) {
      const u32 full = shared.full + 8 * place.slot;
      barrier_wait(shared.empty + 8 * place.slot, place.parity ^ 1);
      barrier_expect(full, kBytesX);
#pragma unroll
      for (u32 c = 0; c < kChunks; ++c) {
        request<CLUSTER_N == 2>(shared.ring + place.slot * kBytesStage + kBytesW + c * kChunkX + part * kChunkBytes, map,
                                (s * kChunks + c) * kChunkBytes, tile.token + part, full);
      }
      place.next();
    }
  });
}

// A warp has read a slot: says so to every block that may fill it.
__device__ __forceinline__ void release(const Shared& shared, u32 slot) {
  const u32 empty = shared.empty + 8 * slot;
  if constexpr (kCluster == 1) {
    if (threadIdx.x % 32 == 0) barrier_arrive(empty);
  } else {
    if (threadIdx.x % 32 < kCluster) barrier_arrive_at(empty, threadIdx.x % 32);
  }
}

// Of a tile's rows, the first that a warpgroup multiplies.
__device__ __forceinline__ u32 first_row_of(u32 group) { return PINGPONG ? 0 : group * kGroupRows; }

// Barriers of 128 threads of one warpgroup, and of two that follow each other.
__device__ __forceinline__ void group_barrier(u32 group) { asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); }
__device__ __forceinline__ void await_turn(u32 group) {
  asm volatile("bar.sync %0, 256;" ::"r"(1 + GROUPS + group) : "memory");
}
__device__ __forceinline__ void pass_turn(u32 group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(1 + GROUPS + (group + 1 == GROUPS ? 0 : group + 1)) : "memory");
}

// Of a slot of the ring, where this warpgroup's rows and the columns begin.
struct Operands {
  u64 rows;
  u64 columns;
};
__device__ __forceinline__ Operands operands_of(const Shared& shared, u32 slot, u32 group) {
  const u32 w = shared.ring + slot * kBytesStage;
  return {wgmma_descriptor((SWAP ? w + kBytesW : w) + first_row_of(group) * kChunkBytes),
          wgmma_descriptor(SWAP ? w : w + kBytesW)};
}
// What lies between two chunks of each, two row blocks, and steps of 32 elements; a descriptor counts 16 bytes.
constexpr u32 kNextRows = kRows * kChunkBytes >> 4;
constexpr u32 kNextColumns = kColumns * kChunkBytes >> 4;
constexpr u32 kNextBlock = 64 * kChunkBytes >> 4;
constexpr u32 kNextStep = 32 >> 4;

// A tile's sums. A slot is given back when its multiplications have ended; the next ones have been issued by then.
#if PRECISE
// A unit: 128 elements of K of one row block and one of PIECES pieces of the columns, multiplied into a set of sums of its
// own and then promoted, added to the tile's. With two such sets (PARTS 2) the stage's next unit is multiplied meanwhile;
// with one, or at a stage's end, other warpgroups multiply (ptxas keeps no multiplication under way across the loop's end
// while registers are read). A set is a piece large, which leaves registers for large tiles.
constexpr u32 kUnits = kChunks * kRowBlocks * PIECES;  // Of a stage.
constexpr u32 kPieceSums = kSums / PIECES;
static_assert(kPieceSums * PIECES == kSums && kPieceSums % 4 == 0, "whole instructions' columns a piece");
static_assert(PARTS == 1 || (PARTS == 2 && kUnits >= 2), "sets take turns within a stage");

__device__ __forceinline__ void begin_unit(float (&part)[kPieceSums], const Operands& operands, u32 unit) {
  const u32 piece = unit % PIECES;
  const u32 block = unit / PIECES % kRowBlocks;
  const u32 chunk = unit / PIECES / kRowBlocks;
  wgmma_fence();
#pragma unroll
  for (u32 step = 0; step < 4; ++step) {
    wgmma(part, operands.rows + chunk * kNextRows + block * kNextBlock + kNextStep * step,
          operands.columns + chunk * kNextColumns + piece * (kNextColumns / PIECES) + kNextStep * step, step == 0 ? 0 : 1);
  }
  wgmma_commit();
}
__device__ __forceinline__ void promote(float (&sums)[kRowBlocks][kSums], const float (&part)[kPieceSums], u32 unit) {
#pragma unroll
  for (u32 i = 0; i < kPieceSums; ++i) sums[unit / PIECES % kRowBlocks][unit % PIECES * kPieceSums + i] += part[i];
}

__device__ __forceinline__ void multiply(float (&sums)[kRowBlocks][kSums], u32 stages, const Tile& tile, u32 group,
                                         const Shared& shared, Place& place) {
  if (PINGPONG && tile.turn != 0) await_turn(group);
  float parts[PARTS][kPieceSums];
#pragma unroll
  for (u32 r = 0; r < kRowBlocks; ++r) {
#pragma unroll
    for (u32 i = 0; i < kSums; ++i) sums[r][i] = 0.0f;
  }
#pragma unroll
  for (u32 part = 0; part < PARTS; ++part) {
#pragma unroll
    for (u32 i = 0; i < kPieceSums; ++i) parts[part][i] = 0.0f;
  }
  for (u32 s = 0; s < stages; ++s) {
    barrier_wait(shared.full + 8 * place.slot, place.parity);
    const Operands operands = operands_of(shared, place.slot, group);
    if constexpr (PARTS == 2) begin_unit(parts[0], operands, 0);
#pragma unroll
    for (u32 unit = 0; unit < kUnits; ++unit) {
      if constexpr (PARTS == 1) begin_unit(parts[0], operands, unit);
      if (PARTS == 2 && unit + 1 < kUnits) {
        begin_unit(parts[(unit + 1) % PARTS], operands, unit + 1);
        wgmma_wait_for<1>(parts[unit % PARTS]);
      } else {
        wgmma_wait_for<0>(parts[unit % PARTS]);
      }
      if (unit + 1 == kUnits) release(shared, place.slot);
      promote(sums, parts[unit % PARTS], unit);
    }
    place.next();
  }
  if (PINGPONG && !tile.last) pass_turn(group);
}
#else
__device__ __forceinline__ void multiply(float (&sums)[kRowBlocks][kSums], u32 stages, const Tile& tile, u32 group,
                                         const Shared& shared, Place& place) {
  if (PINGPONG && tile.turn != 0) await_turn(group);
#pragma unroll
  for (u32 r = 0; r < kRowBlocks; ++r) {
#pragma unroll
    for (u32 i = 0; i < kSums; ++i) sums[r][i] = 0.0f;
  }
  u32 slot_before = 0;
  for (u32 s = 0; s < stages; ++s) {
    barrier_wait(shared.full + 8 * place.slot, place.parity);
    const Operands operands = operands_of(shared, place.slot, group);
    wgmma_fence();
#pragma unroll
    for (u32 c = 0; c < kChunks; ++c) {
#pragma unroll
      for (u32 step = 0; step < 4; ++step) {
#pragma unroll
        for (u32 r = 0; r < kRowBlocks; ++r) {
          wgmma(sums[r], operands.rows + c * kNextRows + r * kNextBlock + kNextStep * step,
                operands.columns + c * kNextColumns + kNextStep * step, 1);
        }
      }
    }
    wgmma_commit();
    wgmma_wait_all_but_last();
    if (s > 0) release(shared, slot_before);
    slot_before = place.slot;
    place.next();
  }
  if (PINGPONG && !tile.last) pass_turn(group);
#pragma unroll
  for (u32 r = 0; r < kRowBlocks; ++r) wgmma_wait_for<0>(sums[r]);
  release(shared, slot_before);
}
#endif

// The scales of a tile on their way from memory: asked for before its multiplications, needed behind them.
struct Scales {
  static constexpr u32 kOfChannels = (kGroupChannels + 127) / 128;
  static constexpr u32 kOfTokens = (kGroupTokens + 127) / 128;
  float channels[kOfChannels];
  float biases[kOfChannels];
  float tokens[kOfTokens];

  __device__ __forceinline__ void load(const HopperWgmmaParams& p, u32 channel, u32 token) {
    const u32 thread = threadIdx.x % 128;
#pragma unroll
    for (u32 i = 0; i < kOfChannels; ++i) {
      const u32 at = channel + thread + 128 * i;
      channels[i] = at < p.n ? p.sw[at] : 0.0f;
      biases[i] = p.bias != nullptr && at < p.n ? p.bias[at] : 0.0f;
    }
#pragma unroll
    for (u32 i = 0; i < kOfTokens; ++i) {
      const u32 at = token + thread + 128 * i;
      tokens[i] = at < p.m ? load_relaxed_f32(p.sx + at) : 0.0f;
    }
  }
  // To floats [kScales] of shared memory.
  __device__ __forceinline__ void store(float* scales) const {
    const u32 thread = threadIdx.x % 128;
#pragma unroll
    for (u32 i = 0; i < kOfChannels; ++i) {
      if (thread + 128 * i < kGroupChannels) {
        scales[thread + 128 * i] = channels[i];
        scales[kGroupChannels + thread + 128 * i] = biases[i];
      }
    }
#pragma unroll
    for (u32 i = 0; i < kOfTokens; ++i) {
      if (thread + 128 * i < kGroupTokens) scales[2 * kGroupChannels + thread + 128 * i] = tokens[i];
    }
  }
};

#include "hopper_wgmma_outputs.cuh"

extern "C" __global__ void __launch_bounds__(kConsumers + kProducers, 1)
    octile_hopper_wgmma(const __grid_constant__ TensorMap map_w, const __grid_constant__ TensorMap map_x,
                        const HopperWgmmaParams p) {
  launch_dependents();
  Shared shared;
  shared.ring = shared_address(ring_memory);
  const u32 slabs = shared.ring + kBytesRing;
  shared.full = slabs + GROUPS * 2 * kSlabBytes;
  shared.empty = shared.full + 8 * STAGES;
  float* const scales = reinterpret_cast<float*>(ring_memory + kBytesRing + GROUPS * 2 * kSlabBytes + 16 * STAGES);
  if (threadIdx.x == kConsumers) prefetch_map(map_w);
  if (threadIdx.x == kConsumers + 32) prefetch_map(map_x);
  if (threadIdx.x < STAGES) {
    barrier_init(shared.full + 8 * threadIdx.x, 2);
    barrier_init(shared.empty + 8 * threadIdx.x, kReleases);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if constexpr (kCluster == 1) {
    __syncthreads();
  } else {
    cluster_meeting();
  }

  if (threadIdx.x >= kConsumers) {
    if constexpr (kMovesRegisters) give_registers_back<kProducerRegisters>();
    if (threadIdx.x == kConsumers) {
      request_weights(map_w, p, shared);
    } else if (threadIdx.x == kConsumers + 32) {
      dependency_wait();
      request_codes(map_x, p, shared);
    }
  } else {
    if constexpr (kMovesRegisters) take_registers<kConsumerRegisters>();
    const u32 group = threadIdx.x / 128;
    // Of a tile, what this warpgroup multiplies begins there.
    const u32 first_channel = SWAP ? 0 : first_row_of(group);
    const u32 first_token = SWAP ? first_row_of(group) : 0;
    float* const group_scales = scales + group * kScales;
    const u32 group_slabs = slabs + group * 2 * kSlabBytes;
    const u32 stages = stages_of(p);
    Place place;
    dependency_wait();
    for_each_tile(p, [&](const Tile& tile) {
      if (PINGPONG && tile.turn % GROUPS != group) {
        place.skip(stages);
        return;
      }
      Scales loaded;
      loaded.load(p, tile.channel + first_channel, tile.token + first_token);
      float sums[kRowBlocks][kSums];
      multiply(sums, stages, tile, group, shared, place);
      loaded.store(group_scales);
      write_outputs(sums, p, tile.channel + first_channel, tile.token + first_token, group_scales, group_slabs, group);
    });
  }
  if constexpr (kCluster > 1) cluster_meeting();  // Arrivals and bytes for this block have come, or will not.
}
