// SPDX-License-Identifier: Apache-2.0
// y[m, n] = round(acc[m, n] + bias[n]) from the vendor's fp32 result, for what cuBLASLt cannot write itself: an fp32 bias
// (it takes bf16 and fp16 only), N that is no multiple of 16, rows of y that do not start at multiples of 16 bytes. One
// rounding to the output type, at the end, as the contract asks. Memory-bound: 4 bytes read and 2 written an element.
//
// One thread an element, columns along x, rows along y in a grid-stride loop; 64-bit offsets.
//
// -DOUT=0 bf16, 1 fp16, 2 fp32.

typedef long long int64;

#if OUT == 2
typedef float Out;
__device__ __forceinline__ Out round_to_out(float value) { return value; }
#else
typedef unsigned short Out;
__device__ __forceinline__ Out round_to_out(float value) {
  Out bits;
#if OUT == 0
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#endif
  return bits;
}
#endif

extern "C" __global__ void octile_vendor_epilogue(const float* acc, int64 acc_stride, const float* bias, Out* y,
                                                  int64 y_stride, int64 m, int64 n) {
  const int64 col = int64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (col >= n) {
    return;
  }
  const float added = bias == nullptr ? 0.0f : bias[col];
  for (int64 row = blockIdx.y; row < m; row += gridDim.y) {
    const float value = acc[row * acc_stride + col];
    // Without a bias nothing is added: -0 + 0 would lose the sign of zero.
    y[row * y_stride + col] = round_to_out(bias == nullptr ? value : value + added);
  }
}
