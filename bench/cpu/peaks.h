// SPDX-License-Identifier: Apache-2.0
// What this machine's cores and memory can do at most, to hold kernels against: floating-point operations with operands in
// registers, and reading memory once.
#pragma once

#include "octile/kernels/cpu/cpu_features.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace octile::cpu {

// The instructions whose peak is measured, as far as the CPU at hand has them: "avx2_fma", "avx512_fma", "avx512_dot",
// "amx".
std::vector<std::string_view> known_peaks();

// GFLOP/s of `instruction` on `threads` threads of the pool, each for about 30 ms; nothing where it is unknown or may not
// be used here.
std::optional<double> peak_gflops(std::string_view instruction, int threads);

// GB/s of reading `bytes` at `data` once with `threads` threads, each with every prefetch distance in turn; the best counts.
double read_gbps(const void* data, std::int64_t bytes, int threads);

}  // namespace octile::cpu
