// SPDX-License-Identifier: Apache-2.0
// Host memory: alignment, zeroes, ownership, and a plain error where there is not enough.
#include "octile/kernels/cpu/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

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
