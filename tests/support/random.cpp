// SPDX-License-Identifier: Apache-2.0
#include "support/random.h"

#include "octile/core/float_formats.h"
#include "octile/core/format.h"

#include <algorithm>
#include <cstdlib>

namespace octile::test {
namespace {

constexpr std::int64_t kGuardBytes = 256;
// 0xFF bytes are a NaN in bf16, fp16 and fp32 alike.
constexpr unsigned char kPoison = 0xFF;

}  // namespace

std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* text = std::getenv("OCTILE_TEST_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : std::uint64_t{std::random_device{}()};
  }();
  return value;
}

std::string seed_text() { return format("OCTILE_TEST_SEED={}", seed()); }

std::mt19937_64& generator() {
  static std::mt19937_64 instance(seed());
  return instance;
}

std::vector<float> normals(std::int64_t count, float sigma) {
  std::normal_distribution<float> distribution(0.0F, sigma);
  std::vector<float> values(static_cast<std::size_t>(count));
  std::ranges::generate(values, [&] { return distribution(generator()); });
  return values;
}

std::vector<float> normals_with_outliers(std::int64_t count) {
  std::vector<float> values = normals(count);
  std::uniform_int_distribution<int> draw(0, 999);
  for (float& value : values) {
    if (draw(generator()) == 0) {
      value *= 100.0F;
    }
  }
  return values;
}

std::vector<unsigned char> as_bytes(const std::vector<float>& values, DType dtype) {
  std::vector<unsigned char> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    store_from_float(bytes.data(), dtype, static_cast<std::int64_t>(i), values[i]);
  }
  return bytes;
}

std::vector<std::uint8_t> random_codes(std::int64_t count, float sigma) {
  const std::vector<float> values = normals(count, sigma);
  std::vector<std::uint8_t> codes(values.size());
  std::ranges::transform(values, codes.begin(), float_to_e4m3_saturate);
  return codes;
}

std::vector<float> random_scales(std::int64_t count) {
  std::uniform_real_distribution<float> draw(0.0051F, 0.0199F);
  std::vector<float> scales(static_cast<std::size_t>(count));
  std::ranges::generate(scales, [&] { return draw(generator()); });
  return scales;
}

GuardedOutput::GuardedOutput(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t row_stride)
    : dtype_(dtype),
      rows_(rows),
      cols_(cols),
      row_stride_(row_stride),
      bytes_(static_cast<std::size_t>(2 * kGuardBytes + rows * row_stride * size_of(dtype)), kPoison) {}

std::int64_t GuardedOutput::offset(std::int64_t row) const { return kGuardBytes + row * row_stride_ * size_of(dtype_); }

void* GuardedOutput::data() { return bytes_.data() + kGuardBytes; }

MatrixView GuardedOutput::view() { return {data(), dtype_, rows_, cols_, row_stride_, 1}; }

void GuardedOutput::poison() { std::ranges::fill(bytes_, kPoison); }

bool GuardedOutput::guards_intact() const {
  const auto untouched = [this](std::int64_t begin, std::int64_t end) {
    return std::all_of(bytes_.begin() + begin, bytes_.begin() + end, [](unsigned char b) { return b == kPoison; });
  };
  for (std::int64_t row = 0; row < rows_; ++row) {
    if (!untouched(offset(row) + cols_ * size_of(dtype_), offset(row + 1))) {
      return false;
    }
  }
  return untouched(0, kGuardBytes) && untouched(offset(rows_), static_cast<std::int64_t>(bytes_.size()));
}

bool GuardedOutput::all_written() const {
  for (std::int64_t row = 0; row < rows_; ++row) {
    const auto begin = bytes_.begin() + offset(row);
    for (std::int64_t column = 0; column < cols_; ++column) {
      const auto element = begin + column * size_of(dtype_);
      if (std::all_of(element, element + size_of(dtype_), [](unsigned char b) { return b == kPoison; })) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace octile::test
