// SPDX-License-Identifier: Apache-2.0
// The C interface: checks sizes and values of what came from C, calls the C++ interface, and turns errors and exceptions
// into statuses.
#include "octile/linear/baseline_registry.h"
#include "octile/linear/c_api_support.h"

#include <octile/octile.h>
#include <octile/octile.hpp>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

struct octile_weight {
  octile::Fp8Weight value;
};
struct octile_linear {
  octile::Fp8Linear value;
};

namespace octile::c_api {

namespace {

Expected<WeightSource> to_cpp(const octile_weight_source* from) {
  Reader reader;
  octile_weight_source c{};
  reader.take(c, copied("weight_source", from));
  WeightSource source;
  source.n = c.n;
  source.k = c.k;
  source.codes = c.codes;
  source.row_stride = c.row_stride;
  source.scales = c.scales;
  source.scale_count = c.scale_count;
  reader.take(source.code_dtype, dtype_of("weight_source.code_dtype", c.code_dtype, DType::e4m3));
  reader.take(source.scale_dtype, dtype_of("weight_source.scale_dtype", c.scale_dtype, DType::fp32));
  return reader.finish(source);
}

Expected<WeightOptions> to_cpp(const octile_weight_options* from) {
  WeightOptions options;
  if (from == nullptr) {
    return options;
  }
  Reader reader;
  octile_weight_options c{};
  reader.take(c, copied("weight_options", from, offsetof(octile_weight_options, pdl)));
  options.device = c.device == nullptr ? "cpu" : c.device;
  options.tables = c.tables == nullptr ? "" : c.tables;
  reader.take(options.out_dtype, dtype_of("weight_options.out_dtype", c.out_dtype, DType::bf16));
  reader.take(options.accumulate, enum_of("weight_options.accumulate", c.accumulate, Accumulate::precise));
  reader.take(options.numerics, enum_of("weight_options.numerics", c.numerics, Numerics::baseline));
  reader.take(options.batch_invariant, bool_of("weight_options.batch_invariant", c.batch_invariant));
  reader.take(options.pdl, pdl_of("weight_options.pdl", c.pdl));
  reader.take(options.layout, enum_of("weight_options.layout", c.layout, WeightLayout::slab64));
  return reader.finish(std::move(options));
}

Expected<LinearOptions> to_cpp(const octile_linear_options* from) {
  LinearOptions options;
  if (from == nullptr) {
    return options;
  }
  Reader reader;
  octile_linear_options c{};
  reader.take(c, copied("linear_options", from, offsetof(octile_linear_options, behind_producer)));
  reader.take(options.activation, enum_of("linear_options.activation", c.activation, ActivationMode::quantized));
  options.static_scale = c.static_scale;
  reader.take(options.quantize, quantize_options_of(c.quantize));
  options.bias = c.bias;
  reader.take(options.x_dtype, dtype_of("linear_options.x_dtype", c.x_dtype, DType::bf16));
  reader.take(options.bias_dtype, dtype_of("linear_options.bias_dtype", c.bias_dtype, DType::fp32));
  reader.take(options.allow_capture_fallback, bool_of("linear_options.allow_capture_fallback", c.allow_capture_fallback));
  reader.take(options.behind_producer, bool_of("linear_options.behind_producer", c.behind_producer));
  options.max_sms = c.max_sms;
  return reader.finish(options);
}

Expected<void> hand_out(const std::string& text, char** out) {
  // Freed with octile_string_free(), which a C program could not do to a new[].
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) {
    return Error{ErrorCode::out_of_memory, {}};
  }
  std::memcpy(copy, text.c_str(), text.size() + 1);
  *out = copy;
  return {};
}

int call_engine(octile_baseline_function function, void* user, const BaselineCall& call) {
  octile_baseline_call c{};
  c.struct_size = sizeof(c);
  c.m = call.m;
  c.n = call.n;
  c.k = call.k;
  c.codes_x = call.codes_x;
  c.scales_x = call.scales_x;
  c.weight_codes = call.weight_codes;
  c.weight_scales = call.weight_scales;
  c.bias = call.bias;
  c.y = call.y;
  c.y_row_stride = call.y_row_stride;
  c.stream = call.stream;
  c.out_dtype = dtype_to_c(call.out_dtype);
  return function(&c, user);
}

}  // namespace

}  // namespace octile::c_api

extern "C" {

const char* octile_version(void) { return octile::version(); }

const char* octile_status_name(octile_status status) {
  using octile::ErrorCode;
  if (status == OCTILE_OK) {
    return "ok";
  }
  for (const ErrorCode code : {ErrorCode::invalid_argument, ErrorCode::unavailable, ErrorCode::not_prepared, ErrorCode::io,
                               ErrorCode::corrupt, ErrorCode::failed, ErrorCode::out_of_memory}) {
    if (octile::c_api::status_of(code) == status) {
      return octile::to_string(code);
    }
  }
  return "unknown";
}

const char* octile_last_error(void) { return octile::c_api::last_message(); }

void octile_string_free(char* text) { std::free(text); }

octile_status octile_devices(char** json) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (json == nullptr) {
      return octile::c_api::null_argument("json");
    }
    *json = nullptr;
    return octile::c_api::hand_out(octile::devices_json(), json);
  });
}

octile_status octile_weight_create(const octile_weight_source* source, const octile_weight_options* options,
                                   octile_weight** weight) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (weight == nullptr) {
      return octile::c_api::null_argument("weight");
    }
    *weight = nullptr;
    const auto cpp_source = octile::c_api::to_cpp(source);
    if (!cpp_source) {
      return cpp_source.error();
    }
    const auto cpp_options = octile::c_api::to_cpp(options);
    if (!cpp_options) {
      return cpp_options.error();
    }
    auto made = octile::Fp8Weight::create(*cpp_source, *cpp_options);
    if (!made) {
      return std::move(made).error();
    }
    *weight = new octile_weight{std::move(*made)};
    return {};
  });
}

octile_status octile_weight_update(octile_weight* weight, const octile_weight_source* source, int on_device, void* stream) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (weight == nullptr) {
      return octile::c_api::null_argument("weight");
    }
    const auto cpp_source = octile::c_api::to_cpp(source);
    if (!cpp_source) {
      return cpp_source.error();
    }
    return weight->value.update(*cpp_source, on_device != 0 ? octile::SourceMemory::device : octile::SourceMemory::host,
                                stream);
  });
}

octile_status octile_weight_unpack(const octile_weight* weight, void* codes, int64_t row_stride, float* scales,
                                   int on_device, void* stream) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (weight == nullptr) {
      return octile::c_api::null_argument("weight");
    }
    octile::UnpackTarget target;
    target.codes = codes;
    target.row_stride = row_stride;
    target.scales = scales;
    target.memory = on_device != 0 ? octile::SourceMemory::device : octile::SourceMemory::host;
    return weight->value.unpack(target, stream);
  });
}

void octile_weight_destroy(octile_weight* weight) { delete weight; }
int64_t octile_weight_n(const octile_weight* weight) { return weight == nullptr ? 0 : weight->value.n(); }
int64_t octile_weight_k(const octile_weight* weight) { return weight == nullptr ? 0 : weight->value.k(); }
int64_t octile_weight_bytes(const octile_weight* weight) { return weight == nullptr ? 0 : weight->value.bytes(); }

octile_status octile_linear_create(const octile_weight* weight, const octile_linear_options* options,
                                   octile_linear** linear) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (linear == nullptr) {
      return octile::c_api::null_argument("linear");
    }
    *linear = nullptr;
    if (weight == nullptr) {
      return octile::c_api::null_argument("weight");
    }
    const auto cpp_options = octile::c_api::to_cpp(options);
    if (!cpp_options) {
      return cpp_options.error();
    }
    auto made = octile::Fp8Linear::create(weight->value, *cpp_options);
    if (!made) {
      return std::move(made).error();
    }
    *linear = new octile_linear{std::move(*made)};
    return {};
  });
}

void octile_linear_destroy(octile_linear* linear) { delete linear; }

octile_status octile_linear_prepare(octile_linear* linear, int64_t max_m) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    return linear == nullptr ? octile::c_api::null_argument("linear") : linear->value.prepare(max_m);
  });
}

int64_t octile_linear_workspace_bytes(const octile_linear* linear, int64_t max_m) {
  return linear == nullptr ? 0 : linear->value.workspace_bytes(max_m);
}

octile_status octile_linear_run(const octile_linear* linear, const octile_const_matrix* x, const octile_matrix* y,
                                void* workspace, int64_t workspace_bytes, void* stream) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (linear == nullptr) {
      return octile::c_api::null_argument("linear");
    }
    const auto x_view = octile::c_api::to_view<octile::ConstMatrixView>("x", x);
    if (!x_view) {
      return x_view.error();
    }
    const auto y_view = octile::c_api::to_view<octile::MatrixView>("y", y);
    if (!y_view) {
      return y_view.error();
    }
    return linear->value.run(*x_view, *y_view, workspace, workspace_bytes, stream);
  });
}

octile_status octile_linear_run_quantized(const octile_linear* linear, const octile_const_matrix* codes, const float* scales,
                                          const octile_matrix* y, void* workspace, int64_t workspace_bytes, void* stream) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (linear == nullptr) {
      return octile::c_api::null_argument("linear");
    }
    const auto codes_view = octile::c_api::to_view<octile::ConstMatrixView>("codes", codes);
    if (!codes_view) {
      return codes_view.error();
    }
    const auto y_view = octile::c_api::to_view<octile::MatrixView>("y", y);
    if (!y_view) {
      return y_view.error();
    }
    return linear->value.run_quantized(*codes_view, scales, *y_view, workspace, workspace_bytes, stream);
  });
}

octile_status octile_linear_explain(const octile_linear* linear, int64_t m, char** json) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (json == nullptr) {
      return octile::c_api::null_argument("json");
    }
    *json = nullptr;
    if (linear == nullptr) {
      return octile::c_api::null_argument("linear");
    }
    return octile::c_api::hand_out(octile::to_json(linear->value.explain(m)), json);
  });
}

octile_status octile_quantize_per_token(const octile_const_matrix* x, uint8_t* codes, float* scales,
                                        const octile_quantize_options* options) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    const auto view = octile::c_api::to_view<octile::ConstMatrixView>("x", x);
    if (!view) {
      return view.error();
    }
    const auto cpp_options = octile::c_api::quantize_options_of(options);
    if (!cpp_options) {
      return cpp_options.error();
    }
    return octile::quantize_per_token(*view, codes, scales, *cpp_options);
  });
}

octile_status octile_quantize_preset(const char* engine, octile_quantize_options* options) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (const auto checked = octile::c_api::copied("quantize_options", options); !checked) {
      return checked.error();
    }
    const auto preset = octile::quantize_preset(engine);
    if (!preset) {
      return preset.error();
    }
    options->floor = preset->floor;
    options->upper_bound = preset->upper_bound;
    options->division = static_cast<std::int32_t>(preset->division);
    return {};
  });
}

octile_status octile_register_baseline(const char* device_kind, const char* name, octile_baseline_function function,
                                       void* user) {
  return octile::c_api::guarded([&]() -> octile::Expected<void> {
    if (function == nullptr) {
      return octile::register_engine_baseline(device_kind, name, nullptr);
    }
    return octile::register_engine_baseline(device_kind, name, [function, user](const octile::BaselineCall& call) {
      return octile::c_api::call_engine(function, user, call);
    });
  });
}

}  // extern "C"
