// SPDX-License-Identifier: Apache-2.0
// The C interface: checks sizes and values of what came from C, calls the C++ interface, and turns errors and exceptions
// into statuses.
#include "octile/core/format.h"
#include "octile/linear/baseline_registry.h"

#include <octile/octile.h>
#include <octile/octile.hpp>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <utility>

struct octile_weight {
  octile::Fp8Weight value;
};
struct octile_linear {
  octile::Fp8Linear value;
};

namespace octile {

namespace {

constexpr octile_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return OCTILE_INVALID_ARGUMENT;
    case ErrorCode::unavailable:
      return OCTILE_UNAVAILABLE;
    case ErrorCode::not_prepared:
      return OCTILE_NOT_PREPARED;
    case ErrorCode::io:
      return OCTILE_IO;
    case ErrorCode::corrupt:
      return OCTILE_CORRUPT;
    case ErrorCode::failed:
      return OCTILE_FAILED;
    case ErrorCode::out_of_memory:
      return OCTILE_OUT_OF_MEMORY;
  }
  return OCTILE_FAILED;
}

// The calling thread's last message. Where even a message finds no memory, a literal stands in for it.
struct LastError {
  std::string text;
  const char* literal = nullptr;
};
LastError& last_error() noexcept {
  static thread_local LastError instance;
  return instance;
}

octile_status fail(Error&& error) noexcept {
  LastError& last = last_error();
  last.text = std::move(error.message);
  last.literal = nullptr;
  return status_of(error.code);
}

octile_status out_of_memory() noexcept {
  last_error().literal = "out of memory";
  return OCTILE_OUT_OF_MEMORY;
}

// Runs `body`, which returns Expected<void>. Nothing that it throws leaves the library.
template <class Body>
octile_status guarded(const Body& body) noexcept {
  try {
    Expected<void> result = body();
    return result ? OCTILE_OK : fail(std::move(result).error());
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& exception) {
    try {
      return fail(Error{ErrorCode::failed, exception.what()});
    } catch (...) {
      return out_of_memory();
    }
  } catch (...) {
    last_error().literal = "unknown failure";
    return OCTILE_FAILED;
  }
}

Error null_argument(const char* name) { return make_error(ErrorCode::invalid_argument, "{}: got NULL", name); }

// A copy of a caller's structure. `first_size` is the structure's size in its first version: a caller's older and smaller
// structure leaves the later fields zero, their default.
template <class T>
Expected<T> copied(const char* name, const T* from, std::size_t first_size = sizeof(T)) {
  if (from == nullptr) {
    return null_argument(name);
  }
  std::size_t size = 0;
  std::memcpy(&size, from, sizeof(size));
  if (size < first_size || size > sizeof(T)) {
    return make_error(ErrorCode::invalid_argument, "{}.struct_size: want {} to {} bytes, got {}", name, first_size,
                      sizeof(T), size);
  }
  T copy{};
  std::memcpy(&copy, from, size);
  return copy;
}

Expected<DType> dtype_of(const char* field, std::int32_t value, std::optional<DType> fallback) {
  switch (value) {
    case OCTILE_DTYPE_DEFAULT:
      if (fallback) {
        return *fallback;
      }
      break;
    case OCTILE_BF16:
      return DType::bf16;
    case OCTILE_FP16:
      return DType::fp16;
    case OCTILE_FP32:
      return DType::fp32;
    case OCTILE_E4M3:
      return DType::e4m3;
    case OCTILE_E4M3FNUZ:
      return DType::e4m3fnuz;
    default:
      break;
  }
  return make_error(ErrorCode::invalid_argument, "{}: want a value of enum octile_dtype from {} to {}, got {}", field,
                    fallback ? 0 : 1, static_cast<int>(OCTILE_E4M3FNUZ), value);
}

int dtype_to_c(DType dtype) noexcept {
  switch (dtype) {
    case DType::bf16:
      return OCTILE_BF16;
    case DType::fp16:
      return OCTILE_FP16;
    case DType::fp32:
      return OCTILE_FP32;
    case DType::e4m3:
      return OCTILE_E4M3;
    case DType::e4m3fnuz:
      return OCTILE_E4M3FNUZ;
  }
  return OCTILE_DTYPE_DEFAULT;
}

// The enumerator of `Enum` with that value; the C enumerators have the values of the C++ ones, 0 to `last`.
template <class Enum>
Expected<Enum> enum_of(const char* field, std::int32_t value, Enum last) {
  if (value < 0 || value > static_cast<std::int32_t>(last)) {
    return make_error(ErrorCode::invalid_argument, "{}: want 0 to {}, got {}", field, static_cast<std::int32_t>(last),
                      value);
  }
  return static_cast<Enum>(value);
}

// Unlike the other enumerations, C has 0 for the default and the C++ values from 1 on.
Expected<Pdl> pdl_of(const char* field, std::int32_t value) {
  if (value < OCTILE_PDL_DEFAULT || value > OCTILE_PDL_FULL) {
    return make_error(ErrorCode::invalid_argument, "{}: want {} to {}, got {}", field, static_cast<int>(OCTILE_PDL_DEFAULT),
                      static_cast<int>(OCTILE_PDL_FULL), value);
  }
  return value == OCTILE_PDL_DEFAULT ? WeightOptions{}.pdl : static_cast<Pdl>(value - 1);
}

Expected<bool> bool_of(const char* field, std::int32_t value) {
  if (value != 0 && value != 1) {
    return make_error(ErrorCode::invalid_argument, "{}: want 0 or 1, got {}", field, value);
  }
  return value == 1;
}

static_assert(static_cast<int>(Accumulate::device_default) == OCTILE_ACCUMULATE_DEFAULT);
static_assert(static_cast<int>(Accumulate::fast) == OCTILE_ACCUMULATE_FAST);
static_assert(static_cast<int>(Accumulate::precise) == OCTILE_ACCUMULATE_PRECISE);
static_assert(static_cast<int>(Numerics::deterministic) == OCTILE_NUMERICS_DETERMINISTIC);
static_assert(static_cast<int>(Numerics::baseline) == OCTILE_NUMERICS_BASELINE);
static_assert(static_cast<int>(ActivationMode::dynamic_per_token) == OCTILE_DYNAMIC_PER_TOKEN);
static_assert(static_cast<int>(ActivationMode::static_per_tensor) == OCTILE_STATIC_PER_TENSOR);
static_assert(static_cast<int>(ActivationMode::quantized) == OCTILE_QUANTIZED);
static_assert(static_cast<int>(Division::exact) == OCTILE_DIVISION_EXACT);
static_assert(static_cast<int>(Division::reciprocal) == OCTILE_DIVISION_RECIPROCAL);

// Reads the fields of one structure and keeps the first error.
class Reader {
 public:
  template <class T>
  void take(T& target, Expected<T> value) {
    if (value) {
      target = *std::move(value);
    } else if (!error_) {
      error_ = std::move(value).error();
    }
  }
  // `result`, or the first error.
  template <class T>
  Expected<T> finish(T result) {
    if (error_) {
      return *std::move(error_);
    }
    return result;
  }

 private:
  std::optional<Error> error_;
};

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
  return reader.finish(std::move(options));
}

Expected<QuantizeOptions> to_cpp(const octile_quantize_options* from) {
  QuantizeOptions options;
  if (from == nullptr) {
    return options;
  }
  Reader reader;
  octile_quantize_options c{};
  reader.take(c, copied("quantize_options", from));
  // Comparing with zero on purpose: it is the field's "not given".
  if (c.floor != 0.0F) {
    options.floor = c.floor;
  }
  if (c.upper_bound != 0.0F) {
    options.upper_bound = c.upper_bound;
  }
  reader.take(options.division, enum_of("quantize_options.division", c.division, Division::reciprocal));
  return reader.finish(options);
}

Expected<LinearOptions> to_cpp(const octile_linear_options* from) {
  LinearOptions options;
  if (from == nullptr) {
    return options;
  }
  Reader reader;
  octile_linear_options c{};
  reader.take(c, copied("linear_options", from));
  reader.take(options.activation, enum_of("linear_options.activation", c.activation, ActivationMode::quantized));
  options.static_scale = c.static_scale;
  reader.take(options.quantize, to_cpp(c.quantize));
  options.bias = c.bias;
  reader.take(options.x_dtype, dtype_of("linear_options.x_dtype", c.x_dtype, DType::bf16));
  reader.take(options.bias_dtype, dtype_of("linear_options.bias_dtype", c.bias_dtype, DType::fp32));
  reader.take(options.allow_capture_fallback, bool_of("linear_options.allow_capture_fallback", c.allow_capture_fallback));
  return reader.finish(options);
}

template <class View, class CMatrix>
Expected<View> to_view(const char* name, const CMatrix* from) {
  Reader reader;
  CMatrix c{};
  reader.take(c, copied(name, from));
  View view;
  view.data = c.data;
  view.rows = c.rows;
  view.cols = c.cols;
  view.row_stride = c.row_stride == 0 ? c.cols : c.row_stride;
  reader.take(view.dtype, dtype_of("dtype of a matrix", c.dtype, std::nullopt));
  return reader.finish(view);
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

}  // namespace octile

extern "C" {

const char* octile_version(void) { return octile::version(); }

const char* octile_status_name(octile_status status) {
  using octile::ErrorCode;
  if (status == OCTILE_OK) {
    return "ok";
  }
  for (const ErrorCode code : {ErrorCode::invalid_argument, ErrorCode::unavailable, ErrorCode::not_prepared, ErrorCode::io,
                               ErrorCode::corrupt, ErrorCode::failed, ErrorCode::out_of_memory}) {
    if (octile::status_of(code) == status) {
      return octile::to_string(code);
    }
  }
  return "unknown";
}

const char* octile_last_error(void) {
  const octile::LastError& last = octile::last_error();
  return last.literal != nullptr ? last.literal : last.text.c_str();
}

void octile_string_free(char* text) { std::free(text); }

octile_status octile_devices(char** json) {
  return octile::guarded([&]() -> octile::Expected<void> {
    if (json == nullptr) {
      return octile::null_argument("json");
    }
    *json = nullptr;
    return octile::hand_out(octile::devices_json(), json);
  });
}

octile_status octile_weight_create(const octile_weight_source* source, const octile_weight_options* options,
                                   octile_weight** weight) {
  return octile::guarded([&]() -> octile::Expected<void> {
    if (weight == nullptr) {
      return octile::null_argument("weight");
    }
    *weight = nullptr;
    const auto cpp_source = octile::to_cpp(source);
    if (!cpp_source) {
      return cpp_source.error();
    }
    const auto cpp_options = octile::to_cpp(options);
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

void octile_weight_destroy(octile_weight* weight) { delete weight; }
int64_t octile_weight_n(const octile_weight* weight) { return weight == nullptr ? 0 : weight->value.n(); }
int64_t octile_weight_k(const octile_weight* weight) { return weight == nullptr ? 0 : weight->value.k(); }
int64_t octile_weight_bytes(const octile_weight* weight) { return weight == nullptr ? 0 : weight->value.bytes(); }

octile_status octile_linear_create(const octile_weight* weight, const octile_linear_options* options,
                                   octile_linear** linear) {
  return octile::guarded([&]() -> octile::Expected<void> {
    if (linear == nullptr) {
      return octile::null_argument("linear");
    }
    *linear = nullptr;
    if (weight == nullptr) {
      return octile::null_argument("weight");
    }
    const auto cpp_options = octile::to_cpp(options);
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
  return octile::guarded([&]() -> octile::Expected<void> {
    return linear == nullptr ? octile::null_argument("linear") : linear->value.prepare(max_m);
  });
}

int64_t octile_linear_workspace_bytes(const octile_linear* linear, int64_t max_m) {
  return linear == nullptr ? 0 : linear->value.workspace_bytes(max_m);
}

octile_status octile_linear_run(const octile_linear* linear, const octile_const_matrix* x, const octile_matrix* y,
                                void* workspace, int64_t workspace_bytes, void* stream) {
  return octile::guarded([&]() -> octile::Expected<void> {
    if (linear == nullptr) {
      return octile::null_argument("linear");
    }
    const auto x_view = octile::to_view<octile::ConstMatrixView>("x", x);
    if (!x_view) {
      return x_view.error();
    }
    const auto y_view = octile::to_view<octile::MatrixView>("y", y);
    if (!y_view) {
      return y_view.error();
    }
    return linear->value.run(*x_view, *y_view, workspace, workspace_bytes, stream);
  });
}

octile_status octile_linear_run_quantized(const octile_linear* linear, const octile_const_matrix* codes, const float* scales,
                                          const octile_matrix* y, void* workspace, int64_t workspace_bytes, void* stream) {
  return octile::guarded([&]() -> octile::Expected<void> {
    if (linear == nullptr) {
      return octile::null_argument("linear");
    }
    const auto codes_view = octile::to_view<octile::ConstMatrixView>("codes", codes);
    if (!codes_view) {
      return codes_view.error();
    }
    const auto y_view = octile::to_view<octile::MatrixView>("y", y);
    if (!y_view) {
      return y_view.error();
    }
    return linear->value.run_quantized(*codes_view, scales, *y_view, workspace, workspace_bytes, stream);
  });
}

octile_status octile_linear_explain(const octile_linear* linear, int64_t m, char** json) {
  return octile::guarded([&]() -> octile::Expected<void> {
    if (json == nullptr) {
      return octile::null_argument("json");
    }
    *json = nullptr;
    if (linear == nullptr) {
      return octile::null_argument("linear");
    }
    return octile::hand_out(octile::to_json(linear->value.explain(m)), json);
  });
}

octile_status octile_quantize_per_token(const octile_const_matrix* x, uint8_t* codes, float* scales,
                                        const octile_quantize_options* options) {
  return octile::guarded([&]() -> octile::Expected<void> {
    const auto view = octile::to_view<octile::ConstMatrixView>("x", x);
    if (!view) {
      return view.error();
    }
    const auto cpp_options = octile::to_cpp(options);
    if (!cpp_options) {
      return cpp_options.error();
    }
    return octile::quantize_per_token(*view, codes, scales, *cpp_options);
  });
}

octile_status octile_quantize_preset(const char* engine, octile_quantize_options* options) {
  return octile::guarded([&]() -> octile::Expected<void> {
    if (const auto checked = octile::copied("quantize_options", options); !checked) {
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
  return octile::guarded([&]() -> octile::Expected<void> {
    if (function == nullptr) {
      return octile::register_engine_baseline(device_kind, name, nullptr);
    }
    return octile::register_engine_baseline(device_kind, name, [function, user](const octile::BaselineCall& call) {
      return octile::call_engine(function, user, call);
    });
  });
}

}  // extern "C"
