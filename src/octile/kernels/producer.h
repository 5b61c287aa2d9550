// SPDX-License-Identifier: Apache-2.0
// What a backend makes of a producer (octile/producers.hpp): RMSNorm or SwiGLU, with or without quantisation.
#pragma once

#include <octile/types.hpp>

#include <cstdint>

namespace octile {

enum class ProducerKind { rms_norm, swiglu };
const char* to_string(ProducerKind kind) noexcept;  // "rms_norm", "swiglu".

struct ProducerSpec {
  ProducerKind kind = ProducerKind::rms_norm;
  std::int64_t k = 0;
  DType dtype = DType::bf16;
  const void* gamma = nullptr;  // rms_norm: [k] of `dtype` in host memory, read while it is prepared only.
  float epsilon = 0.0F;         // rms_norm.
  QuantizeOptions quantize;
  float static_scale = 0.0F;  // > 0: the scale of every row.
  Pdl pdl = Pdl::full;
};

// One call. Pointers are device pointers for a GPU. M = x.rows.
struct ProducerCall {
  ConstMatrixView x;  // rms_norm: [m, k]; swiglu: [m, 2 k].
  bool adds = false;  // rms_norm: whether there is a residual.
  ConstMatrixView residual_in;
  MatrixView residual_out;
  MatrixView out;           // [m, k]: e4m3 codes where `scales` is wanted, else y.
  bool quantized = true;    // Codes and scales, or y.
  float* scales = nullptr;  // [m]
  void* stream = nullptr;
};

// Ready to run: does nothing slow, allocates nothing.
class Producer {
 public:
  virtual ~Producer() = default;
  // Precondition: check_producer_call() passed.
  virtual Expected<void> run(const ProducerCall& call) const = 0;
};

// invalid_argument with what was wanted and what came.
Expected<void> check_producer_spec(const ProducerSpec& spec);
Expected<void> check_producer_call(const ProducerSpec& spec, const ProducerCall& call);

}  // namespace octile
