// SPDX-License-Identifier: Apache-2.0
// What both backends ask of a producer's options and calls.
#include "octile/kernels/producer.h"

#include "octile/core/format.h"
#include "octile/quant/quantize.h"

#include <octile/producers.hpp>

#include <cmath>
#include <limits>

namespace octile {

namespace {

// Dimensions fit 31 bits, as those of a weight, also where two of them stand side by side.
constexpr std::int64_t kMaxK = std::numeric_limits<std::int32_t>::max() / 2;

}  // namespace

const char* to_string(ProducerKind kind) noexcept { return kind == ProducerKind::rms_norm ? "rms_norm" : "swiglu"; }

Expected<void> check_producer_spec(const ProducerSpec& spec) {
  if (spec.k < 1 || spec.k > kMaxK) {
    return make_error(ErrorCode::invalid_argument, "{}: want K from 1 to {}, got {}", to_string(spec.kind), kMaxK, spec.k);
  }
  if (spec.dtype != DType::bf16 && spec.dtype != DType::fp16) {
    return make_error(ErrorCode::invalid_argument, "{}: want activations of bf16 or fp16, got {}", to_string(spec.kind),
                      to_string(spec.dtype));
  }
  if (!std::isfinite(spec.static_scale) || spec.static_scale < 0.0F) {
    return make_error(ErrorCode::invalid_argument,
                      "{}: static activation scale: want a finite value > 0 (0: per token), got {}", to_string(spec.kind),
                      spec.static_scale);
  }
  if (spec.static_scale == 0.0F) {
    if (auto ok = check_quantize_options(spec.quantize); !ok) {
      return ok;
    }
  }
  if (spec.kind == ProducerKind::rms_norm && (!std::isfinite(spec.epsilon) || spec.epsilon <= 0.0F)) {
    return make_error(ErrorCode::invalid_argument, "rms_norm: want a finite epsilon > 0, got {}", spec.epsilon);
  }
  return {};
}

Expected<void> check_producer_call(const ProducerSpec& spec, const ProducerCall& call) {
  const std::int64_t m = call.x.rows;
  const bool halves = spec.kind == ProducerKind::swiglu;
  if (auto ok = check_matrix_view(halves ? "gate_up" : "x", call.x, spec.dtype, m, halves ? 2 * spec.k : spec.k); !ok) {
    return ok;
  }
  if (call.adds) {
    if (auto ok = check_matrix_view("residual", call.residual_in, spec.dtype, m, spec.k); !ok) {
      return ok;
    }
    if (auto ok = check_matrix_view("residual output", read_only(call.residual_out), spec.dtype, m, spec.k); !ok) {
      return ok;
    }
  }
  if (!call.quantized) {
    return check_matrix_view("y", read_only(call.out), spec.dtype, m, spec.k);
  }
  if (auto ok = check_matrix_view("codes", read_only(call.out), DType::e4m3, m, spec.k); !ok) {
    return ok;
  }
  if (call.scales == nullptr && m > 0) {
    return make_error(ErrorCode::invalid_argument, "codes [{}, {}]: want their scales, got a null pointer", m, spec.k);
  }
  return {};
}

}  // namespace octile
