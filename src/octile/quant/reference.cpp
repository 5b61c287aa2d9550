// SPDX-License-Identifier: Apache-2.0
// The linear in double precision. Products of two e4m3 values have at most 8 significant bits and sums of up to 2^40 of them
// fit a double exactly, so the sum itself carries no error at all; only scale, bias and the final rounding do.
#include "octile/quant/reference.h"

#include "octile/core/float_formats.h"
#include "octile/core/format.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace octile {
namespace {

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> made{};
    for (std::size_t code = 0; code < made.size(); ++code) {
      made[code] = e4m3_to_float(static_cast<std::uint8_t>(code));
    }
    return made;
  }();
  return values;
}

void decode_row(const std::uint8_t* codes, std::int64_t k, std::vector<float>& out) {
  const auto& values = e4m3_values();
  out.resize(static_cast<std::size_t>(k));
  std::transform(codes, codes + k, out.begin(), [&values](std::uint8_t code) { return values[code]; });
}

// Element `at` of the result, of row `row` and column `column` of the operands.
void set_element(const ReferenceInputs& in, const std::vector<float>& x, const std::vector<float>& w, std::int64_t row,
                 std::int64_t column, std::size_t at, Reference& result) {
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double product = static_cast<double>(x[i]) * static_cast<double>(w[i]);
    sum += product;
    squares += product * product;
  }
  const double scale = static_cast<double>(in.scales_w[column]) * static_cast<double>(in.scales_x[row]);
  const double bias = in.bias == nullptr ? 0.0 : static_cast<double>(in.bias[column]);
  result.values[at] = in.bias == nullptr ? sum * scale : sum * scale + bias;
  result.addends[at] = std::sqrt(squares * scale * scale + bias * bias);
}

}  // namespace

Reference reference_samples(const ReferenceInputs& in, const std::vector<std::int64_t>& rows,
                            const std::vector<std::int64_t>& columns) {
  Reference result;
  result.values.resize(rows.size() * columns.size());
  result.addends.resize(result.values.size());
  std::vector<std::vector<float>> activations(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    decode_row(in.codes_x + rows[i] * in.k, in.k, activations[i]);
  }
  std::vector<float> weights;
  for (std::size_t j = 0; j < columns.size(); ++j) {
    decode_row(in.codes_w + columns[j] * in.k, in.k, weights);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      set_element(in, activations[i], weights, rows[i], columns[j], i * columns.size() + j, result);
    }
  }
  return result;
}

Reference reference_linear(const ReferenceInputs& in) {
  const auto all = [](std::int64_t count) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      indices[i] = static_cast<std::int64_t>(i);
    }
    return indices;
  };
  return reference_samples(in, all(in.m), all(in.n));
}

std::string ErrorReport::to_string() const {
  return format(
      "relative Frobenius error {:.3e}, largest row error {:.3e}, worst element ({}, {}): got {:.9g}, want {:.9g}{}",
      relative_frobenius, largest_row, worst_row, worst_col, worst_value, worst_reference,
      nan_mismatch ? " (NaN on one side only)" : "");
}

ErrorReport compare_with_reference(const void* y, DType dtype, std::int64_t row_stride, const Reference& reference,
                                   std::int64_t m, std::int64_t n) {
  const double half_a_step = dtype == DType::fp16 ? 0x1p-25 : 0.0;
  ErrorReport report;
  double error_total = 0;
  double norm_total = 0;
  double worst = -1;
  for (std::int64_t row = 0; row < m; ++row) {
    double error_row = 0;
    double norm_row = 0;
    for (std::int64_t column = 0; column < n; ++column) {
      const auto at = static_cast<std::size_t>(row * n + column);
      const double want = reference.values[at];
      const double got = static_cast<double>(load_as_float(y, dtype, row * row_stride + column));
      const bool both_nan = std::isnan(want) && std::isnan(got);
      // Infinities of the same sign agree: an fp16 output overflows where the reference is beyond 65504.
      const bool both_overflow = std::isinf(got) && !std::isnan(want) && (got > 0) == (want > 0) && dtype == DType::fp16 &&
                                 std::fabs(want) >= 65504.0;
      if (both_nan || both_overflow) {
        continue;
      }
      const bool mismatch = std::isnan(want) != std::isnan(got);
      const double difference = mismatch ? INFINITY : std::max(std::fabs(got - want) - half_a_step, 0.0);
      if ((mismatch && !report.nan_mismatch) || (!report.nan_mismatch && difference > worst)) {
        worst = difference;
        report.worst_row = row;
        report.worst_col = column;
        report.worst_value = got;
        report.worst_reference = want;
        report.nan_mismatch = mismatch;
      }
      error_row += difference * difference;
      const double magnitude = std::max(std::fabs(want), reference.addends[at]);
      norm_row += magnitude * magnitude;
    }
    const double relative =
        error_row == 0 ? 0 : std::sqrt(error_row / norm_row);  // x / 0 is infinity: an error where none may be.
    report.largest_row = std::max(report.largest_row, relative);
    error_total += error_row;
    norm_total += norm_row;
  }
  report.relative_frobenius = error_total == 0 ? 0 : std::sqrt(error_total / norm_total);
  return report;
}

double error_tolerance(DType out, std::int64_t k, Accumulate accumulate) {
  // One rounding to `out` with p significant bits errs by at most 2^-p of a value, and by 2^-p / sqrt(3) in the mean square
  // where the value sits low in its binade; the bound keeps the whole 2^-p. fp32 accumulation of k products errs by about
  // 2^-24 * sqrt(k) of the sum of magnitudes; that sum is about sqrt(k) times the result for random signs, hence 2^-24 * k
  // as a bound in norm.
  const double output = out == DType::bf16 ? 0x1p-8 : out == DType::fp16 ? 0x1p-11 : 0x1p-23;
  const double accumulation = 0x1p-24 * static_cast<double>(k) + 0x1p-22;
  // Hopper's tensor core keeps about 13 bits below the largest addend: 2.1e-3 at K = 4096 and 3.1e-3 at K = 12288 were
  // measured including 1.7e-3 of output rounding, that is about 2e-5 * sqrt(K).
  const double narrow = accumulate == Accumulate::fast ? 4e-5 * std::sqrt(static_cast<double>(k)) : 0.0;
  return output + accumulation + narrow;
}

}  // namespace octile
