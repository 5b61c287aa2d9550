// SPDX-License-Identifier: Apache-2.0
// Producers: (add +) RMSNorm and SwiGLU -> e4m3 codes and one fp32 scale a row, or y itself; the contract of
// quant/producers.h, whose bits RMSNorm has. silu() is computed with the hardware's exp2 and reciprocal: it lies within one
// place of the type of the CPU's. The quantisation has the bits of quant/quantize.h.
//
//   x [K] (+ residual) -> s -> sum of squares over the row -> y -> largest |y| over the row -> codes
//   gate, up [K]                                           -> y -> largest |y| over the row -> codes
//
// A row belongs to one block, or to the CLUSTER blocks of a cluster, which exchange sums and maxima through distributed
// shared memory: SwiGLU takes two special-function instructions an element, 0.8 us of one SM at K = 12288. Each exchange is
// a warp's shuffles, one barrier (of the block or the cluster) and shuffles again. The row lies in registers, KEPT 16-byte
// vectors a thread; KEPT = 0 is for rows that are longer, not aligned, or end within a vector: it reads them several times.
//
// Under programmatic dependent launch the next kernel may start at once, gamma (constant) is read before the wait, and all
// that other kernels may have written or may still read is touched after it. Limited by the latency of load -> exchange ->
// exchange -> store at few rows, by memory at many.
//
// Defines: KIND (0 RMSNorm, 1 SwiGLU), THREADS, CLUSTER (1, 2, 4, 8: blocks a row; above 1 from sm_90 on), KEPT (0..8),
// IN_TYPE (0 bf16, 1 fp16).
#include "quantise_row.cuh"

struct ProducerParams {
  const void* x;            // RMSNorm: [m, k]; SwiGLU: gate and up, [m, 2 k].
  const void* gamma;        // RMSNorm: [k rounded up to a multiple of 8], zero beyond k; 16-byte aligned.
  const void* residual_in;  // RMSNorm: [m, k], or nullptr for none.
  void* residual_out;       // [m, k]; may be residual_in or x.
  void* out;                // [m, k]: codes where there are scales, else y, which may be x.
  float* scales;            // [m], or nullptr for y.
  i64 x_stride;             // Elements between rows, as all strides.
  i64 residual_in_stride;
  i64 residual_out_stride;
  i64 out_stride;
  QuantiseRule rule;
  float epsilon;
  float inverse_k;  // round(1 / k)
  u32 k;            // Below 2^30. KEPT > 0: a multiple of 8, at most 8 * KEPT * threads of a row.
  // Read where KEPT = 0: whether a matrix and all its rows start at multiples of 16 bytes (SwiGLU: up as well; codes: 8).
  // Above 0 all do.
  u32 x_aligned;
  u32 residual_in_aligned;
  u32 residual_out_aligned;
  u32 out_aligned;
  u32 reserved;
};

static_assert(sizeof(ProducerParams) == 128, "the host fills the same struct");

constexpr u32 kBlockWarps = THREADS / 32;
constexpr u32 kRowThreads = CLUSTER * THREADS;
constexpr u32 kRowWarps = CLUSTER * kBlockWarps;
constexpr u32 kSlots = KEPT > 0 ? KEPT : 1;
static_assert(THREADS % 32 == 0, "whole warps");
static_assert(CLUSTER == 1 || OCTILE_HAS_PDL, "clusters begin with sm_90");

// The first element of each vector of thread q of the row: slots 0, 1, ... below slots_of(k).
#if KIND == 0
// 512 vectors are the 4096 positions of the contract. Its order of additions is bit 0, 1, ... of an index whose bits 0 and 1
// are bits 7 and 8 of the vector and whose bits 2 to 8 are bits 0 to 6: first the bits within a thread, then those of a
// warp's lanes, then warps and blocks; and a warp reads whole cache lines.
constexpr u32 kPeriod = 512;
constexpr u32 kLocal = kPeriod / kRowThreads;  // Vectors of one period that a thread has.
static_assert(kLocal * kRowThreads == kPeriod && kLocal <= 4, "128, 256 or 512 threads a row");
static_assert(KEPT % kLocal == 0, "whole periods are kept");
__device__ __forceinline__ u32 first_of(u32 q, u32 slot) {
  const u32 index = q * kLocal + slot % kLocal;
  return (slot / kLocal * kPeriod + ((index & 3) << 7 | index >> 2)) * kVectorElements;
}
__device__ __forceinline__ u32 slots_of(u32 k) {
  return (k + kPeriod * kVectorElements - 1) / (kPeriod * kVectorElements) * kLocal;
}
#else
__device__ __forceinline__ u32 first_of(u32 q, u32 slot) { return (slot * kRowThreads + q) * kVectorElements; }
__device__ __forceinline__ u32 slots_of(u32 k) {
  return (k + kRowThreads * kVectorElements - 1) / (kRowThreads * kVectorElements);
}
#endif

// Elements [first, first + 8) of a row, zero beyond k. `aligned` and the end of the row are looked at where KEPT = 0 only.
__device__ __forceinline__ uint4 load_vector(const u16* row, u32 first, u32 k, u32 aligned) {
  if (KEPT > 0 || (aligned != 0 && first + kVectorElements <= k)) return load_relaxed_u32x4(row + first);
  u32 words[4] = {0, 0, 0, 0};
#pragma unroll
  for (u32 i = 0; i < kVectorElements; ++i) {
    if (first + i < k) words[i / 2] |= load_relaxed_u16(row + first + i) << (16 * (i % 2));
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ __forceinline__ void store_vector(u16* row, u32 first, u32 k, const uint4& v, u32 aligned) {
  if (KEPT > 0 || (aligned != 0 && first + kVectorElements <= k)) {
    *reinterpret_cast<uint4*>(row + first) = v;
    return;
  }
  const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (u32 i = 0; i < kVectorElements; ++i) {
    if (first + i < k) row[first + i] = static_cast<u16>(words[i / 2] >> (16 * (i % 2)));
  }
}
__device__ __forceinline__ void store_codes(u8* row, u32 first, u32 k, uint2 codes, u32 aligned) {
  if (KEPT > 0 || (aligned != 0 && first + kVectorElements <= k)) {
    *reinterpret_cast<uint2*>(row + first) = codes;
    return;
  }
#pragma unroll
  for (u32 i = 0; i < kVectorElements; ++i) {
    if (first + i < k) row[first + i] = static_cast<u8>((i < 4 ? codes.x : codes.y) >> (8 * (i % 4)));
  }
}
// Of gamma, which no kernel of a chain writes: the one kind of data that may be read before the wait, and through the
// read-only path.
__device__ __forceinline__ uint4 load_constant(const u16* p) {
  uint4 v;
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

// Two values of the type, `low` in bits 0..15; rounded to nearest even.
__device__ __forceinline__ u32 pack_halves(float low, float high) {
  u32 r;
  if constexpr (IN_TYPE == 0) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  }
  return r;
}
// combine(a, b) of the pairs of two vectors.
template <class Combine>
__device__ __forceinline__ uint4 combine_pairs(const uint4& a, const uint4& b, const Combine& combine) {
  return make_uint4(combine(a.x, b.x), combine(a.y, b.y), combine(a.z, b.z), combine(a.w, b.w));
}

// The two halves of a barrier over the blocks of a row: what a block wrote to another's shared memory before the first is
// seen there after the second. Nothing where a row has one block.
__device__ __forceinline__ void row_arrive() {
#if CLUSTER > 1
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ __forceinline__ void row_wait() {
#if CLUSTER > 1
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// A value of every warp of the row to all its blocks: `value` is the same in every lane. `values` [kRowWarps] in shared
// memory is written once in a kernel. Precondition: every block of the cluster runs.
__device__ __forceinline__ void exchange(u32* values, u32 value, u32 rank) {
  u32* mine = values + rank * kBlockWarps + threadIdx.x / 32;
#if CLUSTER > 1
  if (threadIdx.x % 32 < CLUSTER) {
    asm volatile(
        "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\nst.shared::cluster.u32 [remote], %2;\n}" ::"r"(
            shared_address(mine)),
        "r"(threadIdx.x % 32), "r"(value)
        : "memory");
  }
  row_arrive();
  row_wait();
#else
  if (threadIdx.x % 32 == 0) *mine = value;
  __syncthreads();
#endif
}

__device__ __forceinline__ u32 row_maximum(u32* values, u32 largest, u32 rank) {
  largest = __reduce_max_sync(0xFFFFFFFFu, largest);
  if constexpr (kRowWarps > 1) {
    exchange(values, largest, rank);
    largest = 0;
#pragma unroll
    for (u32 warp = threadIdx.x % 32; warp < kRowWarps; warp += 32) largest = max(largest, values[warp]);
    largest = __reduce_max_sync(0xFFFFFFFFu, largest);
  }
  return largest;
}

struct Row {
  i64 index;
  u32 rank;  // Of the block within the row.
  u32 q;     // Of the thread within the row.
};
__device__ __forceinline__ Row row_of_block() {
  const u32 rank = blockIdx.x % CLUSTER;
  return {static_cast<i64>(blockIdx.x / CLUSTER), rank, rank * THREADS + threadIdx.x};
}

// use(first, y) for the vectors of y that the thread has: those in `kept`, or y_of(first) of each.
template <class YOf, class Use>
__device__ __forceinline__ void for_vectors(u32 q, u32 k, const uint4 (&kept)[kSlots], const YOf& y_of, const Use& use) {
  if constexpr (KEPT > 0) {
#pragma unroll
    for (u32 slot = 0; slot < kSlots; ++slot) {
      const u32 first = first_of(q, slot);
      if (first < k) use(first, kept[slot]);
    }
  } else {
#pragma unroll 1
    for (u32 slot = 0; slot < slots_of(k); ++slot) {
      const u32 first = first_of(q, slot);
      if (first < k) use(first, y_of(first));
    }
  }
}
// The same with its code once: `kept` moves up by one vector a turn.
template <class YOf, class Use>
__device__ __forceinline__ void for_vectors_in_turn(u32 q, u32 k, uint4 (&kept)[kSlots], const YOf& y_of, const Use& use) {
  if constexpr (KEPT > 0) {
#pragma unroll 1
    for (u32 slot = 0; slot < kSlots; ++slot) {
      const u32 first = first_of(q, slot);
      if (first < k) use(first, kept[0]);
#pragma unroll
      for (u32 i = 1; i < kSlots; ++i) kept[i - 1] = kept[i];
    }
  } else {
    for_vectors(q, k, kept, y_of, use);
  }
}

// Stores y, or its codes and scale. `maxima` [kRowWarps] in shared memory.
template <class YOf>
__device__ __forceinline__ void finish(const ProducerParams& p, const Row& row, uint4 (&kept)[kSlots], const YOf& y_of,
                                       u32* maxima) {
  if (p.scales == nullptr) {
    u16* y = static_cast<u16*>(p.out) + row.index * p.out_stride;
    for_vectors(row.q, p.k, kept, y_of, [&](u32 first, const uint4& v) { store_vector(y, first, p.k, v, p.out_aligned); });
    return;
  }
  u32 largest = 0;
  for_vectors(row.q, p.k, kept, y_of, [&](u32 /*first*/, const uint4& v) { largest = max(largest, largest_bits(v)); });
  const RowScale scale = row_scale(p.rule, row_maximum(maxima, largest, row.rank));
  if (row.q == 0) p.scales[row.index] = scale.scale;
  u8* codes = static_cast<u8*>(p.out) + row.index * p.out_stride;
  if (KEPT > 0 && scale.finite && scale.way == kStep) {
    for_vectors(row.q, p.k, kept, y_of,
                [&](u32 first, const uint4& v) { store_codes(codes, first, p.k, encode<true>(v, scale), p.out_aligned); });
    return;
  }
  for_vectors_in_turn(row.q, p.k, kept, y_of, [&](u32 first, const uint4& v) {
    const uint2 of_finite = encode<false>(v, scale);
    store_codes(codes, first, p.k, scale.finite ? of_finite : make_uint2(0x7F7F7F7Fu, 0x7F7F7F7Fu), p.out_aligned);
  });
}

#if KIND == 0

__device__ __forceinline__ uint4 add_rounded(const uint4& a, const uint4& b) {
  return combine_pairs(a, b, [](u32 x, u32 y) {
    return pack_halves(__fadd_rn(low_half(x), low_half(y)), __fadd_rn(high_half(x), high_half(y)));
  });
}
__device__ __forceinline__ uint4 normalise(const uint4& s, const uint4& gamma, float r) {
  return combine_pairs(s, gamma, [r](u32 x, u32 g) {
    const u32 n = pack_halves(__fmul_rn(low_half(x), r), __fmul_rn(high_half(x), r));
    return pack_halves(__fmul_rn(low_half(n), low_half(g)), __fmul_rn(high_half(n), high_half(g)));
  });
}
__device__ __forceinline__ void add_squares(float (&sums)[kVectorElements], const uint4& v) {
  const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float low = low_half(words[i]);
    const float high = high_half(words[i]);
    sums[2 * i] = __fadd_rn(sums[2 * i], __fmul_rn(low, low));
    sums[2 * i + 1] = __fadd_rn(sums[2 * i + 1], __fmul_rn(high, high));
  }
}
// A balanced tree over neighbours: of a power of two of values.
template <u32 kCount>
__device__ __forceinline__ float tree_sum(const float (&values)[kCount]) {
  float sums[kCount];
#pragma unroll
  for (u32 i = 0; i < kCount; ++i) sums[i] = values[i];
#pragma unroll
  for (u32 half = kCount / 2; half > 0; half /= 2) {
#pragma unroll
    for (u32 i = 0; i < half; ++i) sums[i] = __fadd_rn(sums[2 * i], sums[2 * i + 1]);
  }
  return sums[0];
}
// The same over `kCount` neighbouring lanes; both of a pair compute their sum.
template <u32 kCount>
__device__ __forceinline__ float lanes_sum(float value) {
#pragma unroll
  for (u32 bit = 1; bit < kCount; bit *= 2) value = __fadd_rn(value, __shfl_xor_sync(0xFFFFFFFFu, value, bit));
  return value;
}

extern "C" __global__ void __launch_bounds__(THREADS) octile_rms_norm(const ProducerParams p) {
  __shared__ u32 sums[kRowWarps];
  __shared__ u32 maxima[kRowWarps];
  // More would take registers from the rows in flight, which is what many rows are limited by.
  constexpr bool kGammaAhead = KEPT == 1 || KEPT == 2;
  launch_dependents();
  row_arrive();
  const Row row = row_of_block();
  const u16* gamma = static_cast<const u16*>(p.gamma);
  const auto gamma_of = [&](u32 slot) {
    const u32 first = first_of(row.q, slot);
    return first < p.k ? load_constant(gamma + first) : make_uint4(0, 0, 0, 0);
  };
  uint4 gammas[kSlots];
  if constexpr (kGammaAhead) {
#pragma unroll
    for (u32 slot = 0; slot < kSlots; ++slot) gammas[slot] = gamma_of(slot);
  }
  dependency_wait();

  const bool adds = p.residual_in != nullptr;
  const u16* x = static_cast<const u16*>(p.x) + row.index * p.x_stride;
  const u16* residual_in = static_cast<const u16*>(p.residual_in) + (adds ? row.index * p.residual_in_stride : 0);
  u16* residual_out = static_cast<u16*>(p.residual_out) + (adds ? row.index * p.residual_out_stride : 0);

  uint4 kept[kSlots];
  float partial[kLocal];
  if constexpr (KEPT > 0) {
#pragma unroll
    for (u32 slot = 0; slot < kSlots; ++slot) {
      const u32 first = first_of(row.q, slot);
      kept[slot] = first < p.k ? load_vector(x, first, p.k, p.x_aligned) : make_uint4(0, 0, 0, 0);
    }
    if (adds) {
      uint4 others[kSlots];
#pragma unroll
      for (u32 slot = 0; slot < kSlots; ++slot) {
        const u32 first = first_of(row.q, slot);
        others[slot] = first < p.k ? load_vector(residual_in, first, p.k, p.residual_in_aligned) : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (u32 slot = 0; slot < kSlots; ++slot) {
        const u32 first = first_of(row.q, slot);
        kept[slot] = add_rounded(kept[slot], others[slot]);
        if (first < p.k) store_vector(residual_out, first, p.k, kept[slot], p.residual_out_aligned);
      }
    }
#pragma unroll
    for (u32 local = 0; local < kLocal; ++local) {
      float squares[kVectorElements] = {};
#pragma unroll
      for (u32 slot = local; slot < kSlots; slot += kLocal) add_squares(squares, kept[slot]);
      partial[local] = tree_sum(squares);
    }
  } else {
#pragma unroll
    for (u32 local = 0; local < kLocal; ++local) {
      float squares[kVectorElements] = {};
#pragma unroll 1
      for (u32 slot = local; slot < slots_of(p.k); slot += kLocal) {
        const u32 first = first_of(row.q, slot);
        if (first >= p.k) continue;
        uint4 s = load_vector(x, first, p.k, p.x_aligned);
        if (adds) {
          s = add_rounded(s, load_vector(residual_in, first, p.k, p.residual_in_aligned));
          store_vector(residual_out, first, p.k, s, p.residual_out_aligned);
        }
        add_squares(squares, s);
      }
      partial[local] = tree_sum(squares);
    }
  }
  float sum = lanes_sum<32>(tree_sum(partial));
  row_wait();
  exchange(sums, __float_as_uint(sum), row.rank);
  sum = lanes_sum<kRowWarps>(__uint_as_float(sums[threadIdx.x % kRowWarps]));

  const float root = __fsqrt_rn(__fadd_rn(__fmul_rn(sum, p.inverse_k), p.epsilon));
  const float r = sum <= 3.402823466e38f ? __frcp_rn(root) : __uint_as_float(0x7FFFFFFFu);
  if constexpr (KEPT > 0) {
#pragma unroll
    for (u32 slot = 0; slot < kSlots; ++slot) {
      kept[slot] = normalise(kept[slot], kGammaAhead ? gammas[slot] : gamma_of(slot), r);
    }
  }
  // KEPT = 0: the sum is read again by the thread that wrote it.
  const u16* s = adds ? residual_out : x;
  const u32 s_aligned = adds ? p.residual_out_aligned : p.x_aligned;
  finish(
      p, row, kept,
      [&](u32 first) { return normalise(load_vector(s, first, p.k, s_aligned), load_constant(gamma + first), r); }, maxima);
}

#else

// g / (1 + exp(-g)) with the hardware's exp2 and reciprocal. Relative error below 2^-16; where |silu(g)| is below 2^-119 it
// may be 0.
__device__ __forceinline__ float silu(float g) {
  float e;
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(__fmul_rn(g, -1.442695041f)));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(__fadd_rn(1.0f, e)));
  return __fmul_rn(g, r);
}
__device__ __forceinline__ uint4 activate(const uint4& gate, const uint4& up) {
  return combine_pairs(gate, up, [](u32 g, u32 u) {
    const u32 a = pack_halves(silu(low_half(g)), silu(high_half(g)));
    return pack_halves(__fmul_rn(low_half(a), low_half(u)), __fmul_rn(high_half(a), high_half(u)));
  });
}

extern "C" __global__ void __launch_bounds__(THREADS) octile_swiglu(const ProducerParams p) {
  __shared__ u32 maxima[kRowWarps];
  launch_dependents();
  row_arrive();
  dependency_wait();

  const Row row = row_of_block();
  const u16* gate = static_cast<const u16*>(p.x) + row.index * p.x_stride;
  const u16* up = gate + p.k;
  uint4 kept[kSlots];
  if constexpr (KEPT > 0) {
    uint4 others[kSlots];
#pragma unroll
    for (u32 slot = 0; slot < kSlots; ++slot) {
      const u32 first = first_of(row.q, slot);
      kept[slot] = first < p.k ? load_vector(gate, first, p.k, p.x_aligned) : make_uint4(0, 0, 0, 0);
      others[slot] = first < p.k ? load_vector(up, first, p.k, p.x_aligned) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (u32 slot = 0; slot < kSlots; ++slot) kept[slot] = activate(kept[slot], others[slot]);
  }
  row_wait();
  finish(
      p, row, kept,
      [&](u32 first) {
        return activate(load_vector(gate, first, p.k, p.x_aligned), load_vector(up, first, p.k, p.x_aligned));
      },
      maxima);
}

#endif
