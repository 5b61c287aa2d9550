// SPDX-License-Identifier: Apache-2.0
// Checks of a poisoned output; see output_check.h.
#include "octile/tune/output_check.h"

#include "octile/core/float_formats.h"
#include "octile/core/format.h"
#include "octile/kernels/cpu/thread_pool.h"
#include "octile/quant/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace octile {

namespace {

const std::uint8_t* elements_of(const GuardedOutput& output) { return output.bytes.data() + kGuardBytes; }

float element(const std::uint8_t* data, DType dtype, std::int64_t index) {
  if (dtype == DType::bf16) {  // In line: an output of 1024 x 24576 is read twice.
    std::uint16_t bits = 0;
    std::memcpy(&bits, data + index * 2, 2);
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  return load_as_float(data, dtype, index);
}

// Calls check(first, last) for ranges of rows on the process's threads and returns the first range's message that is not
// empty. An output of 16384 x 24576 has 800 MB.
template <class Check>
std::string for_rows(std::int64_t m, std::int64_t n, Check check) {
  constexpr std::int64_t kElementsAPart = 1 << 20;
  const std::int64_t rows = std::max<std::int64_t>(1, kElementsAPart / std::max<std::int64_t>(n, 1));
  const std::int64_t parts = (m + rows - 1) / rows;
  std::vector<std::string> messages(static_cast<std::size_t>(parts));
  cpu::ThreadPool::instance().run(static_cast<int>(parts), [&](int part) {
    messages[static_cast<std::size_t>(part)] = check(part * rows, std::min(m, (part + 1) * rows));
  });
  const auto bad = std::ranges::find_if(messages, [](const std::string& message) { return !message.empty(); });
  return bad == messages.end() ? std::string() : *bad;
}

// The norm of a row of a few samples strays further from the whole's than rounding alone: room for it.
constexpr double kSampleSlack = 1.5;
constexpr double kRowSlack = 4.0;

}  // namespace

std::string check_guards(const GuardedOutput& output) {
  const auto is_poison = [](std::uint8_t byte) { return byte == kPoison; };
  const auto begin = output.bytes.begin();
  if (!std::all_of(begin, begin + kGuardBytes, is_poison)) {
    return "wrote before the first element of the output";
  }
  if (!std::all_of(output.bytes.end() - kGuardBytes, output.bytes.end(), is_poison)) {
    return "wrote behind the last element of the output";
  }
  return {};
}

std::string check_all_written(const GuardedOutput& output) {
  const std::uint8_t* data = elements_of(output);
  return for_rows(output.m, output.n, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first * output.n; i < last * output.n; ++i) {
      if (std::isnan(element(data, output.dtype, i))) {
        return format("element ({}, {}) is NaN: never written, or wrong", i / output.n, i % output.n);
      }
    }
    return std::string();
  });
}

std::string check_samples(const GuardedOutput& output, const std::vector<std::int64_t>& rows,
                          const std::vector<std::int64_t>& columns, const Reference& reference, double tolerance,
                          double& relative_error) {
  std::vector<std::uint8_t> samples;
  const auto size = static_cast<std::size_t>(size_of(output.dtype));
  samples.reserve(rows.size() * columns.size() * size);
  for (const std::int64_t row : rows) {
    for (const std::int64_t column : columns) {
      const std::uint8_t* at = elements_of(output) + static_cast<std::size_t>(row * output.n + column) * size;
      samples.insert(samples.end(), at, at + size);
    }
  }
  const auto sample_rows = static_cast<std::int64_t>(rows.size());
  const auto sample_columns = static_cast<std::int64_t>(columns.size());
  const ErrorReport report =
      compare_with_reference(samples.data(), output.dtype, sample_columns, reference, sample_rows, sample_columns);
  relative_error = report.relative_frobenius;
  const bool is_near = report.relative_frobenius <= kSampleSlack * tolerance && report.largest_row <= kRowSlack * tolerance;
  if (is_near && !report.nan_mismatch) {
    return {};
  }
  return format(
      "relative error {:.3g} (largest row {:.3g}) where at most {:.3g} is rounding; worst element ({}, {}): got "
      "{:.6g}, reference {:.6g}",
      report.relative_frobenius, report.largest_row, tolerance, rows[static_cast<std::size_t>(report.worst_row)],
      columns[static_cast<std::size_t>(report.worst_col)], report.worst_value, report.worst_reference);
}

std::string check_agreement(const GuardedOutput& output, const GuardedOutput& other, double tolerance) {
  const std::uint8_t* a = elements_of(output);
  const std::uint8_t* b = elements_of(other);
  const std::size_t row_bytes = static_cast<std::size_t>(output.n * size_of(output.dtype));
  return for_rows(output.m, output.n, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {
      const std::size_t offset = static_cast<std::size_t>(row) * row_bytes;
      if (std::memcmp(a + offset, b + offset, row_bytes) == 0) {
        continue;
      }
      double difference = 0;
      double norm = 0;
      for (std::int64_t i = row * output.n; i < (row + 1) * output.n; ++i) {
        const double value = element(b, output.dtype, i);
        const double distance = element(a, output.dtype, i) - value;
        if (std::isfinite(value) && std::isfinite(distance)) {
          difference += distance * distance;
          norm += value * value;
        }
      }
      if (std::sqrt(difference) > 2 * kRowSlack * tolerance * std::sqrt(norm)) {
        return format("row {} differs from the baseline's by {:.3g} relative, where at most {:.3g} is rounding", row,
                      std::sqrt(difference / std::max(norm, 1e-300)), 2 * tolerance);
      }
    }
    return std::string();
  });
}

}  // namespace octile
