// SPDX-License-Identifier: Apache-2.0
// Fresh random test data. The seed is drawn per process, printed on failure through SCOPED_TRACE(seed_text()), and can be
// fixed with OCTILE_TEST_SEED to see a failure again.
#pragma once

#include <octile/types.hpp>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace octile::test {

std::uint64_t seed();
std::string seed_text();
std::mt19937_64& generator();

std::vector<float> normals(std::int64_t count, float sigma = 1.0F);
// Rows of normals in which 1 of 1000 elements is 100 times as large.
std::vector<float> normals_with_outliers(std::int64_t count);
// Rounds into bf16, fp16 or fp32 bytes.
std::vector<unsigned char> as_bytes(const std::vector<float>& values, DType dtype);
// Random e4m3 codes of normals with the given sigma; never NaN.
std::vector<std::uint8_t> random_codes(std::int64_t count, float sigma = 32.0F);
// Scales around 0.01, none of them a power of two.
std::vector<float> random_scales(std::int64_t count);

// An output area [rows, row_stride] filled with NaN, with guard bytes before and after. guards_intact() also checks the
// columns beyond `cols`, which no kernel may touch.
class GuardedOutput {
 public:
  GuardedOutput(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t row_stride);
  MatrixView view();
  void* data();
  bool guards_intact() const;
  bool all_written() const;  // No poison left inside: only for results that hold no NaN themselves.
  void poison();

 private:
  std::int64_t offset(std::int64_t row) const;
  DType dtype_;
  std::int64_t rows_, cols_, row_stride_;
  std::vector<unsigned char> bytes_;
};

}  // namespace octile::test
