/* SPDX-License-Identifier: Apache-2.0 */
/* Octile's public C interface (C99): everything the C++ interface has.
 *
 * Conventions
 * - Every structure starts with `struct_size`, which the caller sets to sizeof of that structure; a library that is newer
 *   than the caller's header reads only what the caller has. A size that this library does not know is refused.
 * - A structure filled with zeros, but for struct_size and the shapes and pointers, asks for the documented defaults.
 * - Functions return OCTILE_OK or what went wrong; octile_last_error() then says, for the calling thread, what was wanted
 *   and what came. Nothing aborts and no C++ exception leaves the library.
 * - Strings handed out by a char** are freed with octile_string_free().
 */
#ifndef OCTILE_OCTILE_H
#define OCTILE_OCTILE_H

#include <octile/export.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum octile_status_value {
  OCTILE_OK = 0,
  OCTILE_INVALID_ARGUMENT = 1, /* The caller passed something that can never work. */
  OCTILE_UNAVAILABLE = 2,      /* The device, instruction set or library for it is missing here. */
  OCTILE_NOT_PREPARED = 3,     /* octile_linear_run() before octile_linear_prepare(). */
  OCTILE_IO = 4,
  OCTILE_CORRUPT = 5,
  OCTILE_FAILED = 6, /* The work was started and did not succeed. */
  OCTILE_OUT_OF_MEMORY = 7
};
typedef int32_t octile_status;

/* Values of the fields below; the fields are int32_t, so that their size is one everywhere. 0 is the field's default. */
enum octile_dtype {
  OCTILE_DTYPE_DEFAULT = 0,
  OCTILE_BF16 = 1,
  OCTILE_FP16 = 2,
  OCTILE_FP32 = 3,
  OCTILE_E4M3 = 4,    /* OCP E4M3FN. */
  OCTILE_E4M3FNUZ = 5 /* Known by name only: refused. */
};
enum octile_accumulate { OCTILE_ACCUMULATE_DEFAULT = 0, OCTILE_ACCUMULATE_FAST = 1, OCTILE_ACCUMULATE_PRECISE = 2 };
enum octile_numerics { OCTILE_NUMERICS_DETERMINISTIC = 0, OCTILE_NUMERICS_BASELINE = 1 };
enum octile_pdl { OCTILE_PDL_DEFAULT = 0 /* full */, OCTILE_PDL_OFF = 1, OCTILE_PDL_CONSUME = 2, OCTILE_PDL_FULL = 3 };
/* How a weight's codes lie on a GPU: WeightLayout of octile/types.hpp. */
enum octile_layout { OCTILE_LAYOUT_AUTOMATIC = 0, OCTILE_LAYOUT_ROW_MAJOR = 1, OCTILE_LAYOUT_SLAB64 = 2 };
enum octile_activation {
  OCTILE_DYNAMIC_PER_TOKEN = 0, /* bf16/fp16 rows, quantised with one scale each. */
  OCTILE_STATIC_PER_TENSOR = 1, /* bf16/fp16 rows, quantised with the given scale. */
  OCTILE_QUANTIZED = 2          /* e4m3 codes with one fp32 scale a row: octile_linear_run_quantized(). */
};
enum octile_division { OCTILE_DIVISION_EXACT = 0, OCTILE_DIVISION_RECIPROCAL = 1 };

typedef struct octile_weight octile_weight;     /* A weight packed for one device. */
typedef struct octile_linear octile_linear;     /* A linear layer ready to run. */
typedef struct octile_producer octile_producer; /* RMSNorm or SwiGLU in front of a linear, with its quantisation. */

/* Weights as a checkpoint holds them, in host memory: row-major e4m3 codes [n, k] and one scale a row (scale_count = n) or
 * one for all (scale_count = 1). Scales are finite and > 0, or 0 for a row of zero codes. */
typedef struct octile_weight_source {
  size_t struct_size;
  int64_t n;
  int64_t k;
  const void* codes;
  int64_t row_stride; /* Elements between rows; 0: k. */
  const void* scales;
  int64_t scale_count;
  int32_t code_dtype;  /* Default: OCTILE_E4M3. */
  int32_t scale_dtype; /* OCTILE_FP32 (default), OCTILE_BF16 or OCTILE_FP16; widened exactly. */
} octile_weight_source;

typedef struct octile_weight_options {
  size_t struct_size;
  const char* device;      /* "cpu" (also NULL), "cuda:0": an id of octile_devices(). */
  const char* tables;      /* Table directories, ':' between them, searched before OCTILE_TABLE_PATH; NULL: none. */
  int32_t out_dtype;       /* OCTILE_BF16 (default), OCTILE_FP16 or OCTILE_FP32. */
  int32_t accumulate;      /* enum octile_accumulate. */
  int32_t numerics;        /* enum octile_numerics. */
  int32_t batch_invariant; /* 0 or 1: a row's bits depend neither on M nor on the other rows. */
  int32_t pdl;             /* enum octile_pdl. */
  int32_t reserved;        /* Not read. */
  int32_t layout;          /* enum octile_layout. */
} octile_weight_options;

/* scale = min(max(amax, floor), upper_bound) / 448, codes = e4m3_saturate(x / scale). */
typedef struct octile_quantize_options {
  size_t struct_size;
  float floor;       /* >= 448 * 2^-126; 0: that. */
  float upper_bound; /* >= floor; 0: none. */
  int32_t division;  /* enum octile_division. */
} octile_quantize_options;

typedef struct octile_linear_options {
  size_t struct_size;
  int32_t activation;                      /* enum octile_activation. */
  float static_scale;                      /* For OCTILE_STATIC_PER_TENSOR: finite and > 0; else 0. */
  const octile_quantize_options* quantize; /* For OCTILE_DYNAMIC_PER_TOKEN; NULL: the defaults. */
  const void* bias;                        /* [n], copied; NULL: none. */
  int32_t x_dtype;                         /* OCTILE_BF16 (default) or OCTILE_FP16. */
  int32_t bias_dtype;                      /* OCTILE_FP32 (default), OCTILE_BF16 or OCTILE_FP16. */
  int32_t allow_capture_fallback;          /* 1: run before prepare is no error and goes in chunks of 64 rows. */
  int32_t reserved;                        /* Not read. */
  int32_t behind_producer; /* 1: codes come from an octile_producer enqueued directly before, behind which the product may
                            * start early with OCTILE_PDL_CONSUME, too. */
  int32_t reserved_2;      /* Not read. */
  int32_t max_sms; /* The product keeps to at most so many multiprocessors of a GPU; 0: no limit. An error on a CPU and
                    * beyond what the device has. */
} octile_linear_options;

/* Element (r, c) lies at data + (r * row_stride + c) * element size. row_stride >= cols; 0: cols. */
typedef struct octile_const_matrix {
  size_t struct_size;
  const void* data;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
  int32_t dtype; /* Must be given. */
} octile_const_matrix;
typedef struct octile_matrix {
  size_t struct_size;
  void* data;
  int64_t rows;
  int64_t cols;
  int64_t row_stride;
  int32_t dtype; /* Must be given. */
} octile_matrix;

/* "0.1.0". */
OCTILE_API const char* octile_version(void);
/* "ok", "invalid_argument", ...; "unknown" for a value that is no status. */
OCTILE_API const char* octile_status_name(octile_status status);
/* Message of the last call of this thread that failed; "" before any. Valid until this thread's next failing call. */
OCTILE_API const char* octile_last_error(void);
OCTILE_API void octile_string_free(char* text); /* NULL is fine. */

/* *json: every device, as `octile devices --json` prints it. */
OCTILE_API octile_status octile_devices(char** json);

/* Packs `source`, which may be freed afterwards. `options` NULL: the defaults. */
OCTILE_API octile_status octile_weight_create(const octile_weight_source* source, const octile_weight_options* options,
                                              octile_weight** weight);
OCTILE_API void octile_weight_destroy(octile_weight* weight); /* NULL is fine; linears made of it live on. */
/* Overwrites codes and scales in place, ordered on `stream` (a CUDA stream): same address, same layout. The next run of each
   linear starts nothing before that has ended. `source` has the weight's shape and lies in the host's memory, which may be
   freed afterwards, or (on_device other than 0) in that of the weight's device, with [n] fp32 scales. Unavailable on a CPU:
   create a new weight there. */
OCTILE_API octile_status octile_weight_update(octile_weight* weight, const octile_weight_source* source, int on_device,
                                              void* stream);
/* Writes the codes as rows [n, k] again, whatever the layout, with `row_stride` codes between rows (0: k), and the scales,
   [n] fp32 (NULL: not wanted), to the host's memory, which has them when this returns, or (on_device other than 0) to that
   of the weight's device, ordered on `stream`. Unavailable on a CPU. */
OCTILE_API octile_status octile_weight_unpack(const octile_weight* weight, void* codes, int64_t row_stride, float* scales,
                                              int on_device, void* stream);
/* 0 for NULL. */
OCTILE_API int64_t octile_weight_n(const octile_weight* weight);
OCTILE_API int64_t octile_weight_k(const octile_weight* weight);
OCTILE_API int64_t octile_weight_bytes(const octile_weight* weight); /* Resident on the device. */

/* `options` NULL: the defaults. The linear shares the weight's packed data. */
OCTILE_API octile_status octile_linear_create(const octile_weight* weight, const octile_linear_options* options,
                                              octile_linear** linear);
/* NULL is fine. Calls that were enqueued on a CUDA device may still run or wait (octile/linear.hpp). */
OCTILE_API void octile_linear_destroy(octile_linear* linear);
/* Loads every kernel that the table can reach up to max_m rows. Everything slow happens here. */
OCTILE_API octile_status octile_linear_prepare(octile_linear* linear, int64_t max_m);
/* Bytes of workspace for up to max_m rows; 0 for NULL and before prepare. */
OCTILE_API int64_t octile_linear_workspace_bytes(const octile_linear* linear, int64_t max_m);
/* y[m, n] from x[m, k]; m larger than prepared runs in chunks. `workspace` is 64-byte aligned (256 on a GPU) and has at
 * least octile_linear_workspace_bytes(linear, m) bytes; y shares no element with x. `stream` is a CUDA stream, NULL on the
 * CPU. Safe from several threads at once with distinct workspaces. */
OCTILE_API octile_status octile_linear_run(const octile_linear* linear, const octile_const_matrix* x, const octile_matrix* y,
                                           void* workspace, int64_t workspace_bytes, void* stream);
/* The same for codes [m, k] e4m3 with scales [m], contiguous. */
OCTILE_API octile_status octile_linear_run_quantized(const octile_linear* linear, const octile_const_matrix* codes,
                                                     const float* scales, const octile_matrix* y, void* workspace,
                                                     int64_t workspace_bytes, void* stream);
/* *json: what serves m rows and why, as `octile explain --json` prints it. */
OCTILE_API octile_status octile_linear_explain(const octile_linear* linear, int64_t m, char** json);

/* y = round(round(s / sqrt(mean(s^2) + epsilon)) * gamma) with s = round(x + residual), or round(round(silu(gate)) * up), as
 * Hugging Face's and vLLM's models round; then the codes and the scale that the linear would make of y. */
typedef struct octile_producer_options {
  size_t struct_size;
  const char* device;                      /* "cpu" (also NULL), "cuda:0": an id of octile_devices(). */
  int64_t k;                               /* Elements of a row of y. */
  const octile_quantize_options* quantize; /* For per-token scales; NULL: the defaults. */
  float static_scale;                      /* > 0: the scale of every row; 0: per token. */
  int32_t dtype;                           /* Of x, residual, gate, up and y: OCTILE_BF16 (default) or OCTILE_FP16. */
  int32_t pdl; /* enum octile_pdl. full: may start before the kernel before it has ended; consume and off: may not. */
} octile_producer_options;

/* gamma [k] in host memory, copied, of gamma_dtype (OCTILE_BF16, OCTILE_FP16 or OCTILE_FP32; must be given); epsilon > 0. */
OCTILE_API octile_status octile_rms_norm_create(const octile_producer_options* options, const void* gamma,
                                                int32_t gamma_dtype, float epsilon, octile_producer** producer);
OCTILE_API octile_status octile_swiglu_create(const octile_producer_options* options, octile_producer** producer);
OCTILE_API void octile_producer_destroy(octile_producer* producer); /* NULL is fine. */
/* Elements between rows of codes [m, k] with which octile_linear_run_quantized reads them without a copy. */
OCTILE_API int64_t octile_codes_row_stride(int64_t k);
/* codes [m, k] e4m3 and scales [m] of x [m, k], or of gate and up side by side [m, 2 k]. RMSNorm alone takes a residual,
 * both [m, k] or both NULL: residual_out = round(x + residual_in), which may be residual_in or x. Allocates nothing; safe
 * from several threads at once where they write to distinct memory. */
OCTILE_API octile_status octile_producer_run(const octile_producer* producer, const octile_const_matrix* x,
                                             const octile_const_matrix* residual_in, const octile_matrix* residual_out,
                                             const octile_matrix* codes, float* scales, void* stream);
/* The same without quantisation: y [m, k], which may be x. */
OCTILE_API octile_status octile_producer_run_unfused(const octile_producer* producer, const octile_const_matrix* x,
                                                     const octile_const_matrix* residual_in,
                                                     const octile_matrix* residual_out, const octile_matrix* y,
                                                     void* stream);

/* Per-token quantisation on the CPU: codes[rows, cols] with row stride cols, scales[rows]. `options` NULL: the defaults. */
OCTILE_API octile_status octile_quantize_per_token(const octile_const_matrix* x, uint8_t* codes, float* scales,
                                                   const octile_quantize_options* options);
/* Fills *options with the preset of an engine: "octile", "vllm", "sglang". struct_size is set by the caller. */
OCTILE_API octile_status octile_quantize_preset(const char* engine, octile_quantize_options* options);

/* One call of an engine's own kernel: must write y[m, n]. struct_size is the library's. */
typedef struct octile_baseline_call {
  size_t struct_size;
  int64_t m;
  int64_t n;
  int64_t k;
  const void* codes_x;        /* e4m3 [m, k], row stride k. */
  const float* scales_x;      /* [m] */
  const void* weight_codes;   /* e4m3 [n, k], row stride k. */
  const float* weight_scales; /* [n] */
  const float* bias;          /* [n] or NULL */
  void* y;                    /* out_dtype [m, n] */
  int64_t y_row_stride;
  void* stream;
  int32_t out_dtype;
} octile_baseline_call;
/* Returns 0, or another value as a failure. On a GPU the device's primary context is current during the call. */
typedef int (*octile_baseline_function)(const octile_baseline_call* call, void* user);
/* Replaces the vendor as baseline of every weight and linear created afterwards on devices of `device_kind` ("cpu",
 * "cuda"). NULL as function removes it. `name` is what explain prints. */
OCTILE_API octile_status octile_register_baseline(const char* device_kind, const char* name,
                                                  octile_baseline_function function, void* user);

#ifdef __cplusplus
}
#endif

#endif
