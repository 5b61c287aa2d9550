// SPDX-License-Identifier: Apache-2.0
// Checks of a weight as a checkpoint holds it.
#include "octile/quant/weight_source.h"

#include "octile/core/float_formats.h"
#include "octile/core/format.h"

#include <algorithm>
#include <cmath>

namespace octile {
namespace {

constexpr std::int64_t kLargestCodes = std::int64_t{1} << 46;

// +0 and -0 alike.
bool all_codes_zero(const WeightSource& source, std::int64_t n) {
  const auto* row = static_cast<const std::uint8_t*>(source.codes) + n * weight_row_stride(source);
  return std::all_of(row, row + source.k, [](std::uint8_t code) { return (code & 0x7FU) == 0; });
}

Expected<void> check_scale(const WeightSource& source, std::int64_t n) {
  const float scale = weight_scale(source, n);
  if (!std::isfinite(scale) || scale < 0.0F) {
    return make_error(ErrorCode::invalid_argument, "weight scale {}: want a finite value > 0, got {}", n, scale);
  }
  if (scale == 0.0F && !all_codes_zero(source, n)) {
    return make_error(ErrorCode::invalid_argument,
                      "weight scale {}: want a finite value > 0, got 0 for a channel whose codes are not all 0", n);
  }
  return {};
}

}  // namespace

std::int64_t weight_row_stride(const WeightSource& source) noexcept {
  return source.row_stride == 0 ? source.k : source.row_stride;
}

float weight_scale(const WeightSource& source, std::int64_t n) noexcept {
  return load_as_float(source.scales, source.scale_dtype, source.scale_count == 1 ? 0 : n);
}

Expected<void> check_weight_source(const WeightSource& source) {
  if (source.n < 1 || source.k < 1) {
    return make_error(ErrorCode::invalid_argument, "weight: want N >= 1 and K >= 1, got [{}, {}]", source.n, source.k);
  }
  if (source.code_dtype != DType::e4m3) {
    return make_error(ErrorCode::invalid_argument, "weight [{}, {}]: want codes in e4m3, got {}", source.n, source.k,
                      to_string(source.code_dtype));
  }
  if (weight_row_stride(source) < source.k) {
    return make_error(ErrorCode::invalid_argument, "weight [{}, {}]: want row stride >= {} (or 0 for it), got {}", source.n,
                      source.k, source.k, source.row_stride);
  }
  // More codes than any address space holds: later products of shapes may then be taken for granted.
  if (source.n > kLargestCodes / weight_row_stride(source)) {
    return make_error(ErrorCode::invalid_argument, "weight [{}, {}] with row stride {}: want at most {} codes", source.n,
                      source.k, weight_row_stride(source), kLargestCodes);
  }
  if (source.codes == nullptr || source.scales == nullptr) {
    return make_error(ErrorCode::invalid_argument, "weight [{}, {}]: want codes and scales, got a null pointer for the {}",
                      source.n, source.k, source.codes == nullptr ? "codes" : "scales");
  }
  if (source.scale_dtype != DType::fp32 && source.scale_dtype != DType::bf16 && source.scale_dtype != DType::fp16) {
    return make_error(ErrorCode::invalid_argument, "weight [{}, {}]: want scales in fp32, bf16 or fp16, got {}", source.n,
                      source.k, to_string(source.scale_dtype));
  }
  if (source.scale_count != source.n && source.scale_count != 1) {
    return make_error(ErrorCode::invalid_argument, "weight [{}, {}]: want {} scales (one a row) or 1, got {}", source.n,
                      source.k, source.n, source.scale_count);
  }
  for (std::int64_t n = 0; n < source.n; ++n) {
    if (auto ok = check_scale(source, n); !ok) {
      return ok;
    }
  }
  return {};
}

}  // namespace octile
