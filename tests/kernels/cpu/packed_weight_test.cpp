// SPDX-License-Identifier: Apache-2.0
// The packed layout: every code where the layout's description says, zeros in the padding, scales and NaN channels.
#include "octile/kernels/cpu/packed_weight.h"

#include "octile/kernels/cpu/families.h"
#include "support/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace octile::cpu {
namespace {

std::shared_ptr<PackedWeight> pack(const std::vector<std::uint8_t>& codes, const std::vector<float>& scales, std::int64_t n,
                                   std::int64_t k, std::int64_t stride) {
  WeightSource source;
  source.n = n;
  source.k = k;
  source.codes = codes.data();
  source.row_stride = stride;
  source.scales = scales.data();
  source.scale_count = static_cast<std::int64_t>(scales.size());
  auto packed = pack_cpu(source);
  EXPECT_TRUE(packed) << packed.error().message;
  return packed ? *packed : nullptr;
}

const CpuPackedWeight& as_packed(const std::shared_ptr<PackedWeight>& weight) {
  return static_cast<const CpuPackedWeight&>(*weight);
}

TEST(PackedWeight, HoldsEveryCodeAndZerosInThePadding) {
  SCOPED_TRACE(test::seed_text());
  for (const auto& [n, k, stride] : std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{
           {1, 1, 1}, {16, 32, 32}, {17, 33, 40}, {63, 5, 5}, {64, 64, 64}, {65, 31, 33}, {150, 70, 70}}) {
    const std::vector<std::uint8_t> codes = test::random_codes(n * stride);
    const auto weight = pack(codes, test::random_scales(n), n, k, stride);
    ASSERT_NE(weight, nullptr);
    const CpuPackedWeight& packed = as_packed(weight);
    EXPECT_EQ(packed.bytes(), CpuPackedWeight::bytes_for(n, k));
    EXPECT_EQ(packed.padded_k() % kPaddingK, 0);
    for (std::int64_t row = 0; row < round_up(n, kPanelColumns); ++row) {
      for (std::int64_t i = 0; i < packed.padded_k(); ++i) {
        const int want = row < n && i < k ? codes[static_cast<std::size_t>(row * stride + i)] : 0;
        ASSERT_EQ(int{packed_code(packed, row, i)}, want) << "[" << n << ", " << k << "] at (" << row << ", " << i << ")";
      }
    }
  }
}

// The description in packed_weight.h, written out once more and independently of packed_code().
TEST(PackedWeight, PlacesABlockAsDescribed) {
  const std::int64_t n = 80;
  const std::int64_t k = 64;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k), 0);
  codes[static_cast<std::size_t>(71 * k + 43)] = 0x55;
  const auto weight = pack(codes, {1.0F}, n, k, k);
  ASSERT_NE(weight, nullptr);
  // Group 1 holds columns 64..79 in blocks of its own: column 7 of the block is lane 1, i = 3; k = 43 is step 10, h = 1,
  // kk = 1.
  const std::uint8_t* group = as_packed(weight).group(1);
  for (std::int64_t i = 0; i < 16 * k; ++i) {
    EXPECT_EQ(int{group[i]}, i == 10 * 64 + 1 * 16 + 1 * 8 + 3 * 2 + 1 ? 0x55 : 0) << "byte " << i;
  }
}

TEST(PackedWeight, ANaNCodeMakesItsChannelsScaleNaNAndNoOther) {
  std::vector<std::uint8_t> codes = test::random_codes(20 * 10);
  codes[7 * 10 + 9] = 0xFF;
  const auto weight = pack(codes, {0.5F}, 20, 10, 10);
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(int{packed_code(as_packed(weight), 7, 9)}, 0);
  for (std::int64_t n = 0; n < 32; ++n) {
    const float scale = as_packed(weight).scales()[n];
    if (n == 7) {
      EXPECT_TRUE(std::isnan(scale));
    } else {
      EXPECT_EQ(scale, n < 20 ? 0.5F : 0.0F) << "channel " << n;
    }
  }
}

TEST(PackedWeight, RefusesWhatTheContractRefuses) {
  WeightSource source;
  source.n = 4;
  source.k = 4;
  const auto packed = pack_cpu(source);
  ASSERT_FALSE(packed);
  EXPECT_EQ(packed.error().code, ErrorCode::invalid_argument);
}

TEST(PackedWeight, SaysSoWhenThereIsNotEnoughMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "these sanitizers end the process instead of returning a null pointer";
#endif
  // The codes are never read: the allocation comes first.
  const std::uint8_t code = 0;
  const float scale = 1.0F;
  WeightSource source;
  source.n = std::int64_t{1} << 23;
  source.k = std::int64_t{1} << 23;
  source.codes = &code;
  source.scales = &scale;
  source.scale_count = 1;
  const auto packed = pack_cpu(source);
  ASSERT_FALSE(packed);
  EXPECT_EQ(packed.error().code, ErrorCode::out_of_memory);
}

// A value in kB of /proc/self/status, in bytes.
std::int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    std::int64_t kilobytes = 0;
    if (word == name + ":" && status >> kilobytes) {
      return kilobytes * 1024;
    }
  }
  return 0;
}

TEST(PackedWeight, PackingTakesNoMemoryBesideSourceAndResult) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
  // Qwen3-8B's gate_up.
  const std::int64_t n = 24576;
  const std::int64_t k = 4096;
  ASSERT_NE(pack({0}, {1.0F}, 1, 1, 1), nullptr);  // The pool's threads are there.
  const std::int64_t before = status_bytes("VmRSS");
  const std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k), std::uint8_t{0x38});
  const std::vector<float> scales(static_cast<std::size_t>(n), 1.0F);
  std::ofstream("/proc/self/clear_refs") << "5";  // The peak is the present.
  const std::int64_t with_source = status_bytes("VmHWM");
  if (with_source == 0 || with_source > before + n * k + (n * k) / 2) {
    GTEST_SKIP() << "this kernel does not let a process look at its own peak";
  }
  const auto weight = pack(codes, scales, n, k, k);
  ASSERT_NE(weight, nullptr);
  const std::int64_t peak = status_bytes("VmHWM") - before;
  const std::int64_t source = n * k + n * 4;
  EXPECT_GE(peak, source + weight->bytes()) << "what is measured holds both";
  EXPECT_LE(static_cast<double>(peak), 1.05 * static_cast<double>(source + weight->bytes()));
}

// Index arithmetic beyond 2^32 without the memory: the sizes are plain 64-bit products.
TEST(PackedWeight, SizesBeyond32BitsAreExact) {
  EXPECT_EQ(CpuPackedWeight::bytes_for(3'000'000, 70'000), 3'000'000LL * 70'016 + 3'000'000LL * 4);
}

}  // namespace
}  // namespace octile::cpu
