// SPDX-License-Identifier: Apache-2.0
// Packing a whole gate_up weight to learn its size would take half a second and half a gigabyte.
#include "octile/cli/weight_bytes.h"

#include <limits>
#include <string>
#include <vector>

namespace octile::cli {
namespace {

// Layouts pad N to 64 rows or fewer.
constexpr std::int64_t kPeriod = 128;

Expected<std::int64_t> packed_bytes(const Backend& backend, const Plan& plan, const std::string& layout, std::int64_t rows) {
  const std::int64_t k = plan.problem().k;
  const std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * k), 0);
  const std::vector<float> scales(static_cast<std::size_t>(rows), 1.0F);
  WeightSource source;
  source.n = rows;
  source.k = k;
  source.codes = codes.data();
  source.row_stride = k;
  source.scales = scales.data();
  source.scale_dtype = DType::fp32;
  source.scale_count = rows;
  const auto packed = backend.pack(plan.device(), layout, source);
  if (!packed) {
    return packed.error();
  }
  return (*packed)->bytes();
}

}  // namespace

Expected<std::int64_t> weight_bytes(const Backend* backend, const Plan& plan) {
  const std::int64_t n = plan.problem().n;
  if (backend == nullptr) {
    return n * plan.problem().k + n * static_cast<std::int64_t>(sizeof(float));
  }
  const std::int64_t remainder = (n - 1) % kPeriod + 1;
  const std::int64_t periods = (n - remainder) / kPeriod;
  std::int64_t bytes = 0;
  for (const std::string& layout : plan.layouts(std::numeric_limits<std::int64_t>::max())) {
    const auto small = packed_bytes(*backend, plan, layout, remainder);
    if (!small) {
      return small.error();
    }
    bytes += *small;
    if (periods > 0) {
      const auto larger = packed_bytes(*backend, plan, layout, remainder + kPeriod);
      if (!larger) {
        return larger.error();
      }
      bytes += periods * (*larger - *small);
    }
  }
  return bytes;
}

}  // namespace octile::cli
