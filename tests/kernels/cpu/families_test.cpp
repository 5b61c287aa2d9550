// SPDX-License-Identifier: Apache-2.0
// The families as the tuner and the dispatcher see them: availability, legality with its reasons, search space, heuristic,
// cost model, and what run() refuses.
#include "octile/kernels/cpu/families.h"

#include "octile/core/env.h"
#include "octile/kernels/cpu/cpu_features.h"
#include "octile/kernels/cpu/host_memory.h"
#include "support/cpu_linear.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace octile::cpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<const KernelFamily*>& all_families() {
  static const std::vector<const KernelFamily*> families = {&reference_family(), &avx2_family(), &avx512_family(),
                                                            &amx_family()};
  return families;
}

DeviceInfo device_of(Isa isa, int threads = 2) {
  DeviceInfo device;
  device.id = "cpu";
  device.arch = isa_name(isa);
  device.model = "AMD EPYC";
  device.sm_count = threads;
  return device;
}

// Instruction sets on which a family and its engines are to be tried.
std::vector<Isa> isas_of(const KernelFamily& family) {
  return &family == &amx_family() ? std::vector{Isa::amx} : std::vector{Isa::avx512, Isa::avx512bf16};
}

Problem problem_of(std::int64_t n, std::int64_t k) {
  Problem problem;
  problem.n = n;
  problem.k = k;
  return problem;
}

TEST(CpuFamilies, AreAvailableFromTheirInstructionSetOn) {
  const std::vector<Isa> needs = {Isa::generic, Isa::avx2, Isa::avx512, Isa::amx};
  ASSERT_EQ(needs.size(), all_families().size());
  for (std::size_t i = 0; i < needs.size(); ++i) {
    for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512, Isa::avx512bf16, Isa::amx}) {
      const auto available = all_families()[i]->available(device_of(isa));
      EXPECT_EQ(available.has_value(), isa >= needs[i]) << all_families()[i]->name() << " on " << isa_name(isa);
    }
  }
  const auto reason = avx512_family().available(device_of(Isa::avx2));
  ASSERT_FALSE(reason);
  EXPECT_EQ(reason.error().code, ErrorCode::unavailable);
  EXPECT_THAT(reason.error().message, AllOf(HasSubstr("AVX-512"), HasSubstr("'avx2'")));
}

TEST(CpuFamilies, AreNotForAGpuNorForAnUnknownInstructionSet) {
  DeviceInfo gpu = device_of(Isa::avx512);
  gpu.kind = DeviceKind::cuda;
  gpu.id = "cuda:0";
  EXPECT_FALSE(reference_family().available(gpu));
  DeviceInfo unknown = device_of(Isa::avx512);
  unknown.arch = "neon";
  const auto reason = reference_family().available(unknown);
  ASSERT_FALSE(reason);
  EXPECT_THAT(reason.error().message, HasSubstr("'neon'"));
}

TEST(CpuFamilies, HaveSourceHashesOfTheirOwn) {
  std::set<std::string> hashes;
  for (const KernelFamily* family : all_families()) {
    EXPECT_EQ(family->source_hash().size(), 16U);
    hashes.insert(family->source_hash());
  }
  EXPECT_EQ(hashes.size(), all_families().size());
}

TEST(CpuFamilies, TheHeuristicIsLegalEverywhere) {
  for (const KernelFamily* family : all_families()) {
    for (const Isa isa : isas_of(*family)) {
      for (const int threads : {1, 2, 64, 384}) {
        for (const auto& [n, k] : std::vector<std::pair<std::int64_t, std::int64_t>>{
                 {1, 1}, {17, 20}, {4096, 4096}, {24576, 4096}, {4096, 12288}, {64, 200000}, {300000, 64}}) {
          for (const std::int64_t m : {1, 2, 6, 7, 16, 17, 256, 257, 8192, 1000000}) {
            const TileConfig config = family->heuristic(device_of(isa, threads), problem_of(n, k), m);
            const auto ok = family->check(device_of(isa, threads), problem_of(n, k), config);
            EXPECT_TRUE(ok) << family->name() << " " << m << " x " << n << " x " << k << ": " << config.to_json() << ": "
                            << ok.error().message;
          }
        }
      }
    }
  }
}

TEST(CpuFamilies, TheSearchSpaceHasThreeToTwelveLegalConfigsTheHeuristicFirst) {
  for (const KernelFamily* family : all_families()) {
    for (const Isa isa : isas_of(*family)) {
      for (const std::int64_t m : {1, 4, 12, 64, 1024}) {
        const DeviceInfo device = device_of(isa);
        const Problem problem = problem_of(4096, 4096);
        const std::vector<TileConfig> space = family->space(device, problem, m);
        EXPECT_GE(space.size(), 3U) << family->name() << ", M = " << m;
        EXPECT_LE(space.size(), 12U) << family->name() << ", M = " << m;
        EXPECT_EQ(space.front(), family->heuristic(device, problem, m));
        for (std::size_t i = 0; i < space.size(); ++i) {
          EXPECT_TRUE(family->check(device, problem, space[i])) << space[i].to_json();
          EXPECT_EQ(std::count(space.begin(), space.end(), space[i]), 1) << space[i].to_json();
          EXPECT_LT(family->predict_us(device, problem, m, space[i]), 1e9) << space[i].to_json();
        }
      }
    }
  }
  EXPECT_TRUE(avx512_family().space(device_of(Isa::avx2), problem_of(64, 64), 1).empty());
}

TEST(CpuFamilies, TheCostModelGrowsWithTheWorkAndRanksTheEngines) {
  const DeviceInfo device = device_of(Isa::amx);
  const auto predicted = [&](const KernelFamily& family, std::int64_t n, std::int64_t m) {
    const Problem problem = problem_of(n, 4096);
    return family.predict_us(device, problem, m, family.heuristic(device, problem, m));
  };
  for (const KernelFamily* family : all_families()) {
    EXPECT_LT(predicted(*family, 4096, 1), predicted(*family, 8192, 1));
    EXPECT_LT(predicted(*family, 4096, 64), predicted(*family, 4096, 256));
  }
  EXPECT_LT(predicted(amx_family(), 4096, 64), predicted(avx512_family(), 4096, 64));
  EXPECT_LT(predicted(avx512_family(), 4096, 64), predicted(avx2_family(), 4096, 64));
  EXPECT_LT(predicted(avx2_family(), 4096, 64), predicted(reference_family(), 4096, 64));
}

TEST(CpuFamilies, CheckNamesKeyValueAndLimit) {
  const DeviceInfo device = device_of(Isa::avx512bf16);
  const Problem problem = problem_of(4096, 4096);
  struct Case {
    const KernelFamily* family;
    const char* key;
    std::int64_t value;
    std::vector<const char*> parts;
  };
  const std::vector<Case> cases = {
      {&avx512_family(), "MICRO_M", 0, {"MICRO_M", "1 to 32", "got 0"}},
      {&avx512_family(), "MICRO_M", 7, {"MICRO_M", "1 to 6", "MICRO_N = 64", "got 7"}},
      {&avx512_family(), "MICRO_N", 24, {"MICRO_N", "multiple of 16", "got 24"}},
      {&reference_family(), "MICRO_N", 64, {"MICRO_N", "reference", "64"}},
      {&avx512_family(), "BLOCK_M", 65537, {"BLOCK_M", "65536", "got 65537"}},
      {&avx512_family(), "BLOCK_N", 100, {"BLOCK_N", "multiple of 64", "got 100"}},
      {&avx512_family(), "BLOCK_K", 48, {"BLOCK_K", "multiple of 32", "got 48"}},
      {&avx512_family(), "BLOCK_K", -32, {"BLOCK_K", "got -32"}},
      {&avx512_family(), "DECODE", 3, {"DECODE", "0 to 2", "got 3"}},
      {&avx512_family(), "PREFETCH", 100, {"PREFETCH", "multiple of 64", "got 100"}},
      {&avx512_family(), "DOT", 2, {"DOT", "got 2"}},
      {&avx2_family(), "DOT", 1, {"DOT", "unknown key"}},
      {&avx2_family(), "num_warps", 4, {"num_warps", "unknown key", "MICRO_M"}},
  };
  for (const Case& c : cases) {
    TileConfig config = c.family->heuristic(device, problem, 64);
    config.set(c.key, c.value);
    const auto ok = c.family->check(device, problem, config);
    ASSERT_FALSE(ok) << c.key << " = " << c.value;
    EXPECT_EQ(ok.error().code, ErrorCode::invalid_argument);
    for (const char* part : c.parts) {
      EXPECT_THAT(ok.error().message, HasSubstr(part));
    }
    EXPECT_FALSE(c.family->prepare(device, problem, config, 64)) << "prepare() takes only what check() takes";
    EXPECT_GE(c.family->predict_us(device, problem, 64, config), 1e9) << c.key;
  }
}

TEST(CpuFamilies, CheckWantsEveryKey) {
  const DeviceInfo device = device_of(Isa::avx512bf16);
  const TileConfig whole = avx512_family().heuristic(device, problem_of(64, 64), 8);
  for (const auto& [name, value] : whole.values) {
    TileConfig config;
    for (const auto& [other, other_value] : whole.values) {
      if (other != name) {
        config.set(other, other_value);
      }
    }
    const auto ok = avx512_family().check(device, problem_of(64, 64), config);
    ASSERT_FALSE(ok) << name;
    EXPECT_THAT(ok.error().message, AllOf(HasSubstr(name), HasSubstr("missing")));
  }
}

TEST(CpuFamilies, CheckBoundsTheScratchOfAThread) {
  const DeviceInfo device = device_of(Isa::avx512bf16);
  TileConfig config = avx512_family().heuristic(device, problem_of(4096, 65536), 64);
  config.set("DECODE", 1);
  config.set("BLOCK_N", 4096);
  config.set("BLOCK_K", 65536);
  const auto ok = avx512_family().check(device, problem_of(4096, 65536), config);
  ASSERT_FALSE(ok);
  EXPECT_THAT(ok.error().message, AllOf(HasSubstr("BLOCK_N = 4096"), HasSubstr("scratch")));
}

TEST(CpuFamilies, DotNeedsBf16) {
  TileConfig config = avx512_family().heuristic(device_of(Isa::avx512bf16), problem_of(64, 64), 8);
  config.set("DOT", 1);
  const auto ok = avx512_family().check(device_of(Isa::avx512), problem_of(64, 64), config);
  ASSERT_FALSE(ok);
  EXPECT_THAT(ok.error().message, AllOf(HasSubstr("DOT"), HasSubstr("avx512")));
}

TEST(CpuFamilies, BatchInvarianceAllowsOneOrderOfAdditionsADevice) {
  Problem problem = problem_of(64, 64);
  problem.batch_invariant = true;
  const auto legal = [&problem](const KernelFamily& family, Isa isa) {
    return family.check(device_of(isa), problem, family.heuristic(device_of(isa), problem, 8)).has_value();
  };
  EXPECT_TRUE(legal(reference_family(), Isa::avx512));
  EXPECT_TRUE(legal(avx2_family(), Isa::avx512));
  EXPECT_TRUE(legal(avx512_family(), Isa::avx512));
  EXPECT_FALSE(legal(reference_family(), Isa::avx512bf16));
  EXPECT_FALSE(legal(avx2_family(), Isa::avx512bf16));
  EXPECT_TRUE(legal(avx512_family(), Isa::avx512bf16));
  for (const std::int64_t m : {1, 16, 300}) {
    for (const TileConfig& config : avx512_family().space(device_of(Isa::avx512bf16), problem, m)) {
      EXPECT_EQ(config.get("DOT", -1), 1);
    }
  }
  // AMX's tiles add in an order of their own.
  EXPECT_TRUE(legal(amx_family(), Isa::amx));
  EXPECT_FALSE(legal(avx512_family(), Isa::amx));
  EXPECT_TRUE(avx512_family().space(device_of(Isa::amx), problem, 1).empty());
}

TEST(CpuFamilies, AmxTakesWideTilesForFewRowsAndSquareOnesForMany) {
  const DeviceInfo device = device_of(Isa::amx);
  const auto config = [&](std::int64_t m) { return amx_family().heuristic(device, problem_of(4096, 4096), m); };
  EXPECT_EQ(config(1).get("MICRO_N", 0), 64);
  EXPECT_EQ(config(16).get("MICRO_N", 0), 64);
  EXPECT_EQ(config(17).get("MICRO_N", 0), 32);
  EXPECT_EQ(config(1024).get("MICRO_N", 0), 32);
  EXPECT_EQ(config(1024).get("MICRO_M", 0), 32);
  TileConfig tall = config(1024);
  tall.set("MICRO_N", 64);
  const auto ok = amx_family().check(device, problem_of(4096, 4096), tall);
  ASSERT_FALSE(ok);
  EXPECT_THAT(ok.error().message, AllOf(HasSubstr("MICRO_M"), HasSubstr("1 to 16"), HasSubstr("got 32")));
}

TEST(CpuFamilies, NumericsOfTheBaselineAreRefused) {
  Problem problem = problem_of(64, 64);
  problem.numerics = Numerics::baseline;
  const DeviceInfo device = device_of(Isa::avx2);
  const auto ok = avx2_family().check(device, problem, avx2_family().heuristic(device, problem, 1));
  ASSERT_FALSE(ok);
  EXPECT_THAT(ok.error().message, HasSubstr("numerics=baseline"));
}

TEST(CpuFamilies, PrepareRefusesWhatTheCpuAtHandMayNotUse) {
  const env::ScopedOverride limit("OCTILE_CPU_ISA", "generic");
  const DeviceInfo device = device_of(Isa::avx2);
  const Problem problem = problem_of(64, 64);
  const auto kernel = avx2_family().prepare(device, problem, avx2_family().heuristic(device, problem, 1), 1);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().code, ErrorCode::unavailable);
  EXPECT_THAT(kernel.error().message, AllOf(HasSubstr("avx2"), HasSubstr("'generic'")));
  EXPECT_TRUE(reference_family().prepare(device, problem, reference_family().heuristic(device, problem, 1), 1));
}

class CpuKernelRun : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto packed = pack_cpu(operands_.weight_source());
    ASSERT_TRUE(packed) << packed.error().message;
    weight_ = *packed;
    auto kernel = reference_family().prepare(device_of(Isa::generic), problem_of(5, 7),
                                             reference_family().heuristic(device_of(Isa::generic), problem_of(5, 7), 3), 3);
    ASSERT_TRUE(kernel) << kernel.error().message;
    kernel_ = std::move(kernel).value();
    auto workspace = HostMemory::allocate(kernel_->workspace_bytes(3) + 64);
    ASSERT_TRUE(workspace);
    workspace_ = std::move(workspace).value();
    args_.activation.x = operands_.x_view();
    args_.y = output_.view();
    args_.workspace = workspace_.data();
    args_.workspace_bytes = kernel_->workspace_bytes(3);
  }
  void expect_refused(const LaunchArgs& args, const std::string& part) {
    const auto ok = kernel_->run(*weight_, args);
    ASSERT_FALSE(ok) << part;
    EXPECT_EQ(ok.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(ok.error().message, HasSubstr(part));
  }
  test::LinearOperands operands_ = test::LinearOperands::random(3, 5, 7);
  test::GuardedOutput output_{DType::bf16, 3, 5, 5};
  std::shared_ptr<PackedWeight> weight_;
  std::unique_ptr<Kernel> kernel_;
  HostMemory workspace_;
  LaunchArgs args_;
};

TEST_F(CpuKernelRun, RefusesBadViews) {
  ASSERT_TRUE(kernel_->run(*weight_, args_));
  LaunchArgs args = args_;
  args.activation.x.cols = 6;
  expect_refused(args, "want [M, 7]");
  args = args_;
  args.activation.x.col_stride = 2;
  expect_refused(args, "strides (12, 2)");
  args = args_;
  args.activation.x.row_stride = 6;
  expect_refused(args, "strides (6, 1)");
  args = args_;
  args.activation.x.data = nullptr;
  expect_refused(args, "null pointer");
  args = args_;
  args.activation.x.dtype = DType::e4m3;
  expect_refused(args, "e4m3");
  args = args_;
  args.y.dtype = DType::fp16;
  expect_refused(args, "want bf16, got fp16");
  args = args_;
  args.y.cols = 4;
  expect_refused(args, "want [3, 5], got [3, 4]");
}

TEST_F(CpuKernelRun, RefusesBadScalesAndCodes) {
  LaunchArgs args = args_;
  args.activation.static_scale = -1.0F;
  expect_refused(args, "static activation scale");
  args = args_;
  args.activation.quantize.floor = 0.0F;
  expect_refused(args, "floor");
  const std::vector<float> scales(3, 1.0F);
  args = args_;
  args.activation.scales = scales.data();
  expect_refused(args, "want e4m3 codes, got bf16");
}

TEST_F(CpuKernelRun, RefusesAWorkspaceThatIsTooSmallOrNotAligned) {
  LaunchArgs args = args_;
  args.workspace_bytes -= 1;
  expect_refused(args, "workspace: want");
  args = args_;
  args.workspace = static_cast<char*>(args.workspace) + 8;
  expect_refused(args, "multiple of 64");
  args = args_;
  args.workspace = nullptr;
  expect_refused(args, "workspace");
}

TEST_F(CpuKernelRun, RefusesAnotherWeight) {
  test::LinearOperands other = test::LinearOperands::random(1, 6, 7);
  const auto packed = pack_cpu(other.weight_source());
  ASSERT_TRUE(packed);
  const auto ok = kernel_->run(**packed, args_);
  ASSERT_FALSE(ok);
  EXPECT_THAT(ok.error().message, AllOf(HasSubstr("[5, 7]"), HasSubstr("[6, 7]")));
}

TEST_F(CpuKernelRun, NoRowsDoNothingAndNeedNoWorkspace) {
  LaunchArgs args = args_;
  args.activation.x.rows = 0;
  args.activation.x.data = nullptr;
  args.y.rows = 0;
  args.y.data = nullptr;
  args.workspace = nullptr;
  args.workspace_bytes = 0;
  const auto ok = kernel_->run(*weight_, args);
  EXPECT_TRUE(ok) << ok.error().message;
  EXPECT_FALSE(output_.all_written());
}

}  // namespace
}  // namespace octile::cpu
