// SPDX-License-Identifier: Apache-2.0
// One linear on a CPU family: operands, a run with poisoned and guarded output, and its distance from the reference.
#pragma once

#include "octile/kernels/cpu/cpu_features.h"
#include "octile/kernels/family.h"
#include "support/random.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace octile::test {

// One engine of one family: the family as it behaves on a device of this instruction set.
struct CpuEngine {
  std::string label;  // "reference", "avx2", "avx512_fma", "avx512_dot", "amx", "amx_in_software".
  const KernelFamily* family = nullptr;
  cpu::Isa isa = cpu::Isa::generic;         // As DeviceInfo::arch names it.
  cpu::Isa needs_here = cpu::Isa::generic;  // What the CPU at hand must have: `isa` but for an engine in software.

  bool runs_here() const;
  DeviceInfo device(int threads) const;
};
std::vector<CpuEngine> cpu_engines();

// Operands of one linear. x lies in rows of x_stride elements; what is between and behind them is garbage (1e38 and NaN).
struct LinearOperands {
  std::int64_t m = 0, n = 0, k = 0;
  DType x_dtype = DType::bf16;
  std::int64_t x_stride = 0;
  std::vector<unsigned char> x;
  std::vector<std::uint8_t> codes_w;
  std::vector<float> scales_w;
  std::vector<float> bias;  // Empty: none.

  static LinearOperands random(std::int64_t m, std::int64_t n, std::int64_t k, DType x_dtype = DType::bf16);
  // From given rows [m, k].
  static LinearOperands of_rows(const std::vector<float>& rows, std::int64_t m, std::int64_t n, std::int64_t k,
                                DType x_dtype);
  ConstMatrixView x_view() const;
  WeightSource weight_source() const;
  // `count` rows from `first` on.
  LinearOperands rows(std::int64_t first, std::int64_t count) const;
};

// How one run differs from the plain one.
struct RunOptions {
  DType out_dtype = DType::bf16;
  std::int64_t y_padding = 3;  // Elements between rows of y.
  int threads = 2;
  std::optional<TileConfig> config;  // The heuristic's otherwise.
  bool batch_invariant = false;
  QuantizeOptions quantize;
  float static_scale = 0.0F;
  bool pre_quantized = false;  // Hand over e4m3 codes and scales instead of raw rows.
};

struct RunResult {
  std::vector<unsigned char> y;  // [m, n] without padding.
  std::string failure;           // Error, or a guard or poison that tells of a wrong store. Empty: fine.
};
RunResult run_linear(const CpuEngine& engine, const LinearOperands& operands, const RunOptions& options);

// "" where `y` is as close to the double-precision reference as rounding explains; else what is wrong.
std::string compare(const LinearOperands& operands, const RunOptions& options, const RunResult& result);

}  // namespace octile::test
