// SPDX-License-Identifier: Apache-2.0
// Plain types of the public interface (C++17). Shapes: M tokens, N output channels, K reduction length.
#pragma once

#include <octile/export.h>
#include <octile/error.hpp>

#include <cstdint>

namespace octile {

// e4m3 is OCP E4M3FN (bias 7, largest finite 448, NaN 0x7F/0xFF, no infinity). e4m3fnuz is known by name only: it is
// refused.
enum class DType { bf16, fp16, fp32, e4m3, e4m3fnuz };

// "bf16", "fp16", "fp32", "e4m3", "e4m3fnuz".
OCTILE_API const char* to_string(DType dtype) noexcept;
// Bytes of one element.
OCTILE_API std::int64_t size_of(DType dtype) noexcept;

// A matrix somewhere in memory: element (r, c) lies at data + (r * row_stride + c * col_stride) * size_of(dtype).
// Strides count elements. Octile takes col_stride = 1 and row_stride >= cols, and refuses the rest with the strides printed.
struct ConstMatrixView {
  const void* data = nullptr;
  DType dtype = DType::bf16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;
};
struct MatrixView {
  void* data = nullptr;
  DType dtype = DType::bf16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;
};

// fast: the matrix unit's own accumulator. precise: promoted to fp32 at least every 128 elements of K.
// On a CPU both mean fp32 over all of K. `device_default` is fast where the vendor's default is fast, else precise.
enum class Accumulate { device_default, fast, precise };
// deterministic: the same bits run after run. baseline: the bits of the baseline as well (Hopper, and
// where CUTLASS is the baseline).
enum class Numerics { deterministic, baseline };

// When a kernel may start before the one before it has ended (programmatic dependent launch: GPUs from sm_90 on). off:
// never. consume: a product behind the linear's own quantiser. full: the linear's first kernel too, and weights are
// requested before the wait. Every kernel waits before it reads what an earlier one wrote, and a weight is never written
// once it is packed: safe behind any kernel, and before any that keeps the rule of such launches, to wait before its first
// access.
enum class Pdl { off, consume, full };

// How the codes of a weight lie on a GPU. row_major: [N, K], which every kernel and every vendor's library reads. slab64:
// each slab of 64 channels keeps its bytes, in the order in which Hopper's copy engine wants them; our own families on
// Hopper read it, nobody else does; N a multiple of 64, K of 128. automatic: what the weight's table was measured with, else
// row_major.
enum class WeightLayout { automatic, row_major, slab64 };

// "automatic", "row_major", "slab64".
OCTILE_API const char* to_string(WeightLayout layout) noexcept;
OCTILE_API const char* to_string(Pdl pdl) noexcept;
OCTILE_API const char* to_string(Accumulate accumulate) noexcept;
OCTILE_API const char* to_string(Numerics numerics) noexcept;

// How a row is divided by its scale: a true division (the contract), or a product with the rounded reciprocal as some
// engines do.
enum class Division { exact, reciprocal };

// Per-token quantisation: scale = min(max(amax, floor), upper_bound) / 448, codes = e4m3_saturate(x / scale).
struct QuantizeOptions {
  float floor = 448.0F * 1.17549435e-38F;  // 448 * 2^-126: a row of zeros gets the smallest normal scale.
  float upper_bound = 3.40282347e+38F;     // A checkpoint's `scale_upper_bound`; the largest float means none.
  Division division = Division::exact;
};

// Presets that reproduce an engine's codes bit for bit: "octile", "vllm", "sglang".
OCTILE_API Expected<QuantizeOptions> quantize_preset(const char* engine);

}  // namespace octile
