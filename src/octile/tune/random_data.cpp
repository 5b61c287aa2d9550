// SPDX-License-Identifier: Apache-2.0
// Random operands by look-up: 12 random bits choose one of 4096 quantiles of the distribution.
#include "octile/tune/random_data.h"

#include "octile/core/float_formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>

namespace octile {

namespace {

constexpr std::size_t kQuantiles = 4096;
constexpr int kQuantileBits = 12;
constexpr int kDrawsPerWord = 64 / kQuantileBits;

// Marsaglia's xorshift64* on a seed spread by splitmix64: 0.3 ns a code beside 5 for std::mt19937_64.
class FastRandom {
 public:
  explicit FastRandom(std::uint64_t seed) {
    seed += 0x9E3779B97F4A7C15U;
    seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9U;
    seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBU;
    state_ = (seed ^ (seed >> 31)) | 1U;
  }
  std::uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1DU;
  }

 private:
  std::uint64_t state_;
};

// Values of a standard normal, in no order: drawn once, from a fixed seed.
const std::array<float, kQuantiles>& normal_values() {
  static const std::array<float, kQuantiles> values = [] {
    std::array<float, kQuantiles> v{};
    std::mt19937 generator(20'26);  // NOLINT(bugprone-random-generator-seed): the same table in every run.
    std::normal_distribution<float> normal(0.0F, 1.0F);
    for (float& x : v) {
      x = normal(generator);
    }
    return v;
  }();
  return values;
}

// Fills `count` elements by calling store(index, quantile) with random quantiles.
template <class Store>
void draw(std::size_t count, std::uint64_t seed, const Store& store) {
  FastRandom random(seed);
  for (std::size_t i = 0; i < count;) {
    std::uint64_t word = random.next() >> (64 % kQuantileBits);
    for (int draw_index = 0; draw_index < kDrawsPerWord && i < count; ++draw_index, ++i) {
      store(i, static_cast<std::size_t>(word & (kQuantiles - 1)));
      word >>= kQuantileBits;
    }
  }
}

template <class Word, class Convert>
void fill_activations(Word* data, std::size_t count, std::uint64_t seed, const Convert& convert) {
  std::array<Word, kQuantiles> table{};
  std::transform(normal_values().begin(), normal_values().end(), table.begin(), convert);
  draw(count, seed, [&](std::size_t i, std::size_t quantile) { data[i] = table[quantile]; });
  // Outliers: gaps between them are uniform in [1, 1999], 1000 on average.
  FastRandom random(seed + 1);
  for (std::size_t i = random.next() % 1999; i < count; i += 1 + random.next() % 1999) {
    data[i] = convert(100.0F * normal_values()[random.next() % kQuantiles]);
  }
}

}  // namespace

std::uint64_t fresh_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

void fill_random_codes(std::span<std::uint8_t> codes, std::uint64_t seed) {
  static const std::array<std::uint8_t, kQuantiles> table = [] {
    std::array<std::uint8_t, kQuantiles> t{};
    std::transform(normal_values().begin(), normal_values().end(), t.begin(),
                   [](float value) { return float_to_e4m3_saturate(64.0F * value); });
    return t;
  }();
  draw(codes.size(), seed, [&](std::size_t i, std::size_t quantile) { codes[i] = table[quantile]; });
}

void fill_random_scales(std::span<float> scales, std::uint64_t seed) {
  draw(scales.size(), seed, [&](std::size_t i, std::size_t quantile) {
    scales[i] = std::ldexp(0.5F + static_cast<float>(quantile) / static_cast<float>(kQuantiles), -10);
  });
}

void fill_random_activations(void* data, DType dtype, std::int64_t count, std::uint64_t seed) {
  const auto size = static_cast<std::size_t>(count);
  if (dtype == DType::bf16) {
    fill_activations(static_cast<std::uint16_t*>(data), size, seed, float_to_bf16);
  } else if (dtype == DType::fp16) {
    fill_activations(static_cast<std::uint16_t*>(data), size, seed, float_to_fp16);
  } else {
    fill_activations(static_cast<float*>(data), size, seed, [](float value) { return value; });
  }
}

std::vector<std::int64_t> sample_indices(std::int64_t size, std::int64_t count, std::uint64_t seed) {
  std::set<std::int64_t> chosen;
  if (size <= count) {
    for (std::int64_t i = 0; i < size; ++i) {
      chosen.insert(i);
    }
  } else {
    chosen = {0, size - 1};
    FastRandom random(seed);
    while (static_cast<std::int64_t>(chosen.size()) < count) {
      chosen.insert(static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(size)));
    }
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace octile
