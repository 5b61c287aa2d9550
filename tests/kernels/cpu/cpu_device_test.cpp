// SPDX-License-Identifier: Apache-2.0
// How the CPU is named and described, from texts as kernels write them.
#include "octile/kernels/cpu/cpu_device.h"

#include "octile/core/env.h"
#include "octile/kernels/cpu/cpu_features.h"
#include "octile/kernels/cpu/thread_pool.h"
#include "octile/kernels/known_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace octile::cpu {
namespace {

FileReader files(std::map<std::string, std::string> texts) {
  return [texts = std::move(texts)](const std::string& path) -> std::optional<std::string> {
    const auto found = texts.find(path);
    return found == texts.end() ? std::nullopt : std::optional(found->second);
  };
}

// One cache of one core as /sys shows it.
void add_cache(std::map<std::string, std::string>& texts, int cpu, int index, const char* level, const char* type,
               const char* size, const char* shared) {
  const std::string folder =
      "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(index) + "/";
  texts[folder + "level"] = std::string(level) + "\n";
  texts[folder + "type"] = std::string(type) + "\n";
  texts[folder + "size"] = std::string(size) + "\n";
  texts[folder + "shared_cpu_list"] = std::string(shared) + "\n";
}

TEST(CpuName, TurnsEveryRunOfOtherCharactersIntoOneUnderscore) {
  EXPECT_EQ(cpu_device_name("Intel(R) Xeon(R) Processor", "amx", 2), "Intel_R_Xeon_R_Processor-amx-2t");
  EXPECT_EQ(cpu_device_name("AMD EPYC 9654 96-Core Processor", "avx512bf16", 96),
            "AMD_EPYC_9654_96_Core_Processor-avx512bf16-96t");
  EXPECT_EQ(file_name_of_model("Intel(R) Core(TM) i7-8650U CPU @ 1.90GHz"), "Intel_R_Core_TM_i7_8650U_CPU_1_90GHz");
}

TEST(CpuName, HasNoUnderscoresAtItsEndsAndIsNeverEmpty) {
  EXPECT_EQ(file_name_of_model("  (R) Odd CPU @ "), "R_Odd_CPU");
  EXPECT_EQ(file_name_of_model(""), "CPU");
  EXPECT_EQ(file_name_of_model("../../"), "CPU");
  EXPECT_EQ(file_name_of_model("\xC3\xA9tat"), "tat");  // Bytes beyond ASCII are other characters.
}

TEST(CpuModel, IsReadFromCpuinfo) {
  EXPECT_EQ(model_of_cpuinfo("processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nstepping\t: 1\n"), "AMD EPYC");
  EXPECT_EQ(model_of_cpuinfo("model name: A: B \nmodel name\t: C\n"), "A: B");
}

TEST(CpuModel, IsNoneWhereCpuinfoHasNone) {
  EXPECT_EQ(model_of_cpuinfo(""), std::nullopt);
  EXPECT_EQ(model_of_cpuinfo("processor : 0\nmodel name\t:\n"), std::nullopt);
  EXPECT_EQ(model_of_cpuinfo("model name"), std::nullopt);
}

TEST(LastLevelCache, IsTheHighestDataCacheOfTheCore) {
  std::map<std::string, std::string> texts;
  add_cache(texts, 0, 0, "1", "Data", "48K", "0");
  add_cache(texts, 0, 1, "1", "Instruction", "32K", "0");
  add_cache(texts, 0, 2, "2", "Unified", "2048K", "0");
  add_cache(texts, 0, 3, "3", "Unified", "107520K", "0-1");
  EXPECT_EQ(last_level_cache_bytes({0}, files(texts)), 107520 * 1024);
}

TEST(LastLevelCache, AddsUpTheCachesOfAllUsableCoresOnceEach) {
  std::map<std::string, std::string> texts;
  add_cache(texts, 0, 0, "3", "Unified", "32M", "0-1");
  add_cache(texts, 1, 0, "3", "Unified", "32M", "0-1");
  add_cache(texts, 2, 0, "3", "Unified", "32M", "2-3");
  add_cache(texts, 4, 0, "3", "Unified", "32M", "4-5");
  EXPECT_EQ(last_level_cache_bytes({0, 1, 2}, files(texts)), std::int64_t{64} << 20);
}

TEST(LastLevelCache, HasAFallbackWithoutSysAndForSizesThatMakeNoSense) {
  EXPECT_GT(last_level_cache_bytes({0}, files({})), 0);
  std::map<std::string, std::string> texts;
  add_cache(texts, 0, 0, "3", "Unified", "lots", "0");
  EXPECT_EQ(last_level_cache_bytes({0}, files(texts)), last_level_cache_bytes({0}, files({})));
}

TEST(DescribeCpu, UsesTheFilesAndThePool) {
  std::map<std::string, std::string> texts = {{"/proc/cpuinfo", "model name\t: Test(R) CPU\n"},
                                              {"/proc/meminfo", "MemAvailable: 1000 kB\n"}};
  const DeviceInfo info = describe_cpu(files(texts));
  EXPECT_EQ(info.id, "cpu");
  EXPECT_EQ(info.kind, DeviceKind::cpu);
  EXPECT_EQ(info.model, "Test(R) CPU");
  EXPECT_EQ(info.sm_count, ThreadPool::instance().size());
  EXPECT_EQ(info.name, "Test_R_CPU-" + info.arch + "-" + std::to_string(info.sm_count) + "t");
  EXPECT_EQ(info.memory_bytes, 1000 * 1024);
  EXPECT_GT(info.llc_bytes, 0);
  EXPECT_EQ(info.shared_memory_bytes, 0);
}

TEST(DescribeCpu, FallsBackToTheBrandStringWithoutProc) {
  const DeviceInfo info = describe_cpu(files({}));
  EXPECT_EQ(info.model, brand_string());
  EXPECT_EQ(info.memory_bytes, 0);
}

TEST(DescribeCpu, FollowsALimitOfTheInstructionSet) {
  const env::ScopedOverride limit("OCTILE_CPU_ISA", "generic");
  EXPECT_EQ(describe_cpu(files({})).arch, "generic");
}

TEST(DescribeCpu, GivesANameThatItsOwnReaderUnderstands) {
  const DeviceInfo info = describe_cpu(read_small_file);
  const std::optional<DeviceInfo> known = known_device(info.name);
  ASSERT_TRUE(known.has_value()) << info.name;
  EXPECT_EQ(known->arch, info.arch);
  EXPECT_EQ(known->sm_count, info.sm_count);
  EXPECT_GT(info.memory_bytes, 0);
}

}  // namespace
}  // namespace octile::cpu
