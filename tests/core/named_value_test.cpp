// SPDX-License-Identifier: Apache-2.0
#include "octile/core/named_value.h"

#include <octile/types.hpp>

#include <gtest/gtest.h>

namespace octile {
namespace {

TEST(NamedValue, EachNameGivesItsValueBackAndAnyOtherTheOneThatIsSaid) {
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
    EXPECT_EQ(value_named(to_string(dtype), {DType::bf16, DType::fp16, DType::fp32}, DType::e4m3), dtype);
  }
  EXPECT_EQ(value_named("fp16", {DType::fp32}, DType::bf16), DType::bf16) << "not among those that are asked for";
  EXPECT_EQ(value_named("", {DType::fp16, DType::fp32}, DType::bf16), DType::bf16);
  EXPECT_EQ(value_named("FP16", {DType::fp16}, DType::bf16), DType::bf16);
}

}  // namespace
}  // namespace octile
