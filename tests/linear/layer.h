// SPDX-License-Identifier: Apache-2.0
// One linear layer on random data, its reference, and calls of it: for the tests of Fp8Linear on any device.
#pragma once

#include "octile/core/float_formats.h"
#include "octile/quant/quantize.h"
#include "octile/quant/reference.h"
#include "support/random.h"

#include <octile/octile.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace octile::test {

// A workspace of exactly `bytes`, aligned, with guard bytes behind it.
class Workspace {
 public:
  explicit Workspace(std::int64_t bytes)
      : bytes_(bytes), storage_(static_cast<std::size_t>(bytes + kAlignment + kGuard), kGuardByte) {}
  void* data() {
    void* start = storage_.data();
    std::size_t space = storage_.size();
    return std::align(kAlignment, static_cast<std::size_t>(bytes_ + kGuard), start, space);
  }
  std::int64_t bytes() const { return bytes_; }
  bool guard_intact() {
    const auto* behind = static_cast<const unsigned char*>(data()) + bytes_;
    return std::all_of(behind, behind + kGuard, [](unsigned char byte) { return byte == kGuardByte; });
  }

 private:
  static constexpr std::size_t kAlignment = 256;
  static constexpr std::int64_t kGuard = 256;
  static constexpr unsigned char kGuardByte = 0x5A;
  std::int64_t bytes_;
  std::vector<unsigned char> storage_;
};

// Weights with one scale a channel and room between rows.
struct Weights {
  std::int64_t n = 0, k = 0, row_stride = 0;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;

  Weights(std::int64_t its_n, std::int64_t its_k, std::int64_t padding = 0)
      : n(its_n), k(its_k), row_stride(its_k + padding), codes(random_codes(n * row_stride)), scales(random_scales(n)) {}
  WeightSource source() const {
    WeightSource result;
    result.n = n;
    result.k = k;
    result.codes = codes.data();
    result.row_stride = row_stride;
    result.scales = scales.data();
    result.scale_count = n;
    return result;
  }
  std::vector<std::uint8_t> contiguous_codes() const {
    std::vector<std::uint8_t> result;
    for (std::int64_t row = 0; row < n; ++row) {
      result.insert(result.end(), codes.begin() + row * row_stride, codes.begin() + row * row_stride + k);
    }
    return result;
  }
};

// Raw activations [m, k] of bf16 or fp16 with room between rows, and what the contract makes of them.
struct Inputs {
  std::int64_t m = 0, k = 0, row_stride = 0;
  DType dtype = DType::bf16;
  std::vector<unsigned char> bytes;
  std::vector<std::uint8_t> codes;  // [m, k]
  std::vector<float> scales;        // [m]

  Inputs(std::int64_t its_m, std::int64_t its_k, std::int64_t padding = 0, DType its_dtype = DType::bf16,
         const QuantizeOptions& options = {})
      : m(its_m),
        k(its_k),
        row_stride(its_k + padding),
        dtype(its_dtype),
        bytes(as_bytes(normals_with_outliers(its_m * row_stride), its_dtype)),
        codes(static_cast<std::size_t>(its_m * its_k)),
        scales(static_cast<std::size_t>(its_m)) {
    for (std::int64_t row = 0; row < m; ++row) {
      scales[static_cast<std::size_t>(row)] =
          quantize_row(bytes.data() + row * row_stride * size_of(dtype), dtype, k, codes.data() + row * k, options);
    }
  }
  ConstMatrixView view(std::int64_t first = 0, std::int64_t rows = -1) const {
    return {bytes.data() + first * row_stride * size_of(dtype), dtype, rows < 0 ? m - first : rows, k, row_stride, 1};
  }
  ConstMatrixView codes_view() const { return {codes.data(), DType::e4m3, m, k, k, 1}; }
};

// The output in double, and how far `y` is from it.
inline ErrorReport distance(const Weights& weights, const Inputs& inputs, const float* bias, MatrixView y) {
  const std::vector<std::uint8_t> codes_w = weights.contiguous_codes();
  const Reference reference = reference_linear({inputs.m, weights.n, weights.k, inputs.codes.data(), inputs.scales.data(),
                                                codes_w.data(), weights.scales.data(), bias});
  return compare_with_reference(y.data, y.dtype, y.row_stride, reference, inputs.m, weights.n);
}

inline void expect_close(const Weights& weights, const Inputs& inputs, const float* bias, MatrixView y) {
  const ErrorReport report = distance(weights, inputs, bias, y);
  EXPECT_FALSE(report.nan_mismatch) << report.to_string();
  EXPECT_LE(report.relative_frobenius, error_tolerance(y.dtype, weights.k, Accumulate::device_default))
      << report.to_string();
}

inline std::vector<unsigned char> bytes_of(MatrixView y) {
  std::vector<unsigned char> result;
  for (std::int64_t row = 0; row < y.rows; ++row) {
    const auto* start = static_cast<const unsigned char*>(y.data) + row * y.row_stride * size_of(y.dtype);
    result.insert(result.end(), start, start + y.cols * size_of(y.dtype));
  }
  return result;
}

// Runs with a workspace of exactly the bytes asked for; poisoned output, guards checked. Returns the output's bytes.
inline std::vector<unsigned char> run_guarded(const Fp8Linear& linear, ConstMatrixView x, DType out_dtype, std::int64_t n) {
  GuardedOutput y(out_dtype, x.rows, n, n + 3);
  Workspace workspace(linear.workspace_bytes(x.rows));
  const auto ok = linear.run(x, y.view(), workspace.data(), workspace.bytes());
  EXPECT_TRUE(ok.has_value()) << ok.error().message;
  EXPECT_TRUE(y.guards_intact());
  EXPECT_TRUE(workspace.guard_intact());
  return bytes_of(y.view());
}

}  // namespace octile::test
