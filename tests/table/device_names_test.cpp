// SPDX-License-Identifier: Apache-2.0
// Device names, names that are close, aliases.
#include "octile/table/device_names.h"

#include "octile/core/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile {
namespace {

using ::testing::HasSubstr;

TEST(DeviceNames, BlanksBecomeUnderscores) {
  EXPECT_EQ(device_file_name("NVIDIA L40S"), "NVIDIA_L40S");
  EXPECT_EQ(device_file_name("NVIDIA H100 80GB HBM3"), "NVIDIA_H100_80GB_HBM3");
  EXPECT_EQ(device_file_name("NVIDIA H20-3e"), "NVIDIA_H20-3e");
}

TEST(DeviceNames, WhatWouldBreakAFileNameBecomesAnUnderscore) {
  EXPECT_EQ(device_file_name("Quadro RTX 6000/8000"), "Quadro_RTX_6000_8000");
  EXPECT_EQ(device_file_name("a\tb\n,dtype=c\\d"), "a_b__dtype_c_d");
}

TEST(DeviceNames, APartOfAGpuHasANameOfItsOwnThatIsCloseToTheWholes) {
  const std::string part = device_file_name("NVIDIA H100 80GB HBM3 MIG 1g.10gb");
  EXPECT_EQ(part, "NVIDIA_H100_80GB_HBM3_MIG_1g.10gb");
  EXPECT_TRUE(is_device_file_name(part));
  EXPECT_EQ(nearest_device_name(part, {"NVIDIA_H200", "NVIDIA_H100_80GB_HBM3"}), "NVIDIA_H100_80GB_HBM3");
  EXPECT_LT(device_name_similarity(part, "NVIDIA_H100_80GB_HBM3"), 1.0) << "named, never used";
}

TEST(DeviceNames, OnlyNamesFitForAFileNameAreAccepted) {
  EXPECT_TRUE(is_device_file_name("NVIDIA_H200"));
  EXPECT_TRUE(is_device_file_name("Intel_R_Xeon_R_Processor-amx-2t"));
  for (const std::string& name : {std::string(), std::string(".."), std::string("../x"), std::string("a/b"),
                                  std::string("a b"), std::string(".hidden"), std::string("a..b"), std::string(201, 'a')}) {
    EXPECT_FALSE(is_device_file_name(name)) << name;
  }
}

TEST(DeviceNames, TheSameChipInAnotherGuiseIsClose) {
  for (const auto& [a, b] : {std::pair{"NVIDIA_H20-3e", "NVIDIA_H20"},
                             {"NVIDIA_H100_PCIe", "NVIDIA_H100_80GB_HBM3"},
                             {"NVIDIA_A100-SXM4-80GB", "NVIDIA_A100-PCIE-40GB"},
                             {"NVIDIA_L40", "NVIDIA_L40S"},
                             {"NVIDIA_GeForce_RTX_4090", "NVIDIA_GeForce_RTX_4090_D"},
                             {"Intel_R_Xeon_R_Processor-amx-2t", "Intel_R_Xeon_R_Processor-amx-4t"},
                             {"Intel_R_Xeon_R_Processor-amx-2t", "Intel_R_Xeon_R_Processor-avx2-2t"}}) {
    EXPECT_GT(device_name_similarity(a, b), 0.0) << a << " " << b;
    EXPECT_LT(device_name_similarity(a, b), 1.0) << a << " " << b;
    EXPECT_EQ(device_name_similarity(a, b), device_name_similarity(b, a));
  }
}

TEST(DeviceNames, AnotherChipIsNotClose) {
  for (const auto& [a, b] : {std::pair{"NVIDIA_H20", "NVIDIA_H200"},
                             {"NVIDIA_H100", "NVIDIA_H200"},
                             {"NVIDIA_L4", "NVIDIA_L40S"},
                             {"NVIDIA_A10", "NVIDIA_A100-SXM4-80GB"},
                             {"NVIDIA_GeForce_RTX_4090", "NVIDIA_GeForce_RTX_3090"},
                             {"Intel_R_Xeon_R_Processor-amx-2t", "AMD_EPYC_9654-avx512-2t"},
                             {"Intel_R_Xeon_R_Processor-amx-2t", "NVIDIA_H200"},
                             {"something", "else"}}) {
    EXPECT_EQ(device_name_similarity(a, b), 0.0) << a << " " << b;
  }
}

TEST(DeviceNames, TheNearestIsChosenAndNeverTheNameItself) {
  const std::vector<std::string> known = {"NVIDIA_H200", "NVIDIA_H20", "NVIDIA_H100_PCIe", "NVIDIA_H100_80GB_HBM3"};
  EXPECT_EQ(nearest_device_name("NVIDIA_H20-3e", known), "NVIDIA_H20");
  EXPECT_EQ(nearest_device_name("NVIDIA_H100_80GB_HBM2", known), "NVIDIA_H100_80GB_HBM3");
  EXPECT_EQ(nearest_device_name("NVIDIA_H200", known), "");
  EXPECT_EQ(nearest_device_name("NVIDIA_B200", known), "");
  EXPECT_EQ(nearest_device_name("NVIDIA_H20", {}), "");
}

TEST(DeviceNames, EqualNearnessGoesByTheAlphabet) {
  const std::vector<std::string> names = {"NVIDIA_H100_b", "NVIDIA_H100_a", "NVIDIA_H100_c"};
  EXPECT_EQ(nearest_device_name("NVIDIA_H100_x", names), "NVIDIA_H100_a");
}

std::string alias_of(const std::string& device, const std::string& setting) {
  const env::ScopedOverride override_alias("OCTILE_DEVICE_NAME_ALIAS", setting);
  const auto alias = aliased_device_name(device);
  return alias ? *alias : "error: " + alias.error().message;
}

TEST(DeviceNames, AnAliasServesOnPurpose) {
  EXPECT_EQ(alias_of("NVIDIA_H20-3e", ""), "NVIDIA_H20-3e");
  EXPECT_EQ(alias_of("NVIDIA_H20-3e", "NVIDIA_H20"), "NVIDIA_H20");
  EXPECT_EQ(alias_of("NVIDIA_H20-3e", "NVIDIA H20-3e=NVIDIA H20"), "NVIDIA_H20");
  EXPECT_EQ(alias_of("NVIDIA_L40S", "NVIDIA_H20-3e=NVIDIA_H20"), "NVIDIA_L40S");
}

TEST(DeviceNames, AMalformedAliasIsAnErrorThatSaysWhatIsWanted) {
  for (const char* setting : {"=NVIDIA_H20", "NVIDIA_H20-3e=", "a=b=c", "../x", "a/../b"}) {
    EXPECT_THAT(alias_of("NVIDIA_H20-3e", setting), HasSubstr("OCTILE_DEVICE_NAME_ALIAS=")) << setting;
  }
}

}  // namespace
}  // namespace octile
