// SPDX-License-Identifier: Apache-2.0
// The permission to use AMX's tiles: asked for once, believed only where it was given.
#include "octile/kernels/cpu/amx_permission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace octile::cpu {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

int requests = 0;

CpuFeatures with_tiles() {
  CpuFeatures features;
  features.amx_tile = true;
  features.amx_bf16 = true;
  return features;
}

TEST(AmxPermission, IsNotAskedForWithoutTiles) {
  requests = 0;
  const AmxPermission permission = request_amx(CpuFeatures{}, [] { return ++requests, 0; });
  EXPECT_FALSE(permission.granted);
  EXPECT_THAT(permission.reason, HasSubstr("no AMX tiles"));
  EXPECT_EQ(requests, 0);
}

TEST(AmxPermission, IsGrantedWhereTheKernelSaysSo) {
  const AmxPermission permission = request_amx(with_tiles(), [] { return 0; });
  EXPECT_TRUE(permission.granted);
  EXPECT_THAT(permission.reason, IsEmpty());
}

TEST(AmxPermission, IsRefusedWithTheKernelsError) {
  for (const int error : {EINVAL, EPERM, ENOSPC, ENOSYS, EOPNOTSUPP}) {
    static int answer;
    answer = error;
    const AmxPermission permission = request_amx(with_tiles(), [] { return answer; });
    EXPECT_FALSE(permission.granted);
    EXPECT_THAT(permission.reason, HasSubstr("errno " + std::to_string(error)));
  }
}

TEST(AmxPermission, OfThisProcessDecidesWhatItMayUse) {
  const Expected<Isa> usable = usable_isa();
  ASSERT_TRUE(usable) << usable.error().message;
  if (*usable == Isa::amx) {
    EXPECT_TRUE(amx_permission().granted);
  }
  EXPECT_EQ(amx_refusal().empty(), amx_permission().granted || !cpu_features().amx_tile);
}

}  // namespace
}  // namespace octile::cpu
