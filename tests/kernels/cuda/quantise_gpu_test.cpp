// SPDX-License-Identifier: Apache-2.0
// The quantise kernel against the plain quantiser, bit for bit. Skipped without a GPU.
#include "octile/kernels/cuda/quantise_kernel.h"

#include "octile/core/float_formats.h"
#include "octile/quant/quantize.h"
#include "support/gpu.h"
#include "support/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace octile::cuda {
namespace {

using test::DeviceBytes;

struct Case {
  DType dtype = DType::bf16;
  std::int64_t m = 1;
  std::int64_t k = 1;
  std::int64_t row_stride = 1;
  std::int64_t offset = 0;  // Elements before the first row: odd ones are unaligned.
  QuantizeOptions options;
  float static_scale = 0.0F;
};

std::string text(const Case& c) {
  return std::string(to_string(c.dtype)) + " M=" + std::to_string(c.m) + " K=" + std::to_string(c.k) +
         " stride=" + std::to_string(c.row_stride) + " offset=" + std::to_string(c.offset) +
         " static=" + std::to_string(c.static_scale);
}

// Quantises `x` (offset + m rows of row_stride elements) on the device and compares codes, scales, padding and guards.
void expect_contract(const Case& c, const std::vector<unsigned char>& x) {
  SCOPED_TRACE(test::seed_text());
  SCOPED_TRACE(text(c));
  auto kernel = QuantiseKernel::prepare(*test::gpu().context, c.k);
  ASSERT_TRUE(kernel) << kernel.error().message;
  const DeviceBytes device_x(x);
  constexpr std::int64_t kGuard = 512;
  DeviceBytes workspace(kernel->workspace_bytes(c.m) + kGuard);
  workspace.fill(0xEE);
  Activation activation;
  const std::int64_t element = size_of(c.dtype);
  activation.x = {static_cast<unsigned char*>(device_x.data()) + c.offset * element, c.dtype, c.m, c.k, c.row_stride, 1};
  activation.quantize = c.options;
  activation.static_scale = c.static_scale;
  const CurrentContext current(*test::gpu().context);
  const auto codes = kernel->run(activation, workspace.data(), nullptr, false);
  ASSERT_TRUE(codes) << codes.error().message;
  EXPECT_TRUE(codes->launched);
  std::vector<unsigned char> bytes(static_cast<std::size_t>(workspace.bytes()));
  workspace.download(bytes.data());
  const auto codes_at = static_cast<std::int64_t>(codes->codes - workspace.pointer());
  const auto scales_at = static_cast<std::int64_t>(codes->scales - workspace.pointer());
  int wrong = 0;
  for (std::int64_t row = 0; row < c.m && wrong < 5; ++row) {
    std::vector<std::uint8_t> wanted(static_cast<std::size_t>(c.k));
    const unsigned char* source = x.data() + (c.offset + row * c.row_stride) * element;
    const float wanted_scale = c.static_scale > 0 ? quantize_row_static(source, c.dtype, c.k, wanted.data(), c.static_scale)
                                                  : quantize_row(source, c.dtype, c.k, wanted.data(), c.options);
    float scale = 0;
    std::memcpy(&scale, bytes.data() + scales_at + row * 4, 4);
    if (!(scale == wanted_scale || (std::isnan(scale) && std::isnan(wanted_scale)))) {
      ADD_FAILURE() << "row " << row << ": scale " << scale << ", want " << wanted_scale;
      ++wrong;
    }
    for (std::int64_t i = 0; i < codes->stride && wrong < 5; ++i) {
      const int got = bytes[static_cast<std::size_t>(codes_at + row * codes->stride + i)];
      const int want = i < c.k ? wanted[static_cast<std::size_t>(i)] : 0;
      if (got != want) {
        ADD_FAILURE() << "row " << row << ", element " << i << ": code " << got << ", want " << want << ", x "
                      << (i < c.k ? load_as_float(source, c.dtype, i) : 0.0F) << ", scale " << scale;
        ++wrong;
      }
    }
  }
  for (std::int64_t i = kernel->workspace_bytes(c.m); i < workspace.bytes(); ++i) {
    ASSERT_EQ(bytes[static_cast<std::size_t>(i)], 0xEE) << "byte " << i << " behind the workspace was written";
  }
}

std::vector<unsigned char> mixed_rows(const Case& c) {
  std::vector<float> values = test::normals_with_outliers(c.offset + c.m * c.row_stride);
  for (std::int64_t row = 0; row < c.m; ++row) {
    float* x = values.data() + c.offset + row * c.row_stride;
    for (std::int64_t i = 0; i < c.k; ++i) {
      switch (row % 9) {
        case 1:
          x[i] = i % 2 == 0 ? 0.0F : -0.0F;
          break;
        case 2:
          x[i] *= 1e-38F;
          break;
        case 3:
          x[i] *= 1e-40F;
          break;
        case 4:
          x[i] *= 1e4F;
          break;
        case 5:
          x[i] = std::ldexp(std::round(x[i] * 8.0F), -3);
          break;  // Quotients that tie.
        default:
          break;
      }
    }
    if (row % 9 == 6) {
      x[c.k / 2] = std::numeric_limits<float>::quiet_NaN();
    } else if (row % 9 == 7) {
      x[c.k - 1] = -std::numeric_limits<float>::infinity();
    }
  }
  return test::as_bytes(values, c.dtype);
}

TEST(QuantiseKernel, GivesTheBitsOfTheContractForEveryKindOfRow) {
  OCTILE_REQUIRE_GPU();
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const std::int64_t k : {1, 4, 7, 8, 12, 16, 20, 255, 256, 1000, 4096, 5003, 12288, 40000}) {
      for (const std::int64_t pad : {0, 8, 3}) {
        Case c;
        c.dtype = dtype;
        c.m = k > 10000 ? 9 : 19;
        c.k = k;
        c.row_stride = k + pad;
        c.offset = pad == 3 ? 1 : 0;
        expect_contract(c, mixed_rows(c));
      }
    }
  }
}

TEST(QuantiseKernel, ManyRowsGiveTheBitsOfTheContractToo) {
  OCTILE_REQUIRE_GPU();
  for (const std::int64_t k : {100, 1024, 4096, 12288}) {
    Case c;
    c.m = 700;  // More than two rows a multiprocessor: the variant for many rows.
    c.k = k;
    c.row_stride = k;
    expect_contract(c, mixed_rows(c));
  }
}

TEST(QuantiseKernel, EveryBf16PatternUnderManyStaticScales) {
  OCTILE_REQUIRE_GPU();
  Case c;
  c.k = 0x10000 - 0x100;
  c.row_stride = c.k;
  std::vector<unsigned char> x;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7F80) != 0x7F80) {
      x.push_back(static_cast<unsigned char>(bits & 0xFF));
      x.push_back(static_cast<unsigned char>(bits >> 8));
    }
  }
  for (const float scale : {1.0F, 0.3F, 448.0F, 1.17549435e-38F, 1e-30F, 3e35F, 0.0078125F, 1.3333334F}) {
    c.static_scale = scale;
    expect_contract(c, x);
  }
}

TEST(QuantiseKernel, HonoursFloorBoundAndReciprocalOfAPreset) {
  OCTILE_REQUIRE_GPU();
  Case c;
  c.m = 18;
  c.k = 777;
  c.row_stride = 777;
  c.options.floor = 448.0F / 512.0F;
  expect_contract(c, mixed_rows(c));
  c.options.upper_bound = 3.0F;
  expect_contract(c, mixed_rows(c));
  c.options.division = Division::reciprocal;
  expect_contract(c, mixed_rows(c));
}

TEST(QuantiseKernel, GivenCodesWithOddRowsAreCopiedAndPaddedWithZeros) {
  OCTILE_REQUIRE_GPU();
  constexpr std::int64_t kM = 5;
  constexpr std::int64_t kK = 83;
  constexpr std::int64_t kStride = 91;
  const std::vector<std::uint8_t> source = test::random_codes(kM * kStride);
  const DeviceBytes device_codes(source);
  const DeviceBytes scales(test::random_scales(kM));
  auto kernel = QuantiseKernel::prepare(*test::gpu().context, kK);
  ASSERT_TRUE(kernel) << kernel.error().message;
  DeviceBytes workspace(kernel->workspace_bytes(kM));
  workspace.fill(0xEE);
  Activation activation;
  activation.x = {device_codes.data(), DType::e4m3, kM, kK, kStride, 1};
  activation.scales = static_cast<const float*>(scales.data());
  const CurrentContext current(*test::gpu().context);
  const auto codes = kernel->run(activation, workspace.data(), nullptr, false);
  ASSERT_TRUE(codes) << codes.error().message;
  EXPECT_EQ(codes->stride, 96);
  EXPECT_EQ(codes->scales, scales.pointer());
  std::vector<unsigned char> bytes(static_cast<std::size_t>(workspace.bytes()));
  workspace.download(bytes.data());
  for (std::int64_t row = 0; row < kM; ++row) {
    for (std::int64_t i = 0; i < codes->stride; ++i) {
      const int want = i < kK ? source[static_cast<std::size_t>(row * kStride + i)] : 0;
      ASSERT_EQ(bytes[static_cast<std::size_t>(row * codes->stride + i)], want) << "row " << row << ", byte " << i;
    }
  }
}

TEST(QuantiseKernel, RefusesWhatBreaksTheContract) {
  OCTILE_REQUIRE_GPU();
  auto kernel = QuantiseKernel::prepare(*test::gpu().context, 64);
  ASSERT_TRUE(kernel) << kernel.error().message;
  const DeviceBytes x(1024);
  const CurrentContext current(*test::gpu().context);
  Activation activation;
  activation.x = {x.data(), DType::bf16, 2, 64, 64, 2};
  EXPECT_FALSE(kernel->run(activation, x.data(), nullptr, false)) << "column stride 2";
  activation.x = {x.data(), DType::bf16, 2, 63, 64, 1};
  EXPECT_FALSE(kernel->run(activation, x.data(), nullptr, false)) << "another K";
  activation.x = {x.data(), DType::fp32, 2, 64, 64, 1};
  EXPECT_FALSE(kernel->run(activation, x.data(), nullptr, false)) << "fp32";
  const DeviceBytes scales(256);
  activation.scales = static_cast<const float*>(scales.data());
  activation.x = {x.data(), DType::e4m3, 2, 64, 63, 1};
  const auto overlapping = kernel->run(activation, x.data(), nullptr, false);
  ASSERT_FALSE(overlapping) << "codes with a row stride below K";
  EXPECT_THAT(overlapping.error().message, testing::AllOf(testing::HasSubstr("e4m3"), testing::HasSubstr("(63, 1)")));
  activation.scales = nullptr;
  activation.x = {x.data(), DType::bf16, 2, 64, 64, 1};
  activation.static_scale = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(kernel->run(activation, x.data(), nullptr, false)) << "NaN as a static scale";
  activation.static_scale = -1.0F;
  EXPECT_FALSE(kernel->run(activation, x.data(), nullptr, false)) << "a negative static scale";
}

}  // namespace
}  // namespace octile::cuda
