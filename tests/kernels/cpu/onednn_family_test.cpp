// SPDX-License-Identifier: Apache-2.0
// oneDNN behind the family interface: against the double-precision reference, and bit for bit against oneDNN called
// directly through its component.
#include "octile/kernels/cpu/onednn_family.h"

#include "octile/core/env.h"
#include "octile/core/float_formats.h"
#include "octile/kernels/cpu/cpu_backend.h"
#include "octile/kernels/cpu/onednn_loader.h"
#include "octile/kernels/cpu/onednn_matmuls.h"
#include "octile/kernels/cpu/onednn_weight.h"
#include "octile/kernels/cpu/thread_pool.h"
#include "octile/quant/quantize.h"
#include "octile/quant/reference.h"
#include "support/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

namespace octile::cpu {
namespace {

using testing::HasSubstr;

const DeviceInfo& cpu() {
  static const DeviceInfo info = cpu_backend().devices().front();
  return info;
}

struct Workspace {
  explicit Workspace(std::int64_t bytes) : memory(*HostMemory::allocate(bytes)) {
    std::memset(memory.data(), 0xFF, static_cast<std::size_t>(bytes));  // NaN in every format: nothing may be assumed zero.
  }
  HostMemory memory;
};

// One weight with what the reference needs to know of it.
struct TestWeight {
  TestWeight(std::int64_t rows, std::int64_t cols)
      : n(rows), k(cols), codes(test::random_codes(rows * cols)), scales(test::random_scales(rows)) {}

  WeightSource source() const { return {.n = n, .k = k, .codes = codes.data(), .scales = scales.data(), .scale_count = n}; }
  std::shared_ptr<PackedWeight> pack() const {
    Expected<std::shared_ptr<PackedWeight>> packed = pack_onednn(source());
    EXPECT_TRUE(packed) << (packed ? "" : packed.error().message);
    return packed ? *packed : nullptr;
  }

  std::int64_t n, k;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
};

class Onednn : public testing::Test {
 protected:
  void SetUp() override {
    if (!onednn_status().available) {
      GTEST_SKIP() << onednn_status().reason;
    }
  }

  static std::unique_ptr<Kernel> prepare(const Problem& problem, std::int64_t max_m) {
    Expected<std::unique_ptr<Kernel>> kernel = onednn_family().prepare(cpu(), problem, {}, max_m);
    EXPECT_TRUE(kernel) << (kernel ? "" : kernel.error().message);
    return kernel ? *std::move(kernel) : nullptr;
  }

  // Runs raw activations through `kernel` into a guarded output and compares with the reference on the codes of the plain
  // quantiser.
  static void check_run(const Kernel& kernel, const TestWeight& weight, const PackedWeight& packed, std::int64_t m,
                        const std::vector<float>& values, DType x_dtype, DType out, const std::vector<float>& bias) {
    const std::int64_t x_stride = weight.k + 3;
    std::vector<float> padded(static_cast<std::size_t>(m * x_stride), 1e38F);  // What lies between the rows is never read.
    for (std::int64_t row = 0; row < m; ++row) {
      std::copy_n(values.begin() + row * weight.k, weight.k, padded.begin() + row * x_stride);
    }
    const std::vector<unsigned char> x = test::as_bytes(padded, x_dtype);
    const ConstMatrixView view = {x.data(), x_dtype, m, weight.k, x_stride, 1};

    std::vector<std::uint8_t> codes(static_cast<std::size_t>(m * weight.k));
    std::vector<float> scales(static_cast<std::size_t>(m));
    for (std::int64_t row = 0; row < m; ++row) {
      scales[static_cast<std::size_t>(row)] = quantize_row(x.data() + row * x_stride * size_of(x_dtype), x_dtype, weight.k,
                                                           codes.data() + row * weight.k, QuantizeOptions{});
    }
    const Reference reference = reference_linear({.m = m,
                                                  .n = weight.n,
                                                  .k = weight.k,
                                                  .codes_x = codes.data(),
                                                  .scales_x = scales.data(),
                                                  .codes_w = weight.codes.data(),
                                                  .scales_w = weight.scales.data(),
                                                  .bias = bias.empty() ? nullptr : bias.data()});
    test::GuardedOutput y(out, m, weight.n, weight.n + 5);
    Workspace workspace(kernel.workspace_bytes(m));
    LaunchArgs args;
    args.activation.x = view;
    args.y = y.view();
    args.bias = bias.empty() ? nullptr : bias.data();
    args.workspace = workspace.memory.data();
    args.workspace_bytes = kernel.workspace_bytes(m);
    const Expected<void> done = kernel.run(packed, args);
    ASSERT_TRUE(done) << done.error().message;
    const ErrorReport report = compare_with_reference(y.data(), out, weight.n + 5, reference, m, weight.n);
    EXPECT_FALSE(report.nan_mismatch) << report.to_string();
    EXPECT_LE(report.relative_frobenius, error_tolerance(out, weight.k, Accumulate::precise)) << report.to_string();
    EXPECT_TRUE(y.guards_intact());
    EXPECT_TRUE(y.all_written());
  }
};

TEST_F(Onednn, MeetsTheReferenceOnEveryOutputTypeWithAndWithoutBias) {
  SCOPED_TRACE(test::seed_text());
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {17, 12}, {48, 20}, {129, 257}, {1001, 100}}) {
    const TestWeight weight(n, k);
    const std::shared_ptr<PackedWeight> packed = weight.pack();
    ASSERT_NE(packed, nullptr);
    for (const DType out : {DType::bf16, DType::fp16, DType::fp32}) {
      for (const DType x_dtype : {DType::bf16, DType::fp16}) {
        for (const bool with_bias : {false, true}) {
          const std::unique_ptr<Kernel> kernel = prepare({.n = n, .k = k, .out_dtype = out, .bias = with_bias}, 20);
          ASSERT_NE(kernel, nullptr);
          for (const std::int64_t m : {std::int64_t{1}, std::int64_t{2}, std::int64_t{17}}) {
            SCOPED_TRACE(testing::Message() << "M=" << m << " N=" << n << " K=" << k << ' ' << to_string(out));
            check_run(*kernel, weight, *packed, m, test::normals_with_outliers(m * k), x_dtype, out,
                      with_bias ? test::normals(n) : std::vector<float>());
          }
        }
      }
    }
  }
}

TEST_F(Onednn, IsRightForEveryMFrom1To300AndAtTheStepsAbove) {
  SCOPED_TRACE(test::seed_text());
  const TestWeight weight(40, 48);
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  const std::unique_ptr<Kernel> kernel = prepare({.n = 40, .k = 48}, 1024);
  ASSERT_TRUE(packed != nullptr && kernel != nullptr);
  std::vector<std::int64_t> ms = {511, 512, 513, 1016, 1017, 1023, 1024, 1025, 2047, 2048, 2050};
  for (std::int64_t m = 1; m <= 300; ++m) {
    ms.push_back(m);
  }
  for (const std::int64_t m : ms) {
    SCOPED_TRACE(testing::Message() << "M=" << m);
    check_run(*kernel, weight, *packed, m, test::normals(m * 48), DType::bf16, DType::bf16, {});
  }
}

TEST_F(Onednn, RunsInPiecesAboveWhatWasPrepared) {
  SCOPED_TRACE(test::seed_text());
  const TestWeight weight(33, 65);
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  const std::unique_ptr<Kernel> kernel = prepare({.n = 33, .k = 65, .out_dtype = DType::fp32}, 7);
  ASSERT_TRUE(packed != nullptr && kernel != nullptr);
  for (const std::int64_t m : {std::int64_t{7}, std::int64_t{8}, std::int64_t{14}, std::int64_t{20}}) {
    SCOPED_TRACE(testing::Message() << "M=" << m);
    check_run(*kernel, weight, *packed, m, test::normals(m * 65), DType::bf16, DType::fp32, {});
    EXPECT_EQ(kernel->workspace_bytes(m), kernel->workspace_bytes(7)) << "a piece is no larger than what was prepared";
  }
}

TEST_F(Onednn, GivesTheBitsOfOnednnCalledDirectly) {
  SCOPED_TRACE(test::seed_text());
  const OctileOnednnApi& api = *onednn_component().api;
  const bool bf16 = onednn_value_dtype() == DType::bf16;
  for (const std::int64_t m : {std::int64_t{1}, std::int64_t{5}, std::int64_t{64}, std::int64_t{256}, std::int64_t{264}}) {
    const std::int64_t n = 96;
    const std::int64_t k = 200;
    const TestWeight weight(n, k);
    const std::vector<std::uint8_t> codes = test::random_codes(m * k);
    const std::vector<float> scales = test::random_scales(m);

    // Directly: values decoded one by one, one matmul, the contract's epilogue in plain code.
    const OctileOnednnShape shape = {.m = m,
                                     .n = n,
                                     .k = k,
                                     .dtype = bf16 ? OCTILE_ONEDNN_BF16 : OCTILE_ONEDNN_F32,
                                     .threads = ThreadPool::instance().size()};
    const auto decoded = [&](const std::vector<std::uint8_t>& from) {
      std::vector<float> values(from.size());
      std::transform(from.begin(), from.end(), values.begin(), e4m3_to_float);
      return test::as_bytes(values, onednn_value_dtype());
    };
    OctileOnednnError error{};
    std::int64_t bytes = 0;
    ASSERT_EQ(api.packed_bytes(&shape, &bytes, &error), 0) << error.text;
    const HostMemory packed = *HostMemory::allocate(bytes);
    OctileOnednnWeight* direct_weight = nullptr;
    ASSERT_EQ(api.pack(&shape, decoded(weight.codes).data(), packed.data(), &direct_weight, &error), 0) << error.text;
    OctileOnednnMatmul* matmul = nullptr;
    ASSERT_EQ(api.create(&shape, &matmul, &error), 0) << error.text;
    const HostMemory scratchpad = *HostMemory::allocate(api.scratchpad_bytes(matmul) + 64);
    std::vector<float> sums(static_cast<std::size_t>(m * n));
    ASSERT_EQ(api.execute(matmul, decoded(codes).data(), direct_weight, sums.data(), scratchpad.data(), &error), 0)
        << error.text;
    api.destroy(matmul);
    api.destroy_weight(direct_weight);
    std::vector<std::uint16_t> wanted(sums.size());
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto row = i / static_cast<std::size_t>(n);
      wanted[i] = float_to_bf16((sums[i] * weight.scales[i % static_cast<std::size_t>(n)]) * scales[row]);
    }

    const std::unique_ptr<Kernel> kernel = prepare({.n = n, .k = k}, m);
    const std::shared_ptr<PackedWeight> ours = weight.pack();
    ASSERT_TRUE(kernel != nullptr && ours != nullptr);
    Workspace workspace(kernel->workspace_bytes(m));
    std::vector<std::uint16_t> got(sums.size(), 0x7FC0);
    LaunchArgs args;
    args.activation.x = {codes.data(), DType::e4m3, m, k, k, 1};
    args.activation.scales = scales.data();
    args.y = {got.data(), DType::bf16, m, n, n, 1};
    args.workspace = workspace.memory.data();
    args.workspace_bytes = kernel->workspace_bytes(m);
    ASSERT_TRUE(kernel->run(*ours, args));
    EXPECT_EQ(got, wanted) << "M=" << m;
  }
}

// Runs bf16 rows [m, k] and returns results in `out`, widened.
std::vector<float> run_rows(const Kernel& kernel, const PackedWeight& packed, const std::vector<float>& x, std::int64_t m,
                            Activation activation = {}, DType out = DType::fp32) {
  const std::vector<unsigned char> bytes = test::as_bytes(x, DType::bf16);
  activation.x = {bytes.data(), DType::bf16, m, packed.k(), packed.k(), 1};
  test::GuardedOutput y(out, m, packed.n(), packed.n());
  Workspace workspace(kernel.workspace_bytes(m));
  LaunchArgs args;
  args.activation = activation;
  args.y = y.view();
  args.workspace = workspace.memory.data();
  args.workspace_bytes = kernel.workspace_bytes(m);
  const Expected<void> done = kernel.run(packed, args);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_TRUE(y.guards_intact());
  std::vector<float> values(static_cast<std::size_t>(m * packed.n()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_as_float(y.data(), out, static_cast<std::int64_t>(i));
  }
  return values;
}

TEST_F(Onednn, ARowThatIsNotFiniteGivesNaNThereAndNowhereElse) {
  SCOPED_TRACE(test::seed_text());
  const std::int64_t n = 30;
  const std::int64_t k = 70;
  const TestWeight weight(n, k);
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  const std::unique_ptr<Kernel> kernel = prepare({.n = n, .k = k, .out_dtype = DType::fp32}, 5);
  const std::vector<float> clean = test::normals(5 * k);
  std::vector<float> dirty = clean;
  dirty[static_cast<std::size_t>(1 * k + 3)] = std::numeric_limits<float>::quiet_NaN();
  dirty[static_cast<std::size_t>(3 * k + 69)] = -std::numeric_limits<float>::infinity();
  const std::vector<float> wanted = run_rows(*kernel, *packed, clean, 5);
  const std::vector<float> got = run_rows(*kernel, *packed, dirty, 5);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(n);
    if (row == 1 || row == 3) {
      EXPECT_TRUE(std::isnan(got[i])) << "row " << row;
    } else {
      EXPECT_EQ(got[i], wanted[i]) << "row " << row;
    }
  }
}

TEST_F(Onednn, ANaNCodeInAWeightGivesNaNInItsChannelAndNowhereElse) {
  SCOPED_TRACE(test::seed_text());
  TestWeight weight(20, 33);
  weight.codes[7 * 33 + 32] = 0xFF;
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  const std::unique_ptr<Kernel> kernel = prepare({.n = 20, .k = 33, .out_dtype = DType::fp32}, 3);
  std::vector<float> x = test::normals(3 * 33);
  std::fill_n(x.begin() + 33, 33, 0.0F);  // A row of zeros: zero times NaN is NaN as well.
  const std::vector<float> y = run_rows(*kernel, *packed, x, 3);
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(std::isnan(y[i]), i % 20 == 7) << "element " << i;
  }
}

TEST_F(Onednn, RowsOfZerosAndTinyRowsStayFinite) {
  const TestWeight weight(16, 32);
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  const std::unique_ptr<Kernel> kernel = prepare({.n = 16, .k = 32, .out_dtype = DType::fp32}, 3);
  std::vector<float> x(96, 0.0F);
  std::fill_n(x.begin() + 32, 32, 1e-38F);
  std::fill_n(x.begin() + 64, 32, 448.0F);
  const std::vector<float> y = run_rows(*kernel, *packed, x, 3);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(y[i], 0.0F);
    EXPECT_TRUE(std::isfinite(y[16 + i]));
    EXPECT_TRUE(std::isfinite(y[32 + i]));
  }
}

TEST_F(Onednn, PowersOfTwoAsScalesComeOutExactlyEverywhere) {
  const std::int64_t m = 270;
  const std::int64_t n = 70;
  const std::int64_t k = 64;
  TestWeight weight(n, k);
  std::fill(weight.codes.begin(), weight.codes.end(), std::uint8_t{0x38});  // 1.0
  for (std::int64_t i = 0; i < n; ++i) {
    weight.scales[static_cast<std::size_t>(i)] = std::ldexp(1.0F, static_cast<int>(i % 16) - 8);
  }
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  const std::unique_ptr<Kernel> kernel = prepare({.n = n, .k = k, .out_dtype = DType::fp32}, m);
  const std::vector<std::uint8_t> codes(static_cast<std::size_t>(m * k), 0x38);
  std::vector<float> scales(static_cast<std::size_t>(m));
  for (std::int64_t i = 0; i < m; ++i) {
    scales[static_cast<std::size_t>(i)] = std::ldexp(1.0F, static_cast<int>(i % 20) - 10);
  }
  std::vector<float> y(static_cast<std::size_t>(m * n), -1.0F);
  Workspace workspace(kernel->workspace_bytes(m));
  LaunchArgs args;
  args.activation.x = {codes.data(), DType::e4m3, m, k, k, 1};
  args.activation.scales = scales.data();
  args.y = {y.data(), DType::fp32, m, n, n, 1};
  args.workspace = workspace.memory.data();
  args.workspace_bytes = kernel->workspace_bytes(m);
  ASSERT_TRUE(kernel->run(*packed, args));
  for (std::int64_t i = 0; i < m * n; ++i) {
    ASSERT_EQ(y[static_cast<std::size_t>(i)],
              64.0F * scales[static_cast<std::size_t>(i / n)] * weight.scales[static_cast<std::size_t>(i % n)])
        << "row " << i / n << ", column " << i % n;
  }
}

TEST_F(Onednn, Fp16OverflowsOnlyInTheLastRounding) {
  TestWeight weight(34, 8);  // Sums of 448 * 448 * 8 are beyond fp16's 65504, the results are not, but for channel 33.
  std::ranges::fill(weight.codes, std::uint8_t{0x7E});
  std::ranges::fill(weight.scales, 0x1p-10F);
  weight.scales[33] = 1.0F;
  const std::unique_ptr<Kernel> kernel = prepare({.n = 34, .k = 8, .out_dtype = DType::fp16}, 3);
  const std::vector<float> y = run_rows(*kernel, *weight.pack(), std::vector<float>(24, 448.0F), 3, {}, DType::fp16);
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(y[i], i % 34 == 33 ? std::numeric_limits<float>::infinity() : 1568.0F) << "element " << i;
  }
}

TEST_F(Onednn, AStaticScaleServesEveryRow) {
  const TestWeight weight(24, 40);
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  const std::unique_ptr<Kernel> kernel = prepare({.n = 24, .k = 40, .out_dtype = DType::fp32}, 4);
  const std::vector<float> x = test::normals(4 * 40);
  const std::vector<unsigned char> bytes = test::as_bytes(x, DType::bf16);
  std::vector<std::uint8_t> codes(4 * 40);
  std::vector<float> scales(4);
  for (std::size_t row = 0; row < 4; ++row) {
    scales[row] = quantize_row_static(bytes.data() + row * 80, DType::bf16, 40, codes.data() + row * 40, 0.02F);
  }
  const Reference reference = reference_linear({.m = 4,
                                                .n = 24,
                                                .k = 40,
                                                .codes_x = codes.data(),
                                                .scales_x = scales.data(),
                                                .codes_w = weight.codes.data(),
                                                .scales_w = weight.scales.data()});
  Activation activation;
  activation.static_scale = 0.02F;
  const std::vector<float> y = run_rows(*kernel, *packed, x, 4, activation);
  const ErrorReport report = compare_with_reference(y.data(), DType::fp32, 24, reference, 4, 24);
  EXPECT_LE(report.relative_frobenius, error_tolerance(DType::fp32, 40, Accumulate::precise)) << report.to_string();
}

TEST_F(Onednn, GivesTheSameBitsRunAfterRun) {
  const TestWeight weight(64, 128);
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  const std::unique_ptr<Kernel> kernel = prepare({.n = 64, .k = 128, .out_dtype = DType::fp32}, 50);
  const std::vector<float> x = test::normals(50 * 128);
  const std::vector<float> first = run_rows(*kernel, *packed, x, 50);
  for (int round = 0; round < 100; ++round) {
    ASSERT_EQ(run_rows(*kernel, *packed, x, 50), first) << "round " << round;
  }
}

TEST_F(Onednn, ConcurrentCallersEachGetTheirOwnResult) {
  const TestWeight weight(64, 96);
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  const std::unique_ptr<Kernel> kernel = prepare({.n = 64, .k = 96, .out_dtype = DType::fp32}, 300);
  std::vector<int> failures(3, 0);
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> wanted;
  for (const std::int64_t m : {1, 40, 290}) {
    inputs.push_back(test::normals(m * 96));
    wanted.push_back(run_rows(*kernel, *packed, inputs.back(), m));
  }
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 30; ++round) {
        const auto m = static_cast<std::int64_t>(inputs[i].size() / 96);
        failures[i] += run_rows(*kernel, *packed, inputs[i], m) == wanted[i] ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(failures, std::vector<int>(3, 0));
}

TEST_F(Onednn, WorksInAForkedChild) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not allow threads in a forked child";
#endif
  const TestWeight weight(128, 256);
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  const std::unique_ptr<Kernel> kernel = prepare({.n = 128, .k = 256, .out_dtype = DType::fp32}, 100);
  const std::vector<float> x = test::normals(100 * 256);
  const std::vector<float> wanted = run_rows(*kernel, *packed, x, 100);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    _exit(run_rows(*kernel, *packed, x, 100) == wanted ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(run_rows(*kernel, *packed, x, 100), wanted);
}

TEST_F(Onednn, AnEmptyBatchWritesNothingAndNeedsNoWorkspace) {
  const TestWeight weight(8, 8);
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  const std::unique_ptr<Kernel> kernel = prepare({.n = 8, .k = 8}, 4);
  const std::uint64_t before = onednn_calls();
  LaunchArgs args;
  args.activation.x = {nullptr, DType::bf16, 0, 8, 8, 1};
  args.y = {nullptr, DType::bf16, 0, 8, 8, 1};
  EXPECT_TRUE(kernel->run(*packed, args));
  EXPECT_EQ(onednn_calls(), before);
}

TEST_F(Onednn, BadCallsAreRefusedWithWhatWasWanted) {
  const TestWeight weight(8, 16);
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  const std::shared_ptr<PackedWeight> other = TestWeight(16, 8).pack();
  const std::unique_ptr<Kernel> kernel = prepare({.n = 8, .k = 16}, 4);
  const std::vector<unsigned char> x(2 * 16 * 2, 0);
  std::vector<std::uint16_t> y(2 * 8, 0);
  Workspace workspace(kernel->workspace_bytes(2));
  LaunchArgs good;
  good.activation.x = {x.data(), DType::bf16, 2, 16, 16, 1};
  good.y = {y.data(), DType::bf16, 2, 8, 8, 1};
  good.workspace = workspace.memory.data();
  good.workspace_bytes = kernel->workspace_bytes(2);
  ASSERT_TRUE(kernel->run(*packed, good));

  const auto message = [&](const PackedWeight& w, const LaunchArgs& args) {
    const Expected<void> done = kernel->run(w, args);
    return done ? std::string("accepted") : done.error().message;
  };
  EXPECT_THAT(message(*other, good), HasSubstr("want a weight [8, 16]"));
  LaunchArgs args = good;
  args.workspace_bytes -= 1;
  EXPECT_THAT(message(*packed, args), HasSubstr("want a workspace of"));
  args = good;
  args.workspace = static_cast<std::byte*>(good.workspace) + 8;
  EXPECT_THAT(message(*packed, args), HasSubstr("multiple of 64"));
  args = good;
  args.activation.x.col_stride = 2;
  EXPECT_THAT(message(*packed, args), HasSubstr("strides"));
  args = good;
  args.activation.x.dtype = DType::e4m3;
  EXPECT_THAT(message(*packed, args), HasSubstr("e4m3"));
  args = good;
  const float scale = 1.0F;
  args.activation.scales = &scale;  // With rows that are no codes.
  EXPECT_THAT(message(*packed, args), HasSubstr("want e4m3 codes"));
  args = good;
  args.activation.static_scale = -1.0F;
  EXPECT_THAT(message(*packed, args), HasSubstr("static activation scale"));
  args = good;
  args.y.dtype = DType::fp16;
  EXPECT_THAT(message(*packed, args), HasSubstr("want bf16"));
  args = good;
  args.y.cols = 7;
  EXPECT_THAT(message(*packed, args), HasSubstr("want [2, 8]"));
}

TEST_F(Onednn, BadWeightsAndProblemsAreRefused) {
  TestWeight weight(4, 4);
  weight.scales[2] = -1.0F;
  EXPECT_FALSE(pack_onednn(weight.source()));
  const auto refusal = [](const Problem& problem, const TileConfig& config, std::int64_t max_m) {
    const Expected<std::unique_ptr<Kernel>> kernel = onednn_family().prepare(cpu(), problem, config, max_m);
    return kernel ? std::string("accepted") : kernel.error().message;
  };
  TileConfig config;
  config.set("BLOCK_SIZE_M", 16);
  EXPECT_THAT(refusal({.n = 4, .k = 4}, config, 1), HasSubstr("takes no configuration"));
  EXPECT_THAT(refusal({.n = 0, .k = 4}, {}, 1), HasSubstr("N and K >= 1"));
  EXPECT_THAT(refusal({.n = 4, .k = 4, .batch_invariant = true}, {}, 1), HasSubstr("batch_invariant"));
  EXPECT_THAT(refusal({.n = 4, .k = 4, .out_dtype = DType::e4m3}, {}, 1), HasSubstr("want bf16, fp16 or fp32"));
  EXPECT_THAT(refusal({.n = 4, .k = 4}, {}, 0), HasSubstr("max_m >= 1"));
}

TEST_F(Onednn, IsABaselineOnlyWhereItCanKeepThePromiseThatWasAskedFor) {
  EXPECT_EQ(cpu_backend().baseline(cpu(), {.n = 8, .k = 8}), &onednn_family());
  EXPECT_EQ(cpu_backend().baseline(cpu(), {.n = 8, .k = 8, .batch_invariant = true}), nullptr);
}

TEST_F(Onednn, OffersOneConfigurationTheEmptyOne) {
  const Problem problem = {.n = 8, .k = 8};
  const std::vector<TileConfig> space = onednn_family().space(cpu(), problem, 16);
  ASSERT_EQ(space.size(), 1U);
  EXPECT_EQ(space.front(), onednn_family().heuristic(cpu(), problem, 16));
  EXPECT_TRUE(onednn_family().check(cpu(), problem, space.front()));
  EXPECT_LT(onednn_family().predict_us(cpu(), {.n = 64, .k = 64}, 1, {}),
            onednn_family().predict_us(cpu(), {.n = 64, .k = 64}, 512, {}));
}

TEST_F(Onednn, AWeightDecodedToAnotherTypeIsRefused) {
  if (onednn_value_dtype() != DType::bf16) {
    GTEST_SKIP() << "this CPU has one type only";
  }
  const TestWeight weight(8, 16);
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  const env::ScopedOverride limit("OCTILE_CPU_ISA", "avx2");
  EXPECT_EQ(onednn_value_dtype(), DType::fp32);
  const std::unique_ptr<Kernel> kernel = prepare({.n = 8, .k = 16, .out_dtype = DType::fp32}, 2);
  const std::vector<float> x = test::normals(2 * 16);
  check_run(*kernel, weight, *weight.pack(), 2, x, DType::bf16, DType::fp32, {});
  Workspace workspace(kernel->workspace_bytes(1));
  std::vector<float> y(8);
  LaunchArgs args;
  args.activation.x = {x.data(), DType::bf16, 1, 16, 16, 1};
  args.y = {y.data(), DType::fp32, 1, 8, 8, 1};
  args.workspace = workspace.memory.data();
  args.workspace_bytes = kernel->workspace_bytes(1);
  const Expected<void> done = kernel->run(*packed, args);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("decoded to fp32"));
}

TEST_F(Onednn, TheBareMatmulMultipliesItsOwnActivationsAndLeavesTheOutputAlone) {
  const TestWeight weight(32, 64);
  const std::shared_ptr<PackedWeight> packed = weight.pack();
  Expected<BareVendor> bare = cpu_backend().prepare_bare_vendor(cpu(), {.n = 32, .k = 64}, 20);
  ASSERT_TRUE(bare) << bare.error().message;
  EXPECT_EQ(bare->layout, packed->layout());
  std::vector<std::uint16_t> y(20 * 32, 0xABCD);
  Workspace workspace(bare->kernel->workspace_bytes(20));
  LaunchArgs args;
  args.activation.x = {nullptr, DType::bf16, 20, 64, 64, 1};
  args.y = {y.data(), DType::bf16, 20, 32, 32, 1};
  args.workspace = workspace.memory.data();
  args.workspace_bytes = bare->kernel->workspace_bytes(20);
  const Expected<void> done = bare->kernel->run(*packed, args);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(y, std::vector<std::uint16_t>(20 * 32, 0xABCD));
  const auto* sums = static_cast<const float*>(workspace.memory.data());
  double magnitude = 0;
  for (int i = 0; i < 20 * 32; ++i) {
    ASSERT_TRUE(std::isfinite(sums[i])) << "sum " << i << " was not written";
    magnitude += std::fabs(sums[i]);
  }
  EXPECT_GT(magnitude, 0.0);
  args.workspace_bytes -= 1;
  EXPECT_FALSE(bare->kernel->run(*packed, args));
}

TEST(OnednnRows, AreExactUpTo256AndRoundedUpToEightsAbove) {
  for (std::int64_t m = 1; m <= 256; ++m) {
    EXPECT_EQ(OnednnMatmuls::rows_for(m), m);
  }
  EXPECT_EQ(OnednnMatmuls::rows_for(257), 264);
  EXPECT_EQ(OnednnMatmuls::rows_for(264), 264);
  EXPECT_EQ(OnednnMatmuls::rows_for(265), 272);
  EXPECT_EQ(OnednnMatmuls::rows_for(1024), 1024);
  EXPECT_EQ(OnednnMatmuls::rows_for(5000), 1024);
}

// What must hold in a process in which the component is missing.
bool works_without_component() {
  const env::ScopedOverride nowhere("OCTILE_ONEDNN_PATH", "/nonexistent/liboctile_onednn.so");
  const VendorStatus status = cpu_backend().vendors(cpu()).front();
  const Problem problem = {.n = 8, .k = 8};
  const Expected<void> available = onednn_family().available(cpu());
  const TestWeight weight(8, 8);
  const Expected<std::shared_ptr<PackedWeight>> packed = cpu_backend().pack(cpu(), "onednn", weight.source());
  return !status.available && status.reason == "not found: /nonexistent/liboctile_onednn.so" && status.version.empty() &&
         !available && available.error().code == ErrorCode::unavailable &&
         cpu_backend().baseline(cpu(), problem) == nullptr && !packed && packed.error().code == ErrorCode::unavailable &&
         !cpu_backend().prepare_bare_vendor(cpu(), problem, 4) &&
         cpu_backend().pack(cpu(), "cpu_packed", weight.source()).has_value();
}

TEST(OnednnWithoutComponent, IsUnavailableWithItsReasonAndEverythingElseWorks) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(exit(works_without_component() ? 0 : 1), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace octile::cpu
