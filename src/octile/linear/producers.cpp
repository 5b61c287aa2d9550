// SPDX-License-Identifier: Apache-2.0
// RmsNorm and SwiGlu: the public classes in front of a backend's producers.
#include <octile/producers.hpp>

#include "octile/core/float_formats.h"
#include "octile/core/float_mode.h"
#include "octile/core/format.h"
#include "octile/kernels/backend.h"
#include "octile/kernels/producer.h"

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace octile {

namespace {

// A producer of a backend, with what its calls are checked against.
struct ReadyProducer {
  ProducerSpec spec;  // `gamma` is cleared: the caller's array may be gone.
  std::unique_ptr<Producer> producer;

  Expected<void> run(const ProducerCall& call) const {
    if (auto ok = check_producer_call(spec, call); !ok) {
      return ok;
    }
    return call.x.rows == 0 ? Expected<void>() : producer->run(call);
  }
};

ProducerSpec spec_of(ProducerKind kind, const ProducerOptions& options) {
  ProducerSpec spec;
  spec.kind = kind;
  spec.k = options.k;
  spec.dtype = options.dtype;
  spec.quantize = options.quantize;
  spec.static_scale = options.static_scale;
  spec.pdl = options.pdl;
  return spec;
}

Expected<ReadyProducer> prepare(const std::string& id, ProducerSpec spec) {
  const auto device = find_device(id);
  if (!device) {
    return Error{ErrorCode::unavailable, device.error().message};
  }
  auto producer = device->backend->prepare_producer(device->info, spec);
  if (!producer) {
    return std::move(producer).error();
  }
  spec.gamma = nullptr;
  return ReadyProducer{spec, std::move(*producer)};
}

// gamma[k] as the activations' type.
Expected<std::vector<std::byte>> gamma_as(DType dtype, const RmsNormOptions& options) {
  if (options.gamma == nullptr) {
    return make_error(ErrorCode::invalid_argument, "rms_norm: want gamma [{}], got a null pointer", options.producer.k);
  }
  if (options.gamma_dtype != DType::bf16 && options.gamma_dtype != DType::fp16 && options.gamma_dtype != DType::fp32) {
    return make_error(ErrorCode::invalid_argument, "rms_norm: want gamma of bf16, fp16 or fp32, got {}",
                      to_string(options.gamma_dtype));
  }
  std::vector<std::byte> gamma(static_cast<std::size_t>(options.producer.k * size_of(dtype)));
  for (std::int64_t i = 0; i < options.producer.k; ++i) {
    store_from_float(gamma.data(), dtype, i, load_as_float(options.gamma, options.gamma_dtype, i));
  }
  return gamma;
}

ProducerCall call_of(const ConstMatrixView& x, const MatrixView& out, void* stream) {
  ProducerCall call;
  call.x = x;
  call.out = out;
  call.stream = stream;
  return call;
}
ProducerCall quantizing_call(const ConstMatrixView& x, const QuantizedRows& out, void* stream) {
  ProducerCall call = call_of(x, out.codes, stream);
  call.scales = out.scales;
  return call;
}
ProducerCall plain_call(const ConstMatrixView& x, const MatrixView& y, void* stream) {
  ProducerCall call = call_of(x, y, stream);
  call.quantized = false;
  return call;
}
ProducerCall with_residual(ProducerCall call, const Residual* residual) {
  if (residual != nullptr) {
    call.adds = true;
    call.residual_in = residual->in;
    call.residual_out = residual->out;
  }
  return call;
}

}  // namespace

struct RmsNorm::Impl : ReadyProducer {};
struct SwiGlu::Impl : ReadyProducer {};

Expected<RmsNorm> RmsNorm::create(const RmsNormOptions& options) try {
  const ScopedFloatMode mode;
  ProducerSpec spec = spec_of(ProducerKind::rms_norm, options.producer);
  spec.epsilon = options.epsilon;
  if (auto ok = check_producer_spec(spec); !ok) {
    return ok.error();
  }
  const auto gamma = gamma_as(spec.dtype, options);
  if (!gamma) {
    return gamma.error();
  }
  spec.gamma = gamma->data();
  auto ready = prepare(options.producer.device, spec);
  if (!ready) {
    return std::move(ready).error();
  }
  return RmsNorm(std::make_shared<const Impl>(Impl{std::move(*ready)}));
} catch (const std::bad_alloc&) {
  return out_of_memory("rms_norm: out of memory");
}

Expected<void> RmsNorm::run(const ConstMatrixView& x, const Residual* residual, const QuantizedRows& out,
                            void* stream) const {
  return impl_->run(with_residual(quantizing_call(x, out, stream), residual));
}

Expected<void> RmsNorm::run_unfused(const ConstMatrixView& x, const Residual* residual, const MatrixView& y,
                                    void* stream) const {
  return impl_->run(with_residual(plain_call(x, y, stream), residual));
}

Expected<SwiGlu> SwiGlu::create(const ProducerOptions& options) try {
  const ProducerSpec spec = spec_of(ProducerKind::swiglu, options);
  if (auto ok = check_producer_spec(spec); !ok) {
    return ok.error();
  }
  auto ready = prepare(options.device, spec);
  if (!ready) {
    return std::move(ready).error();
  }
  return SwiGlu(std::make_shared<const Impl>(Impl{std::move(*ready)}));
} catch (const std::bad_alloc&) {
  return out_of_memory("swiglu: out of memory");
}

Expected<void> SwiGlu::run(const ConstMatrixView& gate_up, const QuantizedRows& out, void* stream) const {
  return impl_->run(quantizing_call(gate_up, out, stream));
}

Expected<void> SwiGlu::run_unfused(const ConstMatrixView& gate_up, const MatrixView& y, void* stream) const {
  return impl_->run(plain_call(gate_up, y, stream));
}

}  // namespace octile
