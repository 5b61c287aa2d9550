// SPDX-License-Identifier: Apache-2.0
// Host memory: alignment, zeroes, ownership, and a plain error where there is not enough.
#include "octile/kernels/cpu/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <sys/mman.h>
#include <sys/prctl.h>

namespace octile::cpu {
namespace {

TEST(HostMemory, IsZeroedAndAlignedToItsPageSize) {
  for (const std::int64_t bytes : {1, 64, 1000, 2 << 20, (2 << 20) + 1}) {
    auto memory = HostMemory::allocate(bytes);
    ASSERT_TRUE(memory) << memory.error().message;
    EXPECT_EQ(memory->bytes(), bytes);
    const std::uintptr_t alignment = bytes >= (2 << 20) ? 2U << 20U : 64U;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % alignment, 0U) << bytes << " bytes";
    const auto* begin = static_cast<const unsigned char*>(memory->data());
    EXPECT_TRUE(std::all_of(begin, begin + bytes, [](unsigned char byte) { return byte == 0; })) << bytes << " bytes";
  }
}

TEST(HostMemory, MovesWithoutFreeingTwice) {
  auto first = HostMemory::allocate(128);
  ASSERT_TRUE(first);
  void* data = first->data();
  HostMemory second(std::move(first).value());
  EXPECT_EQ(second.data(), data);
  HostMemory third;
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.bytes(), 128);
}

// The line "VmFlags:" of the mapping that holds `address`; "" where the kernel shows none.
std::string flags_of_mapping(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2) {  // NOLINT(cert-err34-c)
      inside = begin <= wanted && wanted < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return {};
}

TEST(HostMemory, AsksForHugePagesWhereItIsLarge) {
  const auto large = HostMemory::allocate(3 << 20);
  ASSERT_TRUE(large);
  const std::string flags = flags_of_mapping(large->data());
  if (flags.empty() || !std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled")) {
    GTEST_SKIP() << "this kernel does not show what was asked, or has no transparent huge pages";
  }
  EXPECT_THAT(flags, ::testing::HasSubstr(" hg "));
}

TEST(HostMemory, IsTheSameWithoutHugePages) {
  if (::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) {
    GTEST_SKIP() << "this kernel knows no way to do without";
  }
  const auto large = HostMemory::allocate((3 << 20) + 5);
  ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
  ASSERT_TRUE(large) << large.error().message;
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large->data()) % static_cast<std::uintptr_t>(kHugePageBytes), 0U);
  auto* begin = static_cast<unsigned char*>(large->data());
  EXPECT_TRUE(std::all_of(begin, begin + large->bytes(), [](unsigned char byte) { return byte == 0; }));
  std::fill_n(begin, large->bytes(), 7);
  EXPECT_EQ(begin[large->bytes() - 1], 7);
}

TEST(HostMemory, GivesBackWhatIsLarge) {
  std::uintptr_t address = 0;
  {
    const auto large = HostMemory::allocate(5 << 20);
    ASSERT_TRUE(large);
    address = reinterpret_cast<std::uintptr_t>(large->data());
    std::fill_n(static_cast<unsigned char*>(large->data()), large->bytes(), 1);
  }
  // The pages are no part of the process any more.
  EXPECT_NE(::msync(reinterpret_cast<void*>(address), 1 << 20, MS_ASYNC), 0);  // NOLINT(performance-no-int-to-ptr)
  EXPECT_EQ(errno, ENOMEM);
}

TEST(HostMemory, MoreThanTheAddressSpaceIsAnErrorThatNamesTheBytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "these sanitizers end the process instead of returning a null pointer";
#endif
  const std::int64_t bytes = std::int64_t{1} << 60;
  const auto memory = HostMemory::allocate(bytes);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(memory.error().message, ::testing::HasSubstr(std::to_string(bytes)));
}

}  // namespace
}  // namespace octile::cpu
