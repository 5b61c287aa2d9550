// SPDX-License-Identifier: Apache-2.0
// Part of hopper_wgmma.cuh, which includes it behind its constants: from a warpgroup's sums to y.
#pragma once

// (sum * sw) * sx + bias, in this order.
__device__ __forceinline__ float output_of(float sum, float sw, float sx, float bias, bool has_bias) {
  const float scaled = __fmul_rn(__fmul_rn(sum, sw), sx);
  return has_bias ? __fadd_rn(scaled, bias) : scaled;
}
__device__ __forceinline__ u32 packed(float first, float second) {
  return static_cast<u32>(Output<OUT_TYPE>::convert(first)) | static_cast<u32>(Output<OUT_TYPE>::convert(second)) << 16;
}

// A vector of outputs from shared memory to y: whole where that may be, else those inside.
__device__ __forceinline__ void store_vector(const HopperWgmmaParams& p, u32 source, i64 token, u32 channel) {
  using Element = typename Output<OUT_TYPE>::Element;
  union {
    uint4 vector;
    Element elements[kElementsOfVector];
  } values;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(values.vector.x), "=r"(values.vector.y), "=r"(values.vector.z), "=r"(values.vector.w)
               : "r"(source)
               : "memory");
  Element* const target = static_cast<Element*>(p.y) + token * p.y_stride + channel;
  if (p.y_aligned != 0 && channel + kElementsOfVector <= p.n) {
    *reinterpret_cast<uint4*>(target) = values.vector;
  } else {
#pragma unroll
    for (u32 e = 0; e < kElementsOfVector; ++e) {
      if (channel + e < p.n) target[e] = values.elements[e];
    }
  }
}

// A slab to y in vectors of 16 bytes: tokens from `token` on, channels from `channel` on, of the warpgroup's last tokens and
// channels `tokens` and `channels`.
__device__ __forceinline__ void store_slab(const HopperWgmmaParams& p, u32 slab, u32 token, u32 tokens, u32 channel,
                                           u32 channels) {
#pragma unroll
  for (u32 i = 0; i < kVectorsOfThread; ++i) {
    const u32 vector = threadIdx.x % 128 + 128 * i;
    const u32 row = vector / kVectorsOfToken;
    const u32 column = vector % kVectorsOfToken * kElementsOfVector;
    if (row < tokens && column < channels && token + row < p.m && channel + column < p.n) {
      store_vector(p, slab + row * kSlabPitch + vector % kVectorsOfToken * 16, token + row, channel + column);
    }
  }
}

// Sums to y, by a warpgroup: slab after slab is scaled, narrowed, brought into rows along the channels in shared memory, and
// stored. Thread t of warp w holds rows 16 w + t / 4 (+ 8) of each row block, of columns 8 j + 2 (t % 4) (+ 1).
//
// One barrier a slab suffices for two buffers: who writes slab i + 2 has passed the barrier of slab i + 1, and everyone who
// arrives there has read slab i. The first barrier holds the scales, and keeps the tile before's last slabs.
#if SWAP
__device__ __forceinline__ void write_outputs(const float (&sums)[kRowBlocks][kSums], const HopperWgmmaParams& p,
                                              u32 channel, u32 token, const float* scales, u32 slabs, u32 group) {
  const u32 lane = threadIdx.x % 32;
  const u32 warp_row = threadIdx.x % 128 / 32 * 16;
  group_barrier(group);
  float sx[kRowBlocks][2];
#pragma unroll
  for (u32 r = 0; r < kRowBlocks; ++r) {
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
      sx[r][half] = scales[2 * kGroupChannels + 64 * r + warp_row + 8 * half + lane / 4];
    }
  }
  const bool has_bias = p.bias != nullptr;
#pragma unroll
  for (u32 first = 0; first < kColumns; first += kSlabChannels) {
    const u32 slab = slabs + first / kSlabChannels % 2 * kSlabBytes;
#pragma unroll
    for (u32 j = 0; j < kSlabChannels / 8; j += 2) {  // Sixteen channels; of the last ones there may be eight.
      float2 sw[2];
      float2 bias[2];
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        const u32 at = first + 8 * (j + i) + lane % 4 * 2;
        const bool inside = first + 8 * (j + i) < kColumns;
        sw[i] = inside ? *reinterpret_cast<const float2*>(scales + at) : make_float2(0.0f, 0.0f);
        bias[i] = inside ? *reinterpret_cast<const float2*>(scales + kGroupChannels + at) : make_float2(0.0f, 0.0f);
      }
#pragma unroll
      for (u32 r = 0; r < kRowBlocks; ++r) {
        u32 matrices[4] = {0, 0, 0, 0};  // Of 8 tokens and 8 channels: the second tokens, then the second channels.
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
          if (first + 8 * (j + i) >= kColumns) continue;
#pragma unroll
          for (u32 half = 0; half < 2; ++half) {
            const float* const pair = &sums[r][(first / 8 + j + i) * 4 + 2 * half];
            const float left = output_of(pair[0], sw[i].x, sx[r][half], bias[i].x, has_bias);
            const float right = output_of(pair[1], sw[i].y, sx[r][half], bias[i].y, has_bias);
            if constexpr (OUT_TYPE == 2) {
              const u32 row = 64 * r + warp_row + 8 * half + lane / 4;
              asm volatile(
                  "st.shared.v2.f32 [%0], {%1, %2};" ::"r"(slab + row * kSlabPitch + (8 * (j + i) + lane % 4 * 2) * 4),
                  "f"(left), "f"(right)
                  : "memory");
            } else {
              matrices[2 * i + half] = packed(left, right);
            }
          }
        }
        if constexpr (OUT_TYPE != 2) {
          stmatrix_x4(slab + (64 * r + warp_row + lane / 8 % 2 * 8 + lane % 8) * kSlabPitch + (j + lane / 16) * 16,
                      matrices);
        }
      }
    }
    group_barrier(group);
    store_slab(p, slab, token, kSlabTokens, channel + first, kColumns - first);
  }
}
#else
__device__ __forceinline__ void write_outputs(const float (&sums)[kRowBlocks][kSums], const HopperWgmmaParams& p,
                                              u32 channel, u32 token, const float* scales, u32 slabs, u32 group) {
  const u32 lane = threadIdx.x % 32;
  const u32 warp_row = threadIdx.x % 128 / 32 * 16;
  group_barrier(group);
  float sw[kRowBlocks][2];
  float bias[kRowBlocks][2];
#pragma unroll
  for (u32 r = 0; r < kRowBlocks; ++r) {
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
      sw[r][half] = scales[64 * r + warp_row + 8 * half + lane / 4];
      bias[r][half] = scales[kGroupChannels + 64 * r + warp_row + 8 * half + lane / 4];
    }
  }
  const float* const sx = scales + 2 * kGroupChannels + lane % 4 * 2;
  const bool has_bias = p.bias != nullptr;
#pragma unroll
  for (u32 first = 0; first < kColumns; first += kSlabTokens) {
    const u32 slab = slabs + first / kSlabTokens % 2 * kSlabBytes;
#pragma unroll
    for (u32 r = 0; r < kRowBlocks; ++r) {
      u32 matrices[4] = {0, 0, 0, 0};  // Of 8 channels and 8 tokens: the second channels, then the second tokens.
#pragma unroll
      for (u32 j = 0; j < kSlabTokens / 8; ++j) {
        if (first + 8 * j >= kColumns) continue;  // The last slab may be half a one.
        const float2 scale = *reinterpret_cast<const float2*>(sx + first + 8 * j);
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
          const float* const pair = &sums[r][(first / 8 + j) * 4 + 2 * half];
          const float left = output_of(pair[0], sw[r][half], scale.x, bias[r][half], has_bias);
          const float right = output_of(pair[1], sw[r][half], scale.y, bias[r][half], has_bias);
          if constexpr (OUT_TYPE == 2) {
            const u32 at = slab + lane % 4 * 2 * kSlabPitch + (64 * r + warp_row + 8 * half + lane / 4) * 4;
            asm volatile("st.shared.f32 [%0], %1;\nst.shared.f32 [%2], %3;" ::"r"(at), "f"(left), "r"(at + kSlabPitch),
                         "f"(right)
                         : "memory");
          } else {
            matrices[2 * j + half] = packed(left, right);
          }
        }
      }
      if constexpr (OUT_TYPE != 2) {
        stmatrix_x4_transposed(slab + (lane / 16 * 8 + lane % 8) * kSlabPitch + (64 * r + warp_row + lane / 8 % 2 * 8) * 2,
                               matrices);
      }
    }
    group_barrier(group);
    store_slab(p, slab, token + first, kColumns - first, channel, kSlabChannels);
  }
}
#endif
