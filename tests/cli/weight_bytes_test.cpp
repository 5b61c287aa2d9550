// SPDX-License-Identifier: Apache-2.0
// The bytes that `explain` prints against those of a weight that is really packed.
#include "octile/cli/weight_bytes.h"

#include "octile/core/env.h"

#include <vector>

#include <gtest/gtest.h>

namespace octile::cli {
namespace {

TEST(WeightBytes, AreThoseOfAPackedWeight) {
  // The empty table directory leaves every shape untuned; off and on differ in whether the baseline's copy is kept.
  for (const char* tuned : {"on", "off"}) {
    const env::ScopedOverride kill_switch("OCTILE_ENABLE_FP8_GEMM_CONFIG_TUNE", tuned);
    for (const auto& [n, k] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {17, 33}, {128, 64}, {129, 64}, {1000, 48}, {1537, 200}}) {
      const std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * k), 0x38);
      const float scale = 1.0F;
      WeightSource source;
      source.n = n;
      source.k = k;
      source.codes = codes.data();
      source.scales = &scale;
      source.scale_dtype = DType::fp32;
      source.scale_count = 1;
      const auto weight = Fp8Weight::create(source);
      ASSERT_TRUE(weight) << weight.error().message;

      const auto device = find_device("cpu");
      ASSERT_TRUE(device) << device.error().message;
      Problem problem;
      problem.n = n;
      problem.k = k;
      const Plan plan = Plan::make(device->backend, device->info, problem, "", std::string(tuned) == "on");
      const auto bytes = weight_bytes(device->backend, plan);
      ASSERT_TRUE(bytes) << bytes.error().message;
      EXPECT_EQ(*bytes, weight->bytes()) << "N " << n << " K " << k << " tuning " << tuned;
    }
  }
}

}  // namespace
}  // namespace octile::cli
