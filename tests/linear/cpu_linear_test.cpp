// SPDX-License-Identifier: Apache-2.0
// Fp8Linear on this machine's CPU, through the public interface: every family that runs here, the vendor as baseline, and
// the kinds of faults that users of such libraries have reported.
#include "cpu_table.h"
#include "layer.h"
#include "octile/core/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <thread>

namespace octile {
namespace {

using test::CpuTable;
using test::expect_close;
using test::GuardedOutput;
using test::Inputs;
using test::run_guarded;
using test::Weights;
using test::Workspace;

struct Shape {
  std::int64_t n;
  std::int64_t k;
};

Expected<Fp8Linear> layer(const WeightSource& source, const WeightOptions& options, std::int64_t max_m,
                          const LinearOptions& linear_options = {}) {
  auto weight = Fp8Weight::create(source, options);
  if (!weight) {
    return weight.error();
  }
  auto linear = Fp8Linear::create(*weight, linear_options);
  if (linear) {
    if (auto ok = linear->prepare(max_m); !ok) {
      return ok.error();
    }
  }
  return linear;
}

class OnCpu : public testing::TestWithParam<std::string> {
 protected:
  // Skips in the caller where the kernel does not run here.
  bool missing() const { return !CpuTable({17, 20}, GetParam()).available(); }
  testing::ScopedTrace trace{__FILE__, __LINE__, test::seed_text()};
};

TEST_P(OnCpu, TheNamedKernelIsWhatServes) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  const CpuTable table({17, 20}, GetParam());
  const Weights weights(17, 20);
  const auto linear = layer(weights.source(), table.options(), 40);
  ASSERT_TRUE(linear) << linear.error().message;
  Problem problem;
  problem.n = 17;
  problem.k = 20;
  const Device device = find_device("cpu").value();
  const bool is_baseline = GetParam() == kBaselineKernel;
  for (const std::int64_t m : {1, 2, 40}) {
    const Explanation explanation = linear->explain(m);
    EXPECT_EQ(explanation.kernel, is_baseline ? device.backend->baseline(device.info, problem)->name() : GetParam());
    EXPECT_THAT(explanation.table_file, testing::Not(testing::IsEmpty())) << explanation.reason;
  }
}

TEST_P(OnCpu, OddShapesWithBiasAreTheReference) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  for (const Shape shape : {Shape{1, 4}, Shape{17, 12}, Shape{1001, 20}, Shape{33, 200}}) {
    const CpuTable table({shape.n, shape.k}, GetParam());
    const Weights weights(shape.n, shape.k, 3);
    const std::vector<float> bias = test::normals(shape.n);
    LinearOptions options;
    options.bias = bias.data();
    const auto linear = layer(weights.source(), table.options(), 40, options);
    ASSERT_TRUE(linear) << linear.error().message;
    for (const std::int64_t m : {1, 2, 15, 16, 17, 40}) {
      const Inputs x(m, shape.k, 5);
      GuardedOutput y(DType::bf16, m, shape.n, shape.n + 1);
      Workspace workspace(linear->workspace_bytes(m));
      const auto ok = linear->run(x.view(), y.view(), workspace.data(), workspace.bytes());
      ASSERT_TRUE(ok) << ok.error().message;
      EXPECT_TRUE(y.guards_intact());
      EXPECT_TRUE(y.all_written());
      EXPECT_TRUE(workspace.guard_intact());
      SCOPED_TRACE(testing::Message() << "M = " << m << ", N = " << shape.n << ", K = " << shape.k);
      expect_close(weights, x, bias.data(), y.view());
    }
  }
}

TEST_P(OnCpu, OnesTimesPowersOfTwoAreExactInEveryRowAndColumn) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  constexpr std::int64_t kN = 130;
  constexpr std::int64_t kK = 64;
  const CpuTable table({kN, kK}, GetParam());
  Weights weights(kN, kK);
  std::ranges::fill(weights.codes, std::uint8_t{0x38});
  for (std::int64_t n = 0; n < kN; ++n) {
    weights.scales[static_cast<std::size_t>(n)] = std::ldexp(1.0F, static_cast<int>(n % 20) - 10);
  }
  WeightOptions options = table.options();
  options.out_dtype = DType::bf16;
  LinearOptions quantized;
  quantized.activation = ActivationMode::quantized;
  const auto linear = layer(weights.source(), options, 70, quantized);
  ASSERT_TRUE(linear) << linear.error().message;
  const std::vector<std::uint8_t> codes(static_cast<std::size_t>(70 * kK), 0x38);
  std::vector<float> scales(70);
  for (std::size_t m = 0; m < scales.size(); ++m) {
    scales[m] = std::ldexp(1.0F, static_cast<int>(m % 13) - 6);
  }
  GuardedOutput y(DType::bf16, 70, kN, kN);
  Workspace workspace(linear->workspace_bytes(70));
  ASSERT_TRUE(linear->run_quantized({codes.data(), DType::e4m3, 70, kK, kK, 1}, scales.data(), y.view(), workspace.data(),
                                    workspace.bytes()));
  for (std::int64_t m = 0; m < 70; ++m) {
    for (std::int64_t n = 0; n < kN; ++n) {
      ASSERT_EQ(load_as_float(y.data(), DType::bf16, m * kN + n),
                64.0F * scales[static_cast<std::size_t>(m)] * weights.scales[static_cast<std::size_t>(n)])
          << m << ", " << n;
    }
  }
}

TEST_P(OnCpu, ZeroTinyAndNonFiniteRowsAreTheirOwn) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  constexpr std::int64_t kN = 24;
  constexpr std::int64_t kK = 36;
  const CpuTable table({kN, kK}, GetParam());
  const Weights weights(kN, kK);
  const std::vector<float> bias = test::normals(kN);
  LinearOptions options;
  options.bias = bias.data();
  const auto linear = layer(weights.source(), table.options(), 8, options);
  ASSERT_TRUE(linear) << linear.error().message;
  const Inputs clean(5, kK);
  Inputs dirty = clean;
  for (std::int64_t i = 0; i < kK; ++i) {
    store_from_float(dirty.bytes.data(), DType::bf16, 1 * kK + i, 0.0F);
    store_from_float(dirty.bytes.data(), DType::bf16, 3 * kK + i, i % 2 == 0 ? 1e-38F : -1e-40F);
  }
  store_from_float(dirty.bytes.data(), DType::bf16, 2 * kK + 30, std::numeric_limits<float>::quiet_NaN());
  const auto before = run_guarded(*linear, clean.view(), DType::bf16, kN);
  const auto after = run_guarded(*linear, dirty.view(), DType::bf16, kN);
  for (std::int64_t i = 0; i < 5 * kN; ++i) {
    const float value = load_as_float(after.data(), DType::bf16, i);
    const float rounded_bias = bf16_to_float(float_to_bf16(bias[static_cast<std::size_t>(i % kN)]));
    switch (i / kN) {
      case 1:
        EXPECT_EQ(value, rounded_bias) << "a row of zeros gives the bias, column " << i % kN;
        break;
      case 2:
        EXPECT_TRUE(std::isnan(value)) << "column " << i % kN;
        break;
      case 3:
        EXPECT_NEAR(value, rounded_bias, std::fabs(rounded_bias) / 128 + 1e-30F) << "column " << i % kN;
        break;
      default:
        EXPECT_EQ(value, load_as_float(before.data(), DType::bf16, i)) << "row " << i / kN << ", column " << i % kN;
    }
  }
}

TEST_P(OnCpu, SeveralThreadsWithWorkspacesOfTheirOwnGetTheSameBits) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  constexpr std::int64_t kN = 70;
  constexpr std::int64_t kK = 128;
  const CpuTable table({kN, kK}, GetParam());
  const Weights weights(kN, kK);
  const auto linear = layer(weights.source(), table.options(), 32);
  ASSERT_TRUE(linear) << linear.error().message;
  std::vector<std::thread> threads;
  std::atomic<int> different{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, x = Inputs(1 + 11 * t, kK)] {
      const auto first = run_guarded(*linear, x.view(), DType::bf16, kN);
      for (int round = 0; round < 20; ++round) {
        different += run_guarded(*linear, x.view(), DType::bf16, kN) == first ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(different, 0);
}

// Calls with codes and scales; as run_guarded(). A NaN of a kernel is not the poison, whose payload is all ones.
std::vector<unsigned char> run_codes_guarded(const Fp8Linear& linear, ConstMatrixView codes, const float* scales,
                                             std::int64_t n) {
  GuardedOutput y(DType::bf16, codes.rows, n, n + 3);
  Workspace workspace(linear.workspace_bytes(codes.rows));
  const auto ok = linear.run_quantized(codes, scales, y.view(), workspace.data(), workspace.bytes());
  EXPECT_TRUE(ok.has_value()) << ok.error().message;
  EXPECT_TRUE(y.guards_intact());
  EXPECT_TRUE(y.all_written());
  EXPECT_TRUE(workspace.guard_intact());
  return test::bytes_of(y.view());
}

TEST_P(OnCpu, CodesInPaddedRowsGiveTheBitsOfDenseOnesAndANaNCodeSpoilsItsRowAlone) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  constexpr std::int64_t kN = 70;
  constexpr std::int64_t kK = 100;
  constexpr std::int64_t kStride = kK + 9;
  const CpuTable table({kN, kK}, GetParam());
  const Weights weights(kN, kK);
  LinearOptions options;
  options.activation = ActivationMode::quantized;
  const auto linear = layer(weights.source(), table.options(), 40, options);
  ASSERT_TRUE(linear) << linear.error().message;
  for (const std::int64_t m : {3, 18, 40}) {
    SCOPED_TRACE(testing::Message() << "M = " << m);
    const Inputs x(m, kK);
    const auto dense = run_codes_guarded(*linear, x.codes_view(), x.scales.data(), kN);
    std::vector<std::uint8_t> padded(static_cast<std::size_t>(m * kStride), 0x7F);
    for (std::int64_t row = 0; row < m; ++row) {
      std::copy_n(x.codes.begin() + row * kK, kK, padded.begin() + row * kStride);
    }
    const ConstMatrixView view = {padded.data(), DType::e4m3, m, kK, kStride, 1};
    EXPECT_EQ(run_codes_guarded(*linear, view, x.scales.data(), kN), dense);

    for (const std::int64_t column : {std::int64_t{0}, std::int64_t{37}, kK - 1}) {
      std::uint8_t& code = padded[static_cast<std::size_t>(2 * kStride + column)];
      const std::uint8_t clean = std::exchange(code, std::uint8_t{0xFF});
      const auto spoiled = run_codes_guarded(*linear, view, x.scales.data(), kN);
      code = clean;
      for (std::int64_t i = 0; i < m * kN; ++i) {
        const float value = load_as_float(spoiled.data(), DType::bf16, i);
        if (i / kN == 2) {
          ASSERT_TRUE(std::isnan(value)) << "column " << i % kN << ": got " << value;
        } else {
          ASSERT_EQ(std::memcmp(spoiled.data() + 2 * i, dense.data() + 2 * i, 2), 0) << "row " << i / kN << ", " << i % kN;
        }
      }
    }
  }
}

TEST_P(OnCpu, ColumnsOfAWiderBufferGiveTheBitsOfRowsOfTheirOwn) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  constexpr std::int64_t kN = 65;
  constexpr std::int64_t kK = 132;
  constexpr std::int64_t kStride = kK + 20;
  const CpuTable table({kN, kK}, GetParam());
  const Weights weights(kN, kK);
  const auto linear = layer(weights.source(), table.options(), 40);
  ASSERT_TRUE(linear) << linear.error().message;
  for (const std::int64_t m : {1, 17, 40}) {
    const Inputs x(m, kK);
    std::vector<float> garbage(static_cast<std::size_t>((m + 4) * kStride), 1e38F);
    for (std::size_t i = 0; i < garbage.size(); i += 2) {
      garbage[i] = std::numeric_limits<float>::quiet_NaN();
    }
    std::vector<unsigned char> wide = test::as_bytes(garbage, DType::bf16);
    unsigned char* slice = wide.data() + (2 * kStride + 7) * 2;  // Two rows of garbage before it, two behind it.
    for (std::int64_t row = 0; row < m; ++row) {
      std::memcpy(slice + row * kStride * 2, x.bytes.data() + row * kK * 2, static_cast<std::size_t>(kK * 2));
    }
    EXPECT_EQ(run_guarded(*linear, {slice, DType::bf16, m, kK, kStride, 1}, DType::bf16, kN),
              run_guarded(*linear, x.view(), DType::bf16, kN))
        << "M = " << m;
  }
}

TEST_P(OnCpu, AZeroChannelWithScaleZeroAndRowsOfZerosGiveTheBiasExactly) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  constexpr std::int64_t kN = 40;
  constexpr std::int64_t kK = 68;
  constexpr std::int64_t kM = 20;
  const CpuTable table({kN, kK}, GetParam());
  Weights weights(kN, kK);
  std::fill_n(weights.codes.begin() + 3 * kK, kK, std::uint8_t{0});
  weights.scales[3] = 0.0F;
  const std::vector<float> bias = test::normals(kN);
  LinearOptions options;
  options.bias = bias.data();
  const auto linear = layer(weights.source(), table.options(), kM, options);
  ASSERT_TRUE(linear) << linear.error().message;
  const auto is_bias = [&](const std::vector<unsigned char>& y, std::int64_t row, std::int64_t column) {
    return load_as_float(y.data(), DType::bf16, row * kN + column) ==
           bf16_to_float(float_to_bf16(bias[static_cast<std::size_t>(column)]));
  };
  const Inputs x(kM, kK);
  Inputs zeros = x;
  std::ranges::fill(zeros.bytes, static_cast<unsigned char>(0));
  for (const std::int64_t m : {std::int64_t{1}, std::int64_t{9}, kM}) {
    const auto y = run_guarded(*linear, zeros.view(0, m), DType::bf16, kN);
    for (std::int64_t i = 0; i < m * kN; ++i) {
      ASSERT_TRUE(is_bias(y, i / kN, i % kN)) << "M = " << m << ", row " << i / kN << ", column " << i % kN;
    }
  }
  const auto y = run_guarded(*linear, x.view(), DType::bf16, kN);
  for (std::int64_t column = 0; column < kN; ++column) {
    bool all = true;
    for (std::int64_t row = 0; row < kM; ++row) {
      all = all && is_bias(y, row, column);
    }
    EXPECT_EQ(all, column == 3) << "column " << column;
  }
}

TEST_P(OnCpu, NoRowsSucceedWithoutDataScalesOrWorkspaceAndWriteNothing) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  constexpr std::int64_t kN = 33;
  constexpr std::int64_t kK = 40;
  const CpuTable table({kN, kK}, GetParam());
  const Weights weights(kN, kK);
  const std::vector<float> bias = test::normals(kN);
  LinearOptions raw;
  raw.bias = bias.data();
  LinearOptions quantized = raw;
  quantized.activation = ActivationMode::quantized;
  const auto of_rows = layer(weights.source(), table.options(), 8, raw);
  const auto of_codes = layer(weights.source(), table.options(), 8, quantized);
  ASSERT_TRUE(of_rows && of_codes);
  GuardedOutput y(DType::bf16, 4, kN, kN + 3);
  MatrixView none = y.view();
  none.rows = 0;
  for (const MatrixView& out : {none, MatrixView{nullptr, DType::bf16, 0, kN, kN, 1}}) {
    const auto by_rows = of_rows->run({nullptr, DType::bf16, 0, kK, kK, 1}, out, nullptr, 0);
    EXPECT_TRUE(by_rows) << by_rows.error().message;
    for (const Fp8Linear& linear : {*of_rows, *of_codes}) {
      const auto by_codes = linear.run_quantized({nullptr, DType::e4m3, 0, kK, kK, 1}, nullptr, out, nullptr, 0);
      EXPECT_TRUE(by_codes) << by_codes.error().message;
    }
  }
  EXPECT_TRUE(y.guards_intact());
  EXPECT_THAT(test::bytes_of(y.view()), testing::Each(0xFF));
}

// Address space of which only the pages that were written exist.
class SparseMemory {
 public:
  explicit SparseMemory(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)),
        start_(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)),
        error_(start_ == MAP_FAILED ? errno : 0) {}
  ~SparseMemory() {
    if (error_ == 0) {
      ::munmap(start_, bytes_);
    }
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  int error() const { return error_; }
  unsigned char* data() { return static_cast<unsigned char*>(start_); }

 private:
  std::size_t bytes_;
  void* start_;
  int error_;
};

TEST_P(OnCpu, RowsFartherApartThan32BitsCountGiveTheBitsOfDenseOnes) {
  if (missing()) {
    GTEST_SKIP() << GetParam() << " does not run on this machine";
  }
  constexpr std::int64_t kM = 3;
  constexpr std::int64_t kN = 4;
  constexpr std::int64_t kK = 36;
  constexpr std::int64_t kStride = (std::int64_t{1} << 31) + 8;  // The last row begins beyond 2^32 elements.
  constexpr std::int64_t kWeightStride = (std::int64_t{1} << 31) - 1;
  constexpr std::int64_t kGuard = 64;
  const CpuTable table({kN, kK}, GetParam());
  const Weights weights(kN, kK);
  const Inputs x(kM, kK);
  const auto dense = layer(weights.source(), table.options(), kM);
  ASSERT_TRUE(dense) << dense.error().message;
  const auto expected = run_guarded(*dense, x.view(), DType::bf16, kN);

  SparseMemory far_x(((kM - 1) * kStride + kK) * 2);
  SparseMemory far_y(((kM - 1) * kStride + kN + 2 * kGuard) * 2);
  SparseMemory far_codes((kN - 1) * kWeightStride + kK);
  for (const SparseMemory* memory : {&far_x, &far_y, &far_codes}) {
    if (memory->error() != 0) {
      GTEST_SKIP() << "no room for sparse rows in the address space: " << std::strerror(memory->error());
    }
  }
  for (std::int64_t row = 0; row < kM; ++row) {
    std::memcpy(far_x.data() + row * kStride * 2, x.bytes.data() + row * kK * 2, static_cast<std::size_t>(kK * 2));
    std::memset(far_y.data() + row * kStride * 2, 0xFF, static_cast<std::size_t>((kN + 2 * kGuard) * 2));
  }
  for (std::int64_t n = 0; n < kN; ++n) {
    std::memcpy(far_codes.data() + n * kWeightStride, weights.codes.data() + n * kK, static_cast<std::size_t>(kK));
  }
  WeightSource source = weights.source();
  source.codes = far_codes.data();
  source.row_stride = kWeightStride;
  const auto linear = layer(source, table.options(), kM);
  ASSERT_TRUE(linear) << linear.error().message;
  Workspace workspace(linear->workspace_bytes(kM));
  const MatrixView y = {far_y.data() + kGuard * 2, DType::bf16, kM, kN, kStride, 1};
  const auto ok = linear->run({far_x.data(), DType::bf16, kM, kK, kStride, 1}, y, workspace.data(), workspace.bytes());
  ASSERT_TRUE(ok) << ok.error().message;
  EXPECT_EQ(test::bytes_of(y), expected);
  for (std::int64_t row = 0; row < kM; ++row) {
    const unsigned char* before = far_y.data() + row * kStride * 2;
    const unsigned char* behind = before + (kGuard + kN) * 2;
    EXPECT_THAT(std::vector<unsigned char>(before, before + kGuard * 2), testing::Each(0xFF)) << "row " << row;
    EXPECT_THAT(std::vector<unsigned char>(behind, behind + kGuard * 2), testing::Each(0xFF)) << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, OnCpu, testing::Values("reference", "avx2", "avx512", kBaselineKernel),
                         [](const testing::TestParamInfo<std::string>& kernel) { return kernel.param; });

// A shape and data for the tests that follow, on whatever serves on this machine.
class CpuLinear : public testing::Test {
 protected:
  static constexpr std::int64_t kN = 96;
  static constexpr std::int64_t kK = 200;
  testing::ScopedTrace trace{__FILE__, __LINE__, test::seed_text()};
  Weights weights{kN, kK};
};

TEST_F(CpuLinear, BatchInvarianceGivesARowTheSameBitsInEveryCompany) {
  WeightOptions options;
  options.batch_invariant = true;
  const auto linear = layer(weights.source(), options, 64);
  ASSERT_TRUE(linear) << linear.error().message;
  const Inputs x(80, kK);
  const auto together = run_guarded(*linear, x.view(), DType::bf16, kN);
  const std::size_t row_bytes = kN * 2;
  for (const std::int64_t company : {1, 2, 17, 33}) {
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, 80 - company}) {
      const auto few = run_guarded(*linear, x.view(first, company), DType::bf16, kN);
      EXPECT_EQ(std::memcmp(few.data(), together.data() + static_cast<std::size_t>(first) * row_bytes, few.size()), 0)
          << company << " rows from " << first;
    }
  }
}

TEST_F(CpuLinear, TheKillSwitchIsBitIdenticalToTheVendorsKernelCalledDirectly) {
  const Device device = find_device("cpu").value();
  Problem problem;
  problem.n = kN;
  problem.k = kK;
  const KernelFamily* vendor = device.backend->baseline(device.info, problem);
  if (vendor == nullptr) {
    GTEST_SKIP() << "no vendor's library on this machine";
  }
  const Inputs x(21, kK, 8);
  WeightSource source = weights.source();
  const auto packed = device.backend->pack(device.info, vendor->layout(), source);
  ASSERT_TRUE(packed) << packed.error().message;
  const auto kernel = vendor->prepare(device.info, problem, vendor->heuristic(device.info, problem, 21), 32);
  ASSERT_TRUE(kernel) << kernel.error().message;
  GuardedOutput y(DType::bf16, 21, kN, kN);
  Workspace workspace((*kernel)->workspace_bytes(21));
  LaunchArgs args;
  args.activation.x = x.view();
  args.y = y.view();
  args.workspace = workspace.data();
  args.workspace_bytes = workspace.bytes();
  ASSERT_TRUE((*kernel)->run(**packed, args));

  const env::ScopedOverride off("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE", "off");
  const CpuTable table({kN, kK}, "reference");
  const auto linear = layer(weights.source(), table.options(), 32);
  ASSERT_TRUE(linear) << linear.error().message;
  EXPECT_EQ(run_guarded(*linear, x.view(), DType::bf16, kN), test::bytes_of(y.view()));
  EXPECT_EQ(linear->explain(21).choice, "baseline");
  EXPECT_EQ(linear->explain(21).kernel, vendor->name());
}

// Bytes of address space.
std::int64_t memory_in_use() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0;
  statm >> pages;
  return pages * 4096;
}

TEST_F(CpuLinear, MakingAndDestroyingLeavesNothingBehind) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps freed memory for a while, and finds leaks itself";
#endif
  const auto cycle = [&] {
    const auto linear = layer(weights.source(), {}, 16);
    ASSERT_TRUE(linear) << linear.error().message;
    run_guarded(*linear, Inputs(16, kK).view(), DType::bf16, kN);
  };
  for (int i = 0; i < 5; ++i) {
    cycle();
  }
  const std::int64_t before = memory_in_use();
  for (int i = 0; i < 100; ++i) {
    cycle();
  }
  // A leaked weight alone would be 100 x 19,200 bytes of codes, and its decoded copy four times that.
  EXPECT_LT(memory_in_use() - before, 1 << 20);
}

}  // namespace
}  // namespace octile
