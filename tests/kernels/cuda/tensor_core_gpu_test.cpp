// SPDX-License-Identifier: Apache-2.0
// The sums of Hopper's tensor core are those of the emulation in tests/support/hopper_sum.h, in every bit: of cuBLASLt's
// row-wise kernel, and of ours where their bits are its (numerics=baseline). Skipped without such a GPU.
#include "family_under_test.h"
#include "support/hopper_sum.h"
#include "support/product_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace octile::cuda {
namespace {

using test::ProductCase;
using test::ProductShape;

// Codes that are hard on sums that keep few bits.
enum class Codes : std::uint8_t { normal, outliers, any, subnormal };
constexpr const char* kNames[] = {"normal", "with outliers", "any finite code", "subnormal"};

void draw(Codes kind, std::vector<std::uint8_t>& codes) {
  std::mt19937_64& generator = test::generator();
  for (std::uint8_t& code : codes) {
    const auto random = static_cast<std::uint8_t>(generator());
    if (kind == Codes::any && (random & 0x7F) != 0x7F) {
      code = random;
    } else if (kind == Codes::subnormal) {
      code = random & 0x87;  // Up to 7/8 of the smallest normal number, or zero.
    } else if (kind == Codes::outliers && random == 0) {
      code = (code & 0x80) | 0x7E;
    }
  }
}

class TensorCore : public FamilyTest {};
INSTANTIATE_TEST_SUITE_P(Gpu, TensorCore, testing::ValuesIn(families_under_test()), name_of);

TEST_P(TensorCore, SumsAreThoseOfTheEmulationBitForBit) {
  if (const auto hopper = hopper_wgmma_family().available(device()); !hopper) {
    GTEST_SKIP() << hopper.error().message;
  }
  for (const std::int64_t k : {16, 144, 1040, 4112}) {
    for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
      for (const Codes kind : {Codes::normal, Codes::outliers, Codes::any, Codes::subnormal}) {
        ProductShape shape;
        shape.m = 23;
        shape.n = 144;
        shape.k = k;
        shape.out_dtype = DType::fp32;
        shape.accumulate = accumulate;
        ProductCase one(shape);
        draw(kind, one.codes_x);
        draw(kind, one.codes_w);
        one.upload();
        Problem problem = one.problem();
        problem.numerics = Numerics::baseline;
        std::vector<TileConfig> configs = GetParam().few();
        configs.push_back(GetParam().wide());
        std::erase_if(configs, [&](const auto& config) { return !family().check(device(), problem, config); });
        if (configs.empty()) {
          GTEST_SKIP() << GetParam().name << " does not promise these bits";
        }
        const std::vector<float> wanted = test::hopper_linear(
            {shape.m, shape.n, k, one.codes_x.data(), one.scales_x.data(), one.codes_w.data(), one.scales_w.data(), nullptr},
            accumulate);
        for (const TileConfig& config : configs) {
          SCOPED_TRACE(config.to_json() + " K=" + std::to_string(k) + " accumulate " + to_string(accumulate) + ", " +
                       kNames[static_cast<int>(kind)]);
          const auto kernel = family().prepare(device(), problem, config, shape.m);
          ASSERT_TRUE(kernel) << kernel.error().message;
          std::vector<float> got(wanted.size());
          const std::vector<unsigned char> bytes = one.run(**kernel);
          ASSERT_EQ(bytes.size(), got.size() * sizeof(float));
          std::memcpy(got.data(), bytes.data(), bytes.size());
          const auto [differing, expected] = std::ranges::mismatch(got, wanted);
          if (differing != got.end()) {
            const auto at = differing - got.begin();
            ADD_FAILURE() << "(" << at / shape.n << ", " << at % shape.n << "): got " << testing::PrintToString(*differing)
                          << ", want " << testing::PrintToString(*expected);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace octile::cuda
