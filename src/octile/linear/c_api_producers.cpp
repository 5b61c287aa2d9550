// SPDX-License-Identifier: Apache-2.0
// The producers of the C interface.
#include "octile/linear/c_api_support.h"

#include <octile/octile.h>
#include <octile/producers.hpp>

#include <variant>

struct octile_producer {
  std::variant<octile::RmsNorm, octile::SwiGlu> value;
};

namespace octile::c_api {

namespace {

Expected<ProducerOptions> to_cpp(const octile_producer_options* from) {
  Reader reader;
  octile_producer_options c{};
  reader.take(c, copied("producer_options", from));
  ProducerOptions options;
  options.device = c.device == nullptr ? "cpu" : c.device;
  options.k = c.k;
  reader.take(options.dtype, dtype_of("producer_options.dtype", c.dtype, DType::bf16));
  reader.take(options.quantize, quantize_options_of(c.quantize));
  options.static_scale = c.static_scale;
  reader.take(options.pdl, pdl_of("producer_options.pdl", c.pdl));
  return reader.finish(std::move(options));
}

template <class Producer, class Options>
Expected<void> create(const Options& options, octile_producer** producer) {
  auto made = Producer::create(options);
  if (!made) {
    return std::move(made).error();
  }
  *producer = new octile_producer{std::move(*made)};
  return {};
}

// The views of one call.
struct Call {
  ConstMatrixView x;
  std::optional<Residual> residual;
  MatrixView out;

  const Residual* adds() const noexcept { return residual ? &*residual : nullptr; }
};

Expected<Call> to_call(const octile_producer& producer, const octile_const_matrix* x, const octile_const_matrix* residual_in,
                       const octile_matrix* residual_out, const char* out_name, const octile_matrix* out) {
  if ((residual_in == nullptr) != (residual_out == nullptr)) {
    return null_argument(residual_in == nullptr ? "residual_in, while there is a residual_out"
                                                : "residual_out, while there is a residual_in");
  }
  if (residual_in != nullptr && std::holds_alternative<SwiGlu>(producer.value)) {
    return Error{ErrorCode::invalid_argument, "residual_in: want NULL for SwiGLU, got a matrix"};
  }
  Reader reader;
  Call call;
  reader.take(call.x, to_view<ConstMatrixView>("x", x));
  if (residual_in != nullptr) {
    Residual& residual = call.residual.emplace();
    reader.take(residual.in, to_view<ConstMatrixView>("residual_in", residual_in));
    reader.take(residual.out, to_view<MatrixView>("residual_out", residual_out));
  }
  reader.take(call.out, to_view<MatrixView>(out_name, out));
  return reader.finish(call);
}

}  // namespace

}  // namespace octile::c_api

extern "C" {

octile_status octile_rms_norm_create(const octile_producer_options* options, const void* gamma, int32_t gamma_dtype,
                                     float epsilon, octile_producer** producer) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (producer == nullptr) {
      return octile::c_api::null_argument("producer");
    }
    *producer = nullptr;
    octile::c_api::Reader reader;
    octile::RmsNormOptions norm;
    reader.take(norm.producer, octile::c_api::to_cpp(options));
    norm.gamma = gamma;
    reader.take(norm.gamma_dtype, octile::c_api::dtype_of("gamma_dtype", gamma_dtype, std::nullopt));
    norm.epsilon = epsilon;
    const auto read = reader.finish(std::move(norm));
    return read ? octile::c_api::create<octile::RmsNorm>(*read, producer) : octile::Expected<void>(read.error());
  });
}

octile_status octile_swiglu_create(const octile_producer_options* options, octile_producer** producer) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (producer == nullptr) {
      return octile::c_api::null_argument("producer");
    }
    *producer = nullptr;
    const auto read = octile::c_api::to_cpp(options);
    return read ? octile::c_api::create<octile::SwiGlu>(*read, producer) : octile::Expected<void>(read.error());
  });
}

void octile_producer_destroy(octile_producer* producer) { delete producer; }

int64_t octile_codes_row_stride(int64_t k) { return octile::codes_row_stride(k); }

octile_status octile_producer_run(const octile_producer* producer, const octile_const_matrix* x,
                                  const octile_const_matrix* residual_in, const octile_matrix* residual_out,
                                  const octile_matrix* codes, float* scales, void* stream) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (producer == nullptr) {
      return octile::c_api::null_argument("producer");
    }
    const auto call = octile::c_api::to_call(*producer, x, residual_in, residual_out, "codes", codes);
    if (!call) {
      return call.error();
    }
    const octile::QuantizedRows rows = {call->out, scales};
    if (const auto* norm = std::get_if<octile::RmsNorm>(&producer->value)) {
      return norm->run(call->x, call->adds(), rows, stream);
    }
    return std::get<octile::SwiGlu>(producer->value).run(call->x, rows, stream);
  });
}

octile_status octile_producer_run_unfused(const octile_producer* producer, const octile_const_matrix* x,
                                          const octile_const_matrix* residual_in, const octile_matrix* residual_out,
                                          const octile_matrix* y, void* stream) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (producer == nullptr) {
      return octile::c_api::null_argument("producer");
    }
    const auto call = octile::c_api::to_call(*producer, x, residual_in, residual_out, "y", y);
    if (!call) {
      return call.error();
    }
    if (const auto* norm = std::get_if<octile::RmsNorm>(&producer->value)) {
      return norm->run_unfused(call->x, call->adds(), call->out, stream);
    }
    return std::get<octile::SwiGlu>(producer->value).run_unfused(call->x, call->out, stream);
  });
}

}  // extern "C"
