// SPDX-License-Identifier: Apache-2.0
// The CPU backend and the registry: devices, families, memory, copies.
#include "octile/kernels/cpu/cpu_backend.h"

#include "octile/kernels/cpu/families.h"
#include "octile/kernels/cpu/onednn_family.h"
#include "support/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace octile::cpu {
namespace {

using testing::HasSubstr;

DeviceInfo cpu() { return cpu_backend().devices().front(); }

TEST(CpuBackend, HasOneDeviceCalledCpu) {
  const std::vector<DeviceInfo> devices = cpu_backend().devices();
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices.front().id, "cpu");
  EXPECT_GE(devices.front().sm_count, 1);
  EXPECT_EQ(cpu_backend().devices().front().name, devices.front().name);
}

TEST(CpuBackend, NamesItsFamiliesFastestFirstAndTheVendorLast) {
  std::vector<std::string> names;
  for (const KernelFamily* family : cpu_backend().families()) {
    names.emplace_back(family->name());
  }
  EXPECT_THAT(names, testing::ElementsAre("amx", "avx512", "avx2", "reference", "onednn"));
  EXPECT_TRUE(cpu_backend().families().back()->is_vendor());
  EXPECT_FALSE(cpu_backend().families().front()->is_vendor());
}

TEST(CpuBackend, ThePlainFamilyIsAvailableEverywhere) { EXPECT_TRUE(reference_family().available(cpu())); }

TEST(CpuBackend, EveryFamilyThatIsNotAvailableSaysWhy) {
  DeviceInfo plain = cpu();
  plain.arch = "generic";
  for (const KernelFamily* family : cpu_backend().families()) {
    const Expected<void> available = family->available(plain);
    if (!available) {
      EXPECT_FALSE(available.error().message.empty()) << family->name();
    }
  }
  EXPECT_FALSE(avx512_family().available(plain));
  DeviceInfo gpu;
  gpu.id = "cuda:0";
  gpu.kind = DeviceKind::cuda;
  EXPECT_FALSE(onednn_family().available(gpu));
}

TEST(CpuBackend, StatesItsVendorWithAVersionOrAReason) {
  const std::vector<VendorStatus> vendors = cpu_backend().vendors(cpu());
  ASSERT_EQ(vendors.size(), 1U);
  EXPECT_EQ(vendors.front().name, "onednn");
  EXPECT_EQ(vendors.front().available, vendors.front().reason.empty());
  EXPECT_EQ(vendors.front().available, !vendors.front().version.empty());
}

TEST(CpuBackend, AllocatesAlignedMemoryOfTheSizeAskedFor) {
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000}, std::int64_t{3} << 20}) {
    const Expected<std::unique_ptr<DeviceBuffer>> buffer = cpu_backend().allocate(cpu(), bytes);
    ASSERT_TRUE(buffer) << buffer.error().message;
    EXPECT_EQ((*buffer)->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>((*buffer)->data()) % 64, 0U);
  }
}

TEST(CpuBackend, RefusesSizesThatCannotBe) {
  const Expected<std::unique_ptr<DeviceBuffer>> negative = cpu_backend().allocate(cpu(), -1);
  ASSERT_FALSE(negative);
  EXPECT_EQ(negative.error().code, ErrorCode::invalid_argument);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // Their allocators end the process at such a size.
  const Expected<std::unique_ptr<DeviceBuffer>> huge = cpu_backend().allocate(cpu(), std::int64_t{1} << 60);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::out_of_memory);
#endif
}

TEST(CpuBackend, CopiesInBothDirections) {
  const Expected<std::unique_ptr<DeviceBuffer>> buffer = cpu_backend().allocate(cpu(), 16);
  ASSERT_TRUE(buffer);
  const std::string text = "fifteen letters";
  std::string back(16, '?');
  ASSERT_TRUE(cpu_backend().upload(cpu(), (*buffer)->data(), text.c_str(), 16));
  ASSERT_TRUE(cpu_backend().download(cpu(), back.data(), (*buffer)->data(), 16));
  EXPECT_STREQ(back.c_str(), text.c_str());
}

TEST(CpuBackend, RefusesCopiesWithoutAnAddressOrWithANegativeSize) {
  char byte = 0;
  EXPECT_FALSE(cpu_backend().upload(cpu(), nullptr, &byte, 1));
  EXPECT_FALSE(cpu_backend().download(cpu(), &byte, nullptr, 1));
  EXPECT_FALSE(cpu_backend().upload(cpu(), &byte, &byte, -1));
  EXPECT_TRUE(cpu_backend().upload(cpu(), nullptr, nullptr, 0));
}

TEST(CpuBackend, RefusesALayoutItDoesNotKnow) {
  const std::vector<std::uint8_t> codes = test::random_codes(4);
  const float scale = 1.0F;
  const WeightSource source = {.n = 2, .k = 2, .codes = codes.data(), .scales = &scale, .scale_count = 1};
  const Expected<std::shared_ptr<PackedWeight>> packed = cpu_backend().pack(cpu(), "hopper_tiles", source);
  ASSERT_FALSE(packed);
  EXPECT_THAT(packed.error().message, HasSubstr("no weight layout 'hopper_tiles'"));
}

TEST(CpuBackend, EveryAvailableFamilyCanReadWhatPackMakesForIt) {
  SCOPED_TRACE(test::seed_text());
  const std::vector<std::uint8_t> codes = test::random_codes(40 * 24);
  const std::vector<float> scales = test::random_scales(40);
  const WeightSource source = {.n = 40, .k = 24, .codes = codes.data(), .scales = scales.data(), .scale_count = 40};
  for (const KernelFamily* family : cpu_backend().families()) {
    if (!family->available(cpu())) {
      continue;
    }
    const Expected<std::shared_ptr<PackedWeight>> packed = cpu_backend().pack(cpu(), family->layout(), source);
    ASSERT_TRUE(packed) << packed.error().message;
    EXPECT_EQ((*packed)->layout(), family->layout());
    EXPECT_EQ((*packed)->n(), 40);
    EXPECT_EQ((*packed)->k(), 24);
    EXPECT_GE((*packed)->bytes(), 40 * 24);
  }
}

TEST(Registry, HasTheCpuFirst) {
  ASSERT_FALSE(backends().empty());
  EXPECT_EQ(backends().front(), &cpu_backend());
}

TEST(Registry, FindsTheCpuById) {
  const Expected<Device> device = find_device("cpu");
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_EQ(device->backend, &cpu_backend());
  EXPECT_EQ(device->info.name, cpu().name);
}

TEST(Registry, ListsTheDevicesThatExistWhereAnIdIsUnknown) {
  for (const char* id : {"", "tpu:0", "CPU", "cuda:99"}) {
    const Expected<Device> device = find_device(id);
    ASSERT_FALSE(device) << id;
    EXPECT_THAT(device.error().message, HasSubstr("want one of cpu"));
  }
}

TEST(Registry, FindsEveryFamilyByItsNameAndNoOther) {
  for (const Backend* backend : backends()) {
    for (const KernelFamily* family : backend->families()) {
      EXPECT_EQ(find_family(family->name()), family);
    }
  }
  EXPECT_EQ(find_family("avx1024"), nullptr);
  EXPECT_EQ(find_family(""), nullptr);
}

}  // namespace
}  // namespace octile::cpu
