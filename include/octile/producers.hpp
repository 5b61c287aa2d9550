// SPDX-License-Identifier: Apache-2.0
// Producers: what engines run in front of an FP8 linear, fused with the quantisation of its activations.
//
//   RmsNorm   s = round(x + residual)  (without a residual: s = x)
//             y = round(round(s / sqrt(mean(s^2) + epsilon)) * gamma)
//   SwiGlu    y = round(round(silu(gate)) * up)
//   then      scale = min(max(amax(y), floor), upper_bound) / 448, codes = e4m3_saturate(y / scale)
//
// round() is to the type of the activations, at the places where Hugging Face's and vLLM's models round; docs/numerics.md
// has every step. So y has the bits of the unfused operation, and the codes are those that the linear would make of y
// itself.
#pragma once

#include <octile/types.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace octile {

// Elements between rows of codes [m, k] with which every product reads them as they are: k rounded up to a multiple of 16.
// With another stride, or a base that is no multiple of 16 bytes, run_quantized() may copy them first.
constexpr std::int64_t codes_row_stride(std::int64_t k) noexcept { return (k + 15) / 16 * 16; }

// What a producer writes and Fp8Linear::run_quantized() reads: e4m3 codes [m, k] and one fp32 scale a row (contiguous), in
// the memory of the device. Bytes of a row behind its k codes are left alone.
struct QuantizedRows {
  MatrixView codes;
  float* scales = nullptr;
};
// A view that only reads, as run_quantized() takes it.
constexpr ConstMatrixView read_only(const MatrixView& view) noexcept {
  return {view.data, view.dtype, view.rows, view.cols, view.row_stride, view.col_stride};
}

struct ProducerOptions {
  std::string device = "cpu";  // An id of devices(): "cpu", "cuda:0".
  std::int64_t k = 0;          // Elements of a row of y.
  DType dtype = DType::bf16;   // Of x, residual, gate, up and y: bf16 or fp16.
  QuantizeOptions quantize;    // For per-token scales.
  float static_scale = 0.0F;   // > 0: the scale of every row; 0: per token.
  // full: the kernel may start before the one before it has ended; it waits before it reads or writes anything but gamma.
  // consume and off: it may not. A product behind it that is to start early in mode consume needs
  // LinearOptions::behind_producer; in mode full it does so by itself.
  Pdl pdl = Pdl::full;
};

struct RmsNormOptions {
  ProducerOptions producer;
  const void* gamma = nullptr;  // [k] in host memory, copied and, where it has another type, rounded to the activations'.
  DType gamma_dtype = DType::bf16;  // bf16, fp16 or fp32.
  float epsilon = 1e-6F;            // Finite and > 0.
};

// The residual of an RmsNorm: out = round(x + in), both [m, k]. They may be the same memory, and `out` may be x.
struct Residual {
  ConstMatrixView in;
  MatrixView out;
};

// (Add +) RMSNorm. Copies share what was prepared. Thread-safe for concurrent calls that write to distinct memory.
class OCTILE_API RmsNorm {
 public:
  // Slow: compiles (or takes from the cache) and loads. Errors: invalid_argument for options that break the contract,
  // unavailable for a device that is not there.
  static Expected<RmsNorm> create(const RmsNormOptions& options);

  // Codes and scales of norm(x) or, with a residual (nullptr: none), of norm(x + residual). x is [m, k]; pointers are the
  // device's, `stream` is a CUDA stream handle, nullptr on the CPU. Allocates nothing. M = 0 launches nothing. A row with a
  // NaN or an infinity in x, in the sum, in y, or whose sum of squares overflows, gets NaN codes and a NaN scale; no other
  // row changes. Errors: invalid_argument with what was wanted and what came.
  Expected<void> run(const ConstMatrixView& x, const Residual* residual, const QuantizedRows& out,
                     void* stream = nullptr) const;
  // The same without quantisation: y [m, k], which may be x.
  Expected<void> run_unfused(const ConstMatrixView& x, const Residual* residual, const MatrixView& y,
                             void* stream = nullptr) const;

  struct Impl;

 private:
  explicit RmsNorm(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// silu(gate) * up of one matrix gate_up [m, 2 k] as a fused gate_up linear writes it: gate in the first k columns, up in the
// others. Otherwise as RmsNorm.
class OCTILE_API SwiGlu {
 public:
  static Expected<SwiGlu> create(const ProducerOptions& options);
  Expected<void> run(const ConstMatrixView& gate_up, const QuantizedRows& out, void* stream = nullptr) const;
  Expected<void> run_unfused(const ConstMatrixView& gate_up, const MatrixView& y, void* stream = nullptr) const;

  struct Impl;

 private:
  explicit SwiGlu(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace octile
