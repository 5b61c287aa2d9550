// SPDX-License-Identifier: Apache-2.0
// Random operands, fast: a tuner fills a hundred megabytes of weights a shape, and every second of that is one less to
// measure in.
#pragma once

#include <octile/types.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace octile {

// A seed that differs from run to run.
std::uint64_t fresh_seed();

// e4m3 codes of normals of standard deviation 64 (448 saturates beyond 7 of them), no NaN.
void fill_random_codes(std::span<std::uint8_t> codes, std::uint64_t seed);
// Scales in [0.5, 1.5) * 2^-10.
void fill_random_scales(std::span<float> scales, std::uint64_t seed);
// Normals; 1 in 1000 is 100 times as large. `dtype`: bf16, fp16 or fp32; `data` holds `count` elements.
void fill_random_activations(void* data, DType dtype, std::int64_t count, std::uint64_t seed);

// Up to `count` of [0, size), ascending and distinct, the first and the last among them.
std::vector<std::int64_t> sample_indices(std::int64_t size, std::int64_t count, std::uint64_t seed);

}  // namespace octile
