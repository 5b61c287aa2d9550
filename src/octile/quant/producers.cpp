// SPDX-License-Identifier: Apache-2.0
#include "octile/quant/producers.h"

#include "octile/core/float_formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

namespace octile {
namespace {

constexpr std::int64_t kPositions = 4096;
constexpr std::int64_t kVector = 8;  // Elements that differ in bits 0 to 2 of their position.
constexpr std::int64_t kVectors = kPositions / kVector;
constexpr std::int64_t kChunk = 512;  // Elements converted at a time: 2 KiB of fp32 stay in L1.
using Chunk = std::array<float, kChunk>;

const unsigned char* element(const void* data, DType dtype, std::int64_t index) noexcept {
  return static_cast<const unsigned char*>(data) + index * size_of(dtype);
}

std::uint16_t to_bits(float value, DType dtype) noexcept {
  return dtype == DType::bf16 ? float_to_bf16(value) : float_to_fp16(value);
}
float from_bits(std::uint16_t bits, DType dtype) noexcept {
  return dtype == DType::bf16 ? bf16_to_float(bits) : fp16_to_float(bits);
}
float rounded(float value, DType dtype) noexcept { return from_bits(to_bits(value, dtype), dtype); }

// type(silu(g)) as fp32, by the bits of g.
using SiluTable = std::array<float, 65536>;
std::unique_ptr<const SiluTable> make_silu_table(DType dtype) {
  auto table = std::make_unique<SiluTable>();
  for (std::size_t bits = 0; bits < table->size(); ++bits) {
    const auto gate = static_cast<double>(from_bits(static_cast<std::uint16_t>(bits), dtype));
    (*table)[bits] = rounded(static_cast<float>(gate / (1.0 + std::exp(-gate))), dtype);
  }
  return table;
}
template <DType kDtype>
const SiluTable& silu_table_of() {
  static const std::unique_ptr<const SiluTable> table = make_silu_table(kDtype);
  return *table;
}
const SiluTable& silu_table(DType dtype) {
  return dtype == DType::bf16 ? silu_table_of<DType::bf16>() : silu_table_of<DType::fp16>();
}

}  // namespace

void add_rounded(const void* x, const void* residual, DType dtype, std::int64_t count, void* sum) noexcept {
  Chunk a;
  Chunk b;
  for (std::int64_t first = 0; first < count; first += kChunk) {
    const std::int64_t n = std::min(kChunk, count - first);
    load_floats(x, dtype, first, n, a.data());
    load_floats(residual, dtype, first, n, b.data());
    std::transform(a.begin(), a.begin() + n, b.begin(), a.begin(), [](float p, float q) { return p + q; });
    store_floats(sum, dtype, first, n, a.data());
  }
}

float sum_of_squares(const void* s, DType dtype, std::int64_t k) noexcept {
  std::array<float, kPositions> at{};
  Chunk values;
  for (std::int64_t first = 0; first < k; first += kChunk) {
    const std::int64_t n = std::min(kChunk, k - first);
    load_floats(s, dtype, first, n, values.data());
    float* sums = at.data() + first % kPositions;
    for (std::int64_t i = 0; i < n; ++i) {
      const float square = values[static_cast<std::size_t>(i)] * values[static_cast<std::size_t>(i)];
      sums[i] += square;
    }
  }
  // Bits 0, 1, 2; the sums of vectors go where bits 10, 11, 3, ..., 9 of the position are bits 0, 1, 2, ..., 8 of the index.
  std::array<float, kVectors> sums;
  for (std::int64_t v = 0; v < kVectors; ++v) {
    const float* p = at.data() + v * kVector;
    sums[static_cast<std::size_t>(v % 128 * 4 + v / 128)] =
        ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
  }
  for (std::size_t half = kVectors / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) {
      sums[i] = sums[2 * i] + sums[2 * i + 1];
    }
  }
  return sums[0];
}

float rms_norm_factor(float sum_of_squares, std::int64_t k, float epsilon) noexcept {
  if (!std::isfinite(sum_of_squares)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float inverse_k = 1.0F / static_cast<float>(k);
  const float mean = sum_of_squares * inverse_k;
  return 1.0F / std::sqrt(mean + epsilon);
}

void rms_norm_elements(const void* s, const void* gamma, DType dtype, std::int64_t count, float factor, void* y) noexcept {
  Chunk values;
  Chunk weights;
  for (std::int64_t first = 0; first < count; first += kChunk) {
    const std::int64_t n = std::min(kChunk, count - first);
    load_floats(s, dtype, first, n, values.data());
    load_floats(gamma, dtype, first, n, weights.data());
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      values[i] = rounded(values[i] * factor, dtype) * weights[i];
    }
    store_floats(y, dtype, first, n, values.data());
  }
}

void prepare_swiglu(DType dtype) { silu_table(dtype); }

void swiglu_elements(const void* gate, const void* up, DType dtype, std::int64_t count, void* y) noexcept {
  const SiluTable& silu = silu_table(dtype);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, element(gate, dtype, i), sizeof bits);
    store_from_float(y, dtype, i, silu[bits] * load_as_float(up, dtype, i));
  }
}

}  // namespace octile
