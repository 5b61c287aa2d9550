// SPDX-License-Identifier: Apache-2.0
// The C interface between Octile and liboctile_cutlass.so, the component that nvcc builds from CUTLASS's headers and that is
// opened at run time. Plain types only: the two sides come from different compilers, and no exception crosses.
#pragma once

#include <stdint.h>

// Raised whenever something below changes its meaning; a component of another number is refused. What is only appended is
// told by the structs' sizes.
#define OCTILE_CUTLASS_ABI 1

// The one exported symbol: const OctileCutlassApi* octile_cutlass_api().
#define OCTILE_CUTLASS_ENTRY "octile_cutlass_api"

#ifdef __cplusplus
extern "C" {
#endif

enum { OCTILE_CUTLASS_BF16 = 0, OCTILE_CUTLASS_FP16 = 1, OCTILE_CUTLASS_FP32 = 2 };

// How well the component's kernels fit a device.
enum {
  OCTILE_CUTLASS_NO_KERNELS = 0,
  OCTILE_CUTLASS_PTX_KERNELS = 1,    // The driver compiles PTX of an older architecture: right, but not made for the device.
  OCTILE_CUTLASS_NATIVE_KERNELS = 2  // Machine code of the device's architecture.
};

// One kernel, by its attributes.
typedef struct OctileCutlassConfig {
  uint32_t struct_bytes;
  int32_t tile_m, tile_n, tile_k;  // Of a block: tokens, output channels, elements of K a stage.
  int32_t warp_m, warp_n,
      warp_k;            // Of a warp. warp_k < tile_k: warps share out K, and their sums are added in a fixed order.
  int32_t stages;        // Of tile_k elements of K each.
  int32_t threads;       // Of a block.
  int32_t shared_bytes;  // Of a block, all dynamic.
  int32_t precise;       // Whether the kernel exists in the precise accumulation mode, too; in the fast one all do.
} OctileCutlassConfig;

// y[m, n] = round(((sum_k x[m, k] * w[n, k]) * scales_w[n]) * scales_x[m] + bias[n]) in fp32, rounded once. x and w are
// e4m3, row-major, at multiples of 16 bytes; K is a multiple of 16. y's rows need no alignment.
typedef struct OctileCutlassProduct {
  uint32_t struct_bytes;
  int32_t out;      // OCTILE_CUTLASS_BF16, ...
  int32_t precise;  // 0: the matrix unit accumulates over all of K. 1: its sums are added up in fp32 every tile_k elements.
  int64_t m, n, k;
  int64_t x_stride;       // Bytes between rows of x, a multiple of 16.
  int64_t w_stride;       // Bytes between rows of w, a multiple of 16.
  int64_t y_stride;       // Elements between rows of y.
  const void* x;          // Pointers are device pointers.
  const float* scales_x;  // [m]
  const void* w;
  const float* scales_w;  // [n]
  const float* bias;      // [n], or nullptr.
  void* y;
} OctileCutlassProduct;

// Functions that return int return 0, or a code that error_text() explains. All may be called from several threads at once,
// with the device's context current.
typedef struct OctileCutlassApi {
  int32_t abi;  // OCTILE_CUTLASS_ABI.
  uint32_t struct_bytes;
  const char* version;      // Of CUTLASS: "4.2.0".
  const char* source_hash;  // Of the component's own sources.
  int32_t config_count;
  const OctileCutlassConfig* (*config)(int32_t index);  // nullptr beyond config_count.
  // Which kind of kernels there is for a compute capability of 10 * major + minor.
  int (*kernels_for)(int32_t capability);
  // Loads the kernel on the current device, so that run() loads nothing.
  int (*prepare)(int32_t index, int32_t precise);
  // Whether run() takes the product; pointers are looked at for their alignment only.
  int (*can_run)(int32_t index, const OctileCutlassProduct* product);
  // Device bytes that run() needs, or a negative number where can_run() refuses. 256-byte aligned.
  int64_t (*workspace_bytes)(int32_t index, const OctileCutlassProduct* product);
  // Enqueues the product on a CUstream (nullptr: the legacy default stream). Allocates nothing.
  int (*run)(int32_t index, const OctileCutlassProduct* product, void* workspace, void* stream);
  const char* (*error_text)(int code);  // Never nullptr.
} OctileCutlassApi;

typedef const OctileCutlassApi* (*OctileCutlassEntry)();

#ifdef __cplusplus
}
#endif
