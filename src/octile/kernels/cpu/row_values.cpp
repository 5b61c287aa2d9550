// SPDX-License-Identifier: Apache-2.0
// Rows of e4m3 values, by the engines' quantisers.
#include "octile/kernels/cpu/row_values.h"

#include "octile/core/float_formats.h"
#include "octile/core/format.h"
#include "octile/kernels/cpu/engine.h"
#include "octile/quant/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace octile::cpu {
namespace {

constexpr std::int64_t kChunk = 512;  // Elements at a time: 2 KiB of fp32 stay in L1.

const QuantizeOps& quantizer(Isa isa) noexcept {
  const Engine* fast = isa >= Isa::avx2 ? avx2_engine() : nullptr;
  return *(fast == nullptr ? reference_engine() : fast)->quantize;
}

// All 256 codes in both types.
struct DecodeTables {
  std::array<float, 256> fp32;
  std::array<std::uint16_t, 256> bf16;
};
const DecodeTables& decode_tables() {
  static const DecodeTables tables = [] {
    DecodeTables t{};
    for (std::size_t code = 0; code < 256; ++code) {
      t.fp32[code] = e4m3_to_float(static_cast<std::uint8_t>(code));
      t.bf16[code] = float_to_bf16(t.fp32[code]);
    }
    return t;
  }();
  return tables;
}

template <class Value>
void look_up(const std::uint8_t* codes, std::int64_t count, const std::array<Value, 256>& table,
             std::byte* values) noexcept {
  auto* out = reinterpret_cast<Value*>(values);
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = table[codes[i]];
  }
}

const void* row_begin(const ConstMatrixView& x, std::int64_t row) noexcept {
  return static_cast<const std::byte*>(x.data) + row * x.row_stride * size_of(x.dtype);
}

}  // namespace

void decode_codes(const std::uint8_t* codes, std::int64_t count, DType dtype, std::byte* values) noexcept {
  if (dtype == DType::bf16) {
    look_up(codes, count, decode_tables().bf16, values);
  } else {
    look_up(codes, count, decode_tables().fp32, values);
  }
}

float row_scale(const Activation& activation, std::int64_t row, Isa isa) noexcept {
  const ConstMatrixView& x = activation.x;
  if (activation.scales != nullptr) {
    return activation.scales[row];  // A NaN among the codes reaches every sum of its row by itself.
  }
  const float amax = quantizer(isa).row_amax(row_begin(x, row), x.dtype, x.cols);
  if (std::isnan(amax)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return activation.static_scale > 0.0F ? activation.static_scale : scale_of_amax(amax, activation.quantize);
}

void row_values(const Activation& activation, std::int64_t row, float scale, DType dtype, std::byte* values,
                Isa isa) noexcept {
  const ConstMatrixView& x = activation.x;
  const std::int64_t bytes = size_of(dtype);
  if (activation.scales != nullptr) {
    decode_codes(static_cast<const std::uint8_t*>(row_begin(x, row)), x.cols, dtype, values);
    return;
  }
  if (std::isnan(scale)) {
    std::memset(values, 0, static_cast<std::size_t>(x.cols * bytes));
    return;
  }
  const Division division = activation.static_scale > 0.0F ? Division::exact : activation.quantize.division;
  std::array<float, kChunk> grid;
  for (std::int64_t k = 0; k < x.cols; k += kChunk) {
    const std::int64_t count = std::min(kChunk, x.cols - k);
    if (dtype == DType::fp32) {
      quantizer(isa).round_to_grid(row_begin(x, row), x.dtype, k, count, scale, division,
                                   reinterpret_cast<float*>(values) + k);
      continue;
    }
    quantizer(isa).round_to_grid(row_begin(x, row), x.dtype, k, count, scale, division, grid.data());
    auto* out = reinterpret_cast<std::uint16_t*>(values) + k;
    for (std::int64_t i = 0; i < count; ++i) {  // Grid values have 4 significant bits: the upper half is the exact bf16.
      out[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(grid[static_cast<std::size_t>(i)]) >> 16U);
    }
  }
}

Expected<void> check_activation(const Activation& activation, std::int64_t k) {
  if (activation.scales != nullptr) {
    return check_codes_view(activation.x, k);
  }
  if (!std::isfinite(activation.static_scale) || activation.static_scale < 0.0F) {
    return make_error(ErrorCode::invalid_argument, "static activation scale: want a finite value > 0, got {}",
                      activation.static_scale);
  }
  if (Expected<void> ok = check_quantize_options(activation.quantize); !ok) {
    return ok;
  }
  return check_activation_view(activation.x, k);
}

}  // namespace octile::cpu
