// SPDX-License-Identifier: Apache-2.0
// The producers' kernels against the plain code and the plain quantiser. Skipped without a GPU.
#include "octile/core/float_formats.h"
#include "octile/kernels/cuda/producer_kernel.h"
#include "support/gpu.h"
#include "support/producer_case.h"
#include "support/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace octile::cuda {
namespace {

using test::DeviceBytes;
using test::HalfMatrix;
using test::PlainCodes;
using test::ProducerOperands;
using test::ProducerShape;

constexpr double kHardwareSilu = 0x1p-16;  // What producers.cuh states of its exp2 and reciprocal.
constexpr unsigned char kPoison = 0xEE;
constexpr std::int64_t kGuard = 256;

// An output [m, k] on the device with guards before, between and behind its rows.
class DeviceOutput {
 public:
  DeviceOutput(const ProducerShape& shape, DType dtype)
      : dtype_(dtype),
        m_(shape.m),
        k_(shape.k),
        stride_(shape.k + shape.padding),
        begin_(kGuard + shape.offset * size_of(dtype)),
        memory_(begin_ + shape.m * stride_ * size_of(dtype) + kGuard) {
    memory_.fill(kPoison);
  }
  MatrixView view() const { return {static_cast<unsigned char*>(memory_.data()) + begin_, dtype_, m_, k_, stride_, 1}; }
  // The rows without their padding; a guard that was written fails the test.
  std::vector<unsigned char> rows() const {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(memory_.bytes()));
    memory_.download(bytes.data());
    const std::int64_t row_bytes = k_ * size_of(dtype_);
    std::vector<unsigned char> result;
    for (std::int64_t row = 0; row < m_; ++row) {
      const auto at = bytes.begin() + begin_ + row * stride_ * size_of(dtype_);
      result.insert(result.end(), at, at + row_bytes);
      std::fill(at, at + row_bytes, kPoison);
    }
    EXPECT_TRUE(std::ranges::all_of(bytes, [](unsigned char byte) { return byte == kPoison; })) << "a guard was written";
    return result;
  }

 private:
  DType dtype_;
  std::int64_t m_, k_, stride_, begin_;
  DeviceBytes memory_;
};

struct Result {
  std::vector<unsigned char> sums;  // [m, k]: what the residual became; empty without one.
  std::vector<unsigned char> y;
  PlainCodes codes;
};

class ProducersOnGpu : public testing::Test {
 protected:
  void SetUp() override { OCTILE_REQUIRE_GPU(); }

  static std::unique_ptr<Producer> prepare(const ProducerOperands& operands,
                                           const std::optional<ProducerLayouts>& layouts = std::nullopt) {
    const DeviceContext& context = *test::gpu().context;
    auto producer =
        layouts ? prepare_producer(context, operands.spec(), *layouts) : prepare_producer(context, operands.spec());
    EXPECT_TRUE(producer) << producer.error().message;
    return producer ? std::move(*producer) : nullptr;
  }

  // Both forms of one call.
  static Result run(const Producer& producer, const ProducerOperands& operands, bool in_place = false) {
    const ProducerShape& shape = operands.shape;
    Result result;
    for (const bool quantized : {false, true}) {
      const DeviceBytes x(operands.x.bytes);
      const DeviceBytes residual(operands.residual.bytes);
      const DeviceOutput sums(shape, shape.dtype);
      const DeviceOutput out(shape, quantized ? DType::e4m3 : shape.dtype);
      DeviceBytes scales(shape.m * 4 + kGuard);
      scales.fill(kPoison);
      ProducerCall call;
      call.x = view_of(x, operands.x);
      call.adds = shape.adds;
      call.residual_in = view_of(residual, operands.residual);
      call.residual_out = in_place ? writable(call.residual_in) : sums.view();
      call.out = out.view();
      call.quantized = quantized;
      call.scales = quantized ? static_cast<float*>(scales.data()) : nullptr;
      const auto ran = producer.run(call);
      EXPECT_TRUE(ran) << ran.error().message;
      if (quantized) {
        result.codes.codes = out.rows();
        std::vector<float> values(static_cast<std::size_t>(scales.bytes() / 4));
        scales.download(values.data());
        const auto untouched = std::bit_cast<std::uint32_t>(values[static_cast<std::size_t>(shape.m)]);
        EXPECT_EQ(untouched, 0xEEEEEEEEU) << "behind the scales";
        values.resize(static_cast<std::size_t>(shape.m));
        result.codes.scales = std::move(values);
      } else {
        result.y = out.rows();
      }
      if (shape.adds && !in_place) {
        const std::vector<unsigned char> now = sums.rows();
        EXPECT_TRUE(result.sums.empty() || test::first_difference(shape.dtype, shape.k, now, result.sums).empty());
        result.sums = now;
      }
    }
    return result;
  }

  // Everything that the contract says of one shape.
  static void expect_contract(const ProducerShape& shape, const std::optional<ProducerLayouts>& layouts = std::nullopt) {
    SCOPED_TRACE(shape.to_string());
    const ProducerOperands operands(shape);
    const auto producer = prepare(operands, layouts);
    ASSERT_NE(producer, nullptr);
    expect_contract(operands, run(*producer, operands));
  }
  static void expect_contract(const ProducerOperands& operands, const Result& result) {
    const ProducerShape& shape = operands.shape;
    const std::vector<unsigned char> sums = operands.plain_sums();
    if (shape.adds) {
      EXPECT_EQ(test::first_difference(shape.dtype, shape.k, result.sums, sums), "") << "the sum with the residual";
    }
    if (shape.kind == ProducerKind::rms_norm) {
      EXPECT_EQ(test::first_difference(shape.dtype, shape.k, result.y, operands.plain_y()), "") << "y and the plain code's";
    }
    EXPECT_EQ(test::distance_from_double(operands, sums, result.y, kHardwareSilu), "");
    EXPECT_EQ(test::first_difference(shape.k, result.codes, test::quantised(shape, result.y)), "")
        << "fused, and the quantiser on y";
  }

  static ConstMatrixView view_of(const DeviceBytes& memory, const HalfMatrix& matrix) {
    return {static_cast<unsigned char*>(memory.data()) + matrix.offset * 2,
            matrix.dtype,
            matrix.rows,
            matrix.cols,
            matrix.row_stride,
            1};
  }
  static MatrixView writable(const ConstMatrixView& view) {
    return {const_cast<void*>(view.data), view.dtype, view.rows, view.cols, view.row_stride, 1};
  }

 private:
  testing::ScopedTrace trace_{__FILE__, __LINE__, test::seed_text()};
};

constexpr ProducerKind kKinds[] = {ProducerKind::rms_norm, ProducerKind::swiglu};

TEST_F(ProducersOnGpu, FusedAndUnfusedMeetTheContractForEveryKindOfRow) {
  for (const ProducerKind kind : kKinds) {
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      for (const std::int64_t k : {1, 7, 8, 64, 200, 1000, 1024, 2048, 4096, 4104, 5120, 8192, 12288, 12291, 40000}) {
        const bool norm = kind == ProducerKind::rms_norm;
        expect_contract({.kind = kind, .dtype = dtype, .m = 10, .k = k, .adds = norm && k % 3 != 0, .padding = 8});
        expect_contract({.kind = kind, .dtype = dtype, .m = 10, .k = k, .adds = norm, .padding = 3, .offset = 1});
      }
    }
  }
}

TEST_F(ProducersOnGpu, ManyRowsMeetTheContract) {
  for (const std::int64_t k : {512, 4096, 8192, 12288}) {
    const std::int64_t m = 2 * test::gpu().context->info.sm_count + 37;
    expect_contract({.kind = ProducerKind::rms_norm, .m = m, .k = k, .adds = true});
    expect_contract({.kind = ProducerKind::swiglu, .m = m, .k = k});
  }
}

TEST_F(ProducersOnGpu, FloorUpperBoundReciprocalAndStaticScaleAreHonoured) {
  for (const ProducerKind kind : kKinds) {
    ProducerShape shape{.kind = kind, .m = 18, .k = 1000, .adds = kind == ProducerKind::rms_norm};
    shape.quantize.floor = 448.0F / 512.0F;
    expect_contract(shape);
    shape.quantize.upper_bound = 1.5F;
    expect_contract(shape);
    shape.quantize.division = Division::reciprocal;
    expect_contract(shape);
    for (const float scale : {0.01F, 1.17549435e-38F, 1e-30F, 3e35F}) {
      shape.static_scale = scale;
      expect_contract(shape);
    }
  }
}

TEST_F(ProducersOnGpu, EveryLayoutGivesTheSameBits) {
  const bool clusters = test::gpu().context->info.arch != "sm_89";
  for (const ProducerKind kind : kKinds) {
    for (const std::int64_t k : {4096, 5120, 12288}) {
      const ProducerOperands operands(ProducerShape{.kind = kind, .m = 9, .k = k, .adds = kind == ProducerKind::rms_norm});
      const Result want = run(*prepare(operands), operands);
      for (const unsigned cluster : {1U, 2U, 4U, 8U}) {
        for (const unsigned threads : {64U, 128U, 256U, 512U}) {
          const unsigned row_threads = cluster * threads;
          const bool legal = kind == ProducerKind::swiglu || (row_threads >= 128 && row_threads <= 512);
          const auto kept = static_cast<unsigned>((k / 8 + row_threads - 1) / row_threads);
          const unsigned whole = kind == ProducerKind::swiglu
                                     ? kept
                                     : 512 / std::min(row_threads, 512U) * static_cast<unsigned>((k + 4095) / 4096);
          if (!legal || whole > 8 || (cluster > 1 && !clusters)) {
            continue;
          }
          SCOPED_TRACE("threads " + std::to_string(threads) + " cluster " + std::to_string(cluster));
          ProducerLayouts layouts = producer_layouts(test::gpu().context->info, kind, k);
          layouts.few = {threads, cluster, whole};
          ASSERT_TRUE(layouts.few.keeps(k));
          const Result got = run(*prepare(operands, layouts), operands);
          EXPECT_EQ(test::first_difference(DType::bf16, k, got.y, want.y), "");
          EXPECT_EQ(test::first_difference(k, got.codes, want.codes), "");
        }
      }
      // The one for rows of any form.
      ProducerLayouts layouts = producer_layouts(test::gpu().context->info, kind, k);
      layouts.few.kept = 0;
      const Result got = run(*prepare(operands, layouts), operands);
      EXPECT_EQ(test::first_difference(DType::bf16, k, got.y, want.y), "") << "not kept";
      EXPECT_EQ(test::first_difference(k, got.codes, want.codes), "") << "not kept";
    }
  }
}

TEST_F(ProducersOnGpu, TheResidualMayBeUpdatedInPlace) {
  for (const std::int64_t k : {4096, 40000}) {
    for (const std::int64_t offset : {0, 1}) {
      const ProducerOperands operands(ProducerShape{.m = 5, .k = k, .adds = true, .offset = offset});
      const auto producer = prepare(operands);
      const Result want = run(*producer, operands);
      const Result got = run(*producer, operands, true);
      EXPECT_EQ(test::first_difference(DType::bf16, k, got.y, want.y), "");
      EXPECT_EQ(test::first_difference(k, got.codes, want.codes), "");
    }
  }
}

TEST_F(ProducersOnGpu, SiluOfEveryGateIsWithinOnePlaceOfTheRoundedOne) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    ProducerOperands operands(ProducerShape{.kind = ProducerKind::swiglu, .dtype = dtype, .m = 256, .k = 256});
    for (std::int64_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      std::memcpy(operands.x.row(i / 256) + i % 256 * 2, &bits, 2);
      operands.x.set(i / 256, 256 + i % 256, 1.0F);
    }
    const Result got = run(*prepare(operands), operands);
    const std::vector<unsigned char> plain = operands.plain_y();
    EXPECT_EQ(test::distance_from_double(operands, plain, got.y, kHardwareSilu), "");
    int differ = 0;
    for (std::int64_t i = 0; i < 65536; ++i) {
      std::int16_t a = 0;
      std::int16_t b = 0;
      std::memcpy(&a, got.y.data() + 2 * i, 2);
      std::memcpy(&b, plain.data() + 2 * i, 2);
      const float value = load_as_float(plain.data(), dtype, i);
      if (a == b || std::isnan(value) || std::fabs(value) < 0x1p-118F) {
        continue;
      }
      ++differ;
      EXPECT_LE(std::abs(a - b), 1) << "gate " << operands.x.at(i / 256, i % 256);
    }
    EXPECT_LT(differ, 200) << "of 65,536";
  }
}

TEST_F(ProducersOnGpu, RowsMayLieMoreThanFourGibibytesApart) {
  constexpr std::int64_t kK = 64;
  constexpr std::int64_t kStride = (std::int64_t{1} << 32) + 16;  // Elements: 8 GiB of x, 4 GiB of codes.
  const DeviceContext& context = *test::gpu().context;
  if (context.info.memory_bytes < std::int64_t{32} << 30) {
    GTEST_SKIP() << "wants 13 GiB of device memory";
  }
  const ProducerOperands operands(ProducerShape{.m = 2, .k = kK});
  const auto producer = prepare(operands);
  const DeviceBytes x((kStride + kK) * 2);
  const DeviceBytes codes(kStride + kK);
  const DeviceBytes scales(8);
  for (std::int64_t row = 0; row < 2; ++row) {
    ASSERT_TRUE(
        upload_bytes(context, x.pointer() + static_cast<CUdeviceptr>(row * kStride * 2), operands.x.row(row), kK * 2));
  }
  ProducerCall call;
  call.x = {x.data(), DType::bf16, 2, kK, kStride, 1};
  call.out = {codes.data(), DType::e4m3, 2, kK, kStride, 1};
  call.scales = static_cast<float*>(scales.data());
  ASSERT_TRUE(producer->run(call));
  PlainCodes got;
  got.codes.resize(2 * kK);
  got.scales.resize(2);
  scales.download(got.scales.data());
  for (std::int64_t row = 0; row < 2; ++row) {
    ASSERT_TRUE(
        download_bytes(context, got.codes.data() + row * kK, codes.pointer() + static_cast<CUdeviceptr>(row * kStride), kK));
  }
  EXPECT_EQ(test::first_difference(kK, got, test::quantised(operands.shape, operands.plain_y())), "");
}

}  // namespace
}  // namespace octile::cuda
