// SPDX-License-Identifier: Apache-2.0
// Instruction-set detection: levels from features, names, and the limit from the environment.
#include "octile/kernels/cpu/cpu_features.h"

#include "octile/core/env.h"
#include "octile/kernels/cpu/amx_permission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace octile::cpu {
namespace {

using ::testing::HasSubstr;

CpuFeatures avx2_features() {
  CpuFeatures f;
  f.avx = f.avx2 = f.fma = f.f16c = true;
  return f;
}

CpuFeatures avx512_features() {
  CpuFeatures f = avx2_features();
  f.avx512f = f.avx512bw = f.avx512vl = f.avx512dq = true;
  return f;
}

TEST(CpuFeatures, EachLevelNeedsAllOfItsFeatures) {
  EXPECT_EQ(isa_of(CpuFeatures{}), Isa::generic);
  EXPECT_EQ(isa_of(avx2_features()), Isa::avx2);
  EXPECT_EQ(isa_of(avx512_features()), Isa::avx512);

  CpuFeatures no_f16c = avx512_features();
  no_f16c.f16c = false;
  EXPECT_EQ(isa_of(no_f16c), Isa::generic);

  CpuFeatures no_bw = avx512_features();
  no_bw.avx512bw = false;
  EXPECT_EQ(isa_of(no_bw), Isa::avx2);

  CpuFeatures cooper_lake = avx512_features();
  cooper_lake.avx512_bf16 = true;
  EXPECT_EQ(isa_of(cooper_lake), Isa::avx512) << "BF16 without VBMI has no table look-up of bytes";

  CpuFeatures zen4 = cooper_lake;
  zen4.avx512vbmi = true;
  EXPECT_EQ(isa_of(zen4), Isa::avx512bf16);

  CpuFeatures tiles_without_bf16 = zen4;
  tiles_without_bf16.amx_tile = true;
  EXPECT_EQ(isa_of(tiles_without_bf16), Isa::avx512bf16);
  tiles_without_bf16.amx_bf16 = true;
  EXPECT_EQ(isa_of(tiles_without_bf16), Isa::amx);
}

TEST(CpuFeatures, NamesAreReadBackAsTheSameLevel) {
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512, Isa::avx512bf16, Isa::amx}) {
    const auto parsed = parse_isa(isa_name(isa));
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(*parsed, isa);
  }
  const auto unknown = parse_isa("sse9");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("'sse9'"));
  EXPECT_THAT(unknown.error().message, HasSubstr("avx512bf16"));
}

TEST(CpuFeatures, TheEnvironmentOnlyLowersTheLevel) {
  const env::ScopedOverride none("OCTILE_CPU_ISA", std::nullopt);
  const auto full = usable_isa();
  ASSERT_TRUE(full) << full.error().message;
  // AMX counts only with the kernel's permission.
  const Isa detected = isa_of(cpu_features());
  EXPECT_EQ(*full, detected == Isa::amx && !amx_permission().granted ? Isa::avx512bf16 : detected);
  {
    const env::ScopedOverride limit("OCTILE_CPU_ISA", "generic");
    const auto limited = usable_isa();
    ASSERT_TRUE(limited) << limited.error().message;
    EXPECT_EQ(*limited, Isa::generic);
  }
  {
    const env::ScopedOverride limit("OCTILE_CPU_ISA", "amx");
    const auto limited = usable_isa();
    ASSERT_TRUE(limited) << limited.error().message;
    EXPECT_EQ(*limited, *full);
  }
}

TEST(CpuFeatures, AnUnknownWordInTheEnvironmentIsAnErrorThatListsTheWords) {
  const env::ScopedOverride typo("OCTILE_CPU_ISA", "avx-512");
  const auto isa = usable_isa();
  ASSERT_FALSE(isa);
  EXPECT_THAT(isa.error().message, HasSubstr("OCTILE_CPU_ISA"));
  EXPECT_THAT(isa.error().message, HasSubstr("avx-512"));
  EXPECT_THAT(isa.error().message, HasSubstr("avx512bf16"));
}

// An independent witness: the flags that Linux prints.
TEST(CpuFeatures, AgreeWithTheFlagsOfTheKernel) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  std::string flags;
  while (std::getline(file, line)) {
    if (line.starts_with("flags")) {
      flags = line + " ";
      break;
    }
  }
  if (flags.empty()) {
    GTEST_SKIP() << "/proc/cpuinfo shows no flags here";
  }
  const auto has = [&flags](const std::string& flag) { return flags.find(" " + flag + " ") != std::string::npos; };
  const CpuFeatures& f = cpu_features();
  EXPECT_EQ(f.avx2, has("avx2"));
  EXPECT_EQ(f.fma, has("fma"));
  EXPECT_EQ(f.f16c, has("f16c"));
  EXPECT_EQ(f.avx512f, has("avx512f"));
  EXPECT_EQ(f.avx512bw, has("avx512bw"));
  EXPECT_EQ(f.avx512vl, has("avx512vl"));
  EXPECT_EQ(f.avx512dq, has("avx512dq"));
  EXPECT_EQ(f.avx512vbmi, has("avx512vbmi"));
  EXPECT_EQ(f.avx512_bf16, has("avx512_bf16"));
  EXPECT_EQ(f.gfni, has("gfni"));
  EXPECT_EQ(f.amx_tile, has("amx_tile"));
  EXPECT_EQ(f.amx_bf16, has("amx_bf16"));
}

TEST(CpuFeatures, CacheSizesAreNeverZero) {
  EXPECT_GE(cpu_features().l1d_bytes, 8 * 1024);
  EXPECT_GE(cpu_features().l2_bytes, cpu_features().l1d_bytes);
}

}  // namespace
}  // namespace octile::cpu
