// SPDX-License-Identifier: Apache-2.0
#include "octile/linear/c_api_support.h"

#include <string>

namespace octile::c_api {

namespace {

// The calling thread's last message. Where even a message finds no memory, a literal stands in for it.
struct LastError {
  std::string text;
  const char* literal = nullptr;
};
LastError& last_error() noexcept {
  static thread_local LastError instance;
  return instance;
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

}  // namespace

octile_status status_of(ErrorCode code) noexcept {
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

octile_status unknown_failure() noexcept {
  last_error().literal = "unknown failure";
  return OCTILE_FAILED;
}

const char* last_message() noexcept {
  const LastError& last = last_error();
  return last.literal != nullptr ? last.literal : last.text.c_str();
}

Error null_argument(const char* name) { return make_error(ErrorCode::invalid_argument, "{}: got NULL", name); }

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

Expected<QuantizeOptions> quantize_options_of(const octile_quantize_options* from) {
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

}  // namespace octile::c_api
