// SPDX-License-Identifier: Apache-2.0
// Named wrappers of the PTX instructions that the kernels use, and the conversions NVRTC has no header for.
//
// Memory that an earlier kernel of a programmatic dependent launch (PDL) chain wrote is read with ld.relaxed.gpu or cp.async
// only: a read-only load (ld.global.nc) may be hoisted by the compiler above griddepcontrol.wait, where the data is not
// there yet.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

static_assert(sizeof(i64) == 8 && sizeof(u32) == 4, "the kernels' integer types");

#if __CUDA_ARCH__ >= 900
#define OCTILE_HAS_PDL 1
#else
#define OCTILE_HAS_PDL 0
#endif

// Waits until every kernel before this one in a PDL chain has completed and its writes are visible; nothing elsewhere.
__device__ __forceinline__ void dependency_wait() {
#if OCTILE_HAS_PDL
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel of a PDL chain start; it still waits for this grid's completion before it reads what this grid wrote.
__device__ __forceinline__ void launch_dependents() {
#if OCTILE_HAS_PDL
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ u32 shared_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// 16 bytes from global to shared memory, of which the first `bytes` (0..16) are read and the rest become zero.
__device__ __forceinline__ void cp_async_16(u32 destination, const void* source, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(bytes) : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four (two) 8 x 16-byte matrices; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void ldmatrix_x4(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(u32& r0, u32& r1, u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r0), "=r"(r1) : "r"(address) : "memory");
}

// d[16 x 8] += a[16 x 32] . b[8 x 32]^T, e4m3 in, fp32 out. Native on sm_89 and sm_120; emulated by ptxas on sm_90 and
// sm_100.
__device__ __forceinline__ void mma_m16n8k32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// d[16 x 8] += a[16 x 16] . b[8 x 16]^T, fp16 in, fp32 out.
__device__ __forceinline__ void mma_m16n8k16_fp16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four e4m3 codes as fp16, exactly and with NaN as NaN: bits 0..15 to `low`, 16..31 to `high`.
__device__ __forceinline__ void e4m3x4_to_fp16(u32 codes, u32& low, u32& high) {
  asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %2;\n\tcvt.rn.f16x2.e4m3x2 %0, l;\n\tcvt.rn.f16x2.e4m3x2 %1, h;\n\t}"
      : "=r"(low), "=r"(high)
      : "r"(codes));
}

__device__ __forceinline__ float load_relaxed_f32(const float* p) {
  float v;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ float4 load_relaxed_f32x4(const float* p) {
  float4 v;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ __forceinline__ uint4 load_relaxed_u32x4(const void* p) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}
__device__ __forceinline__ u32 load_relaxed_u16(const void* p) {
  u16 v;
  asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ u32 load_relaxed_u8(const void* p) {
  u32 v;
  asm volatile("ld.relaxed.gpu.global.u8 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

// Rounds to nearest, ties to even; NaN stays NaN.
__device__ __forceinline__ u16 float_to_bf16(float v) {
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}
__device__ __forceinline__ u16 float_to_fp16(float v) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}
__device__ __forceinline__ float fp16_to_float(u16 bits) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(bits));
  return r;
}
// Two e4m3 codes, `low` in bits 0..7; saturates finite values and infinities at +-448, NaN becomes 0x7F.
__device__ __forceinline__ u32 floats_to_e4m3x2(float low, float high) {
  u16 r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
  return r;
}

// The output types of a product, as their number in the OUT_TYPE define.
template <int kOutType>
struct Output;
template <>
struct Output<0> {  // bf16
  using Element = u16;
  static __device__ __forceinline__ u16 convert(float v) { return float_to_bf16(v); }
};
template <>
struct Output<1> {  // fp16
  using Element = u16;
  static __device__ __forceinline__ u16 convert(float v) { return float_to_fp16(v); }
};
template <>
struct Output<2> {  // fp32
  using Element = float;
  static __device__ __forceinline__ float convert(float v) { return v; }
};
template <int kBytes>
struct VectorOf;
template <>
struct VectorOf<4> {
  using Type = u32;
};
template <>
struct VectorOf<8> {
  using Type = uint2;
};
template <>
struct VectorOf<16> {
  using Type = uint4;
};

// Writes kCount neighbouring outputs, as one store where `aligned` (base and row stride allow it) and all lie inside.
template <int kOutType, int kCount>
__device__ __forceinline__ void store_outputs(void* y, i64 offset, const float (&values)[kCount], i64 inside, bool aligned) {
  using Out = Output<kOutType>;
  using Element = typename Out::Element;
  using Vector = typename VectorOf<kCount * sizeof(Element)>::Type;
  union {
    Element elements[kCount];
    Vector vector;
  } packed;
#pragma unroll
  for (int i = 0; i < kCount; ++i) packed.elements[i] = Out::convert(values[i]);
  Element* target = static_cast<Element*>(y) + offset;
  if (aligned && inside >= kCount) {
    *reinterpret_cast<Vector*>(target) = packed.vector;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i < inside) target[i] = packed.elements[i];
    }
  }
}

// (acc * sw) * sx + bias, each step rounded to fp32: the contract's order, never contracted into an fma.
__device__ __forceinline__ float scale_and_bias(float accumulator, float sw, float sx, const float* bias, i64 n) {
  const float scaled = __fmul_rn(__fmul_rn(accumulator, sw), sx);
  return bias == nullptr ? scaled : __fadd_rn(scaled, bias[n]);
}
