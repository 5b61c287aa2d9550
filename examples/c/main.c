/* SPDX-License-Identifier: Apache-2.0 */
/* An FP8 linear in C99: packs a weight, runs four rows of bf16 through it, and checks every output. */
#include <octile/octile.h>

#include <stdio.h>
#include <stdlib.h>

enum { N = 96, K = 64, M = 4 };

static int failed(const char* what, octile_status status) {
  if (status != OCTILE_OK) fprintf(stderr, "%s: %s: %s\n", what, octile_status_name(status), octile_last_error());
  return status != OCTILE_OK;
}

int main(void) {
  static uint8_t codes[N * K];
  static uint16_t x[M * K]; /* bf16 */
  static float scales[N], y[M * N];
  octile_weight_source source = {
      .struct_size = sizeof source, .n = N, .k = K, .codes = codes, .scales = scales, .scale_count = N};
  octile_weight_options options = {.struct_size = sizeof options, .out_dtype = OCTILE_FP32};
  octile_const_matrix in = {.struct_size = sizeof in, .data = x, .rows = M, .cols = K, .dtype = OCTILE_BF16};
  octile_matrix out = {.struct_size = sizeof out, .data = y, .rows = M, .cols = N, .dtype = OCTILE_FP32};
  octile_weight* weight = NULL;
  octile_linear* linear = NULL;
  char* json = NULL;
  for (int i = 0; i < N * K; ++i) codes[i] = 0x38; /* 1.0 in e4m3. */
  for (int i = 0; i < M * K; ++i) x[i] = 0x4060;   /* 3.5 in bf16: every row's scale is 3.5 / 448, exactly. */
  for (int i = 0; i < N; ++i) scales[i] = (float)(i + 1);

  if (failed("weight", octile_weight_create(&source, &options, &weight))) return 1;
  if (failed("linear", octile_linear_create(weight, NULL, &linear))) return 1;
  octile_weight_destroy(weight);
  if (failed("prepare", octile_linear_prepare(linear, M))) return 1;
  int64_t bytes = octile_linear_workspace_bytes(linear, M);
  void* memory = malloc((size_t)bytes + 64);
  void* workspace = (void*)(((uintptr_t)memory + 63) / 64 * 64);
  if (failed("run", octile_linear_run(linear, &in, &out, workspace, bytes, NULL))) return 1;
  if (failed("explain", octile_linear_explain(linear, M, &json))) return 1;
  printf("octile %s: %s\n", octile_version(), json);
  octile_string_free(json);
  octile_linear_destroy(linear);
  free(memory);
  for (int i = 0; i < M * N; ++i) {
    if (y[i] != 3.5F * K * (float)(i % N + 1)) {
      fprintf(stderr, "y[%d] = %g, want %g\n", i, (double)y[i], 3.5 * K * (i % N + 1));
      return 1;
    }
  }
  return 0;
}
