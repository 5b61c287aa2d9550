// SPDX-License-Identifier: Apache-2.0
// What tests of linears on a GPU share where cuBLASLt's row-wise mode and our own kernels must both serve.
#pragma once

#include "octile/kernels/cuda/cublaslt_family.h"
#include "octile/kernels/cuda/hopper_decode_family.h"
#include "octile/kernels/cuda/hopper_wgmma_family.h"
#include "support/gpu.h"

#include <octile/linear.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace octile::test {

// Skips where there is no such GPU.
class HopperLinears : public testing::Test {
 protected:
  void SetUp() override {
    OCTILE_REQUIRE_GPU();
    for (const KernelFamily* family :
         {&cuda::cublaslt_family(), &cuda::hopper_decode_family(), &cuda::hopper_wgmma_family()}) {
      if (const auto available = family->available(gpu().context->info); !available) {
        GTEST_SKIP() << available.error().message;
      }
    }
  }
};

// A packed weight, or a failure of the test.
inline std::optional<Fp8Weight> packed_weight(const WeightSource& source, const WeightOptions& options) {
  auto weight = Fp8Weight::create(source, options);
  if (!weight) {
    ADD_FAILURE() << weight.error().message;
    return std::nullopt;
  }
  return *std::move(weight);
}

// A prepared linear of `weight`, or a failure of the test.
inline std::optional<Fp8Linear> prepared_linear(const Fp8Weight& weight, std::int64_t max_m) {
  auto linear = Fp8Linear::create(weight);
  if (!linear) {
    ADD_FAILURE() << linear.error().message;
    return std::nullopt;
  }
  if (auto ready = linear->prepare(max_m); !ready) {
    ADD_FAILURE() << ready.error().message;
    return std::nullopt;
  }
  return *std::move(linear);
}

}  // namespace octile::test
