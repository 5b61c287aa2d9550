// SPDX-License-Identifier: Apache-2.0
// The C interface between Octile and liboctile_onednn.so, the component that is built against the oneDNN found at build time
// and opened at run time. Plain types only: the two sides may come from different compilers, and no exception crosses.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Raised whenever anything below changes; a component of another number is refused.
#define OCTILE_ONEDNN_ABI 1

// The one exported symbol: const OctileOnednnApi* octile_onednn_api().
#define OCTILE_ONEDNN_ENTRY "octile_onednn_api"

// Elements of a weight that one thread decodes and packs in some ten microseconds: less than a wait for other threads takes.
#define OCTILE_ONEDNN_SMALL_WEIGHT 65536

#ifdef __cplusplus
extern "C" {
#endif

enum { OCTILE_ONEDNN_F32 = 0, OCTILE_ONEDNN_BF16 = 1 };

// Where a function that failed leaves its reason, always terminated.
typedef struct OctileOnednnError {
  char text[240];
} OctileOnednnError;

// y[m, n] f32 = x[m, k] * w[n, k]^T, x and w both of `dtype`, every matrix row-major and contiguous, on `threads` threads.
typedef struct OctileOnednnShape {
  int64_t m;
  int64_t n;
  int64_t k;
  int dtype;
  int threads;
} OctileOnednnShape;

typedef struct OctileOnednnWeight OctileOnednnWeight;
typedef struct OctileOnednnMatmul OctileOnednnMatmul;

// Functions that return int return 0, or another value with `error` filled in.
typedef struct OctileOnednnApi {
  int abi;              // OCTILE_ONEDNN_ABI.
  const char* version;  // Of the oneDNN that was loaded: "2.6.3".

  // Bytes of the packed weight of (n, k, dtype, threads); m is not looked at: one packed copy serves every m.
  int (*packed_bytes)(const OctileOnednnShape* shape, int64_t* bytes, OctileOnednnError* error);
  // Packs w[n, k] of `dtype` into `packed`, 64-byte aligned, which must live as long as the weight. A weight may be read by
  // any number of threads at once.
  int (*pack)(const OctileOnednnShape* shape, const void* w, void* packed, OctileOnednnWeight** weight,
              OctileOnednnError* error);
  void (*destroy_weight)(OctileOnednnWeight* weight);

  // Creates the primitive for exactly shape->m rows (tens of microseconds to milliseconds: it is compiled).
  int (*create)(const OctileOnednnShape* shape, OctileOnednnMatmul** matmul, OctileOnednnError* error);
  void (*destroy)(OctileOnednnMatmul* matmul);
  int64_t (*scratchpad_bytes)(const OctileOnednnMatmul* matmul);
  // oneDNN's name of what it chose: "brg:avx512_core_bf16".
  const char* (*implementation)(const OctileOnednnMatmul* matmul);
  // One call at a time for each matmul. `scratchpad` is 64-byte aligned.
  int (*execute)(OctileOnednnMatmul* matmul, const void* x, const OctileOnednnWeight* weight, float* y, void* scratchpad,
                 OctileOnednnError* error);

  // Calls work(context, thread) once on each of `threads` OpenMP threads, the ones that oneDNN itself runs on; fewer where
  // OpenMP gives fewer. Returns how many calls there were.
  int (*parallel)(int threads, void (*work)(void* context, int thread), void* context);
  // Ends the calling thread's OpenMP threads; the next use starts new ones.
  void (*release_threads)();
} OctileOnednnApi;

typedef const OctileOnednnApi* (*OctileOnednnEntry)();

#ifdef __cplusplus
}
#endif
