// SPDX-License-Identifier: Apache-2.0
// hopper_decode: configs and device code. What it computes is tested with the other families, in families_gpu_test.cpp.
#include "octile/kernels/cuda/hopper_decode_family.h"

#include "family_under_test.h"
#include "octile/core/env.h"
#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/cuda/hopper_decode_config.h"
#include "octile/kernels/known_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace octile::cuda {
namespace {

using testing::HasSubstr;

Problem problem_of(std::int64_t n, std::int64_t k) {
  Problem problem;
  problem.n = n;
  problem.k = k;
  return problem;
}

std::string why_illegal(const DecodeTile& tile, const Problem& problem = problem_of(4096, 4096)) {
  const auto checked = hopper_decode_family().check(*known_device("NVIDIA_H200"), problem, to_config(tile));
  return checked ? "legal" : checked.error().message;
}

TEST(HopperDecodeConfig, IllegalConfigsAreRefusedWithTheReason) {
  EXPECT_EQ(why_illegal({8, 2, 6, 1}), "legal");
  EXPECT_THAT(why_illegal({12, 2, 6, 1}), HasSubstr("TOKENS"));
  EXPECT_THAT(why_illegal({8, 2, 6, 3}), HasSubstr("SPLIT_K"));
  EXPECT_THAT(why_illegal({8, 2, 6, 1, 96}), HasSubstr("ROWS"));
  EXPECT_THAT(why_illegal({64, 4, 8, 1}), HasSubstr("bytes of shared memory"));
  EXPECT_THAT(why_illegal({128, 1, 2, 1, 256}), HasSubstr("sums do not fit the ring"));
  EXPECT_THAT(why_illegal({8, 0, 6, 1}), HasSubstr("K_CHUNKS = 0"));
  TileConfig unknown = to_config(DecodeTile{8, 2, 6, 1});
  unknown.set("num_warps", 4);
  const auto parsed = parse_decode_tile(unknown);
  ASSERT_FALSE(parsed);
  EXPECT_THAT(parsed.error().message, HasSubstr("num_warps"));
}

TEST(HopperDecodeConfig, ASplitChangesBitsAndIsRefusedWhereBitsArePromised) {
  Problem problem = problem_of(4096, 4096);
  problem.numerics = Numerics::baseline;
  EXPECT_EQ(why_illegal({8, 2, 6, 1}, problem), "legal");
  EXPECT_THAT(why_illegal({8, 2, 6, 2}, problem), HasSubstr("SPLIT_K"));
}

TEST(HopperDecodeConfig, OnlyHopperHasIt) {
  EXPECT_TRUE(hopper_decode_family().available(*known_device("NVIDIA_H100_PCIe")));
  EXPECT_FALSE(hopper_decode_family().available(*known_device("NVIDIA_L40S")));
  EXPECT_FALSE(hopper_decode_family().available(*known_device("NVIDIA_B200")));
}

TEST(HopperDecodeConfig, BatchInvariantModeIsLeftToAFamilyThatServesEveryM) {
  Problem problem = problem_of(24576, 4096);
  problem.batch_invariant = true;
  EXPECT_THAT(why_illegal({8, 2, 6, 1}, problem), HasSubstr("batch-invariant"));
  EXPECT_TRUE(hopper_decode_family().space(*known_device("NVIDIA_H200"), problem, 8).empty());
}

TEST(HopperDecodeConfig, SpaceAndHeuristicAreLegalForEveryM) {
  const DeviceInfo device = *known_device("NVIDIA_H200");
  for (const std::int64_t m : {1, 8, 9, 33, 64, 65, 100, 128, 200, 5000}) {
    for (const Numerics numerics : {Numerics::deterministic, Numerics::baseline}) {
      Problem problem = problem_of(24576, 4096);
      problem.numerics = numerics;
      const auto space = hopper_decode_family().space(device, problem, m);
      EXPECT_EQ(space.empty(), m > 256) << m;
      for (const TileConfig& config : space) {
        const auto checked = hopper_decode_family().check(device, problem, config);
        ASSERT_TRUE(checked) << checked.error().message;
      }
      const auto heuristic =
          hopper_decode_family().check(device, problem, hopper_decode_family().heuristic(device, problem, m));
      ASSERT_TRUE(heuristic) << heuristic.error().message;
    }
  }
}

CompileRequest request_of(const DecodeTile& tile, DType out, Accumulate accumulate) {
  return {"sm_90a", "hopper_decode.cuh", decode_defines(tile, out, accumulate), "octile_hopper_decode"};
}

TEST(HopperDecodeSource, CompilesWithoutSpillsAndHoldsItsInstructions) {
  const env::ScopedOverride cache("OCTILE_CACHE_DIR", std::string(OCTILE_TEST_BINARY_DIR) + "/cubins");
  std::vector<CompileRequest> requests;
  for (const DecodeTile& tile : decode_tiles_of_every_kind()) {
    requests.push_back(request_of(tile, DType::bf16, requests.size() % 2 == 0 ? Accumulate::fast : Accumulate::precise));
  }
  const auto results = compile_all(requests, 2);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i] && results[i].error().code == ErrorCode::unavailable) {
      GTEST_SKIP() << results[i].error().message;
    }
    ASSERT_TRUE(results[i]) << results[i].error().message;
    EXPECT_EQ(results[i]->spill_store_bytes + results[i]->spill_load_bytes + results[i]->stack_bytes, 0)
        << requests[i].defines[0];
  }
  const auto ptx = compile_to_ptx(requests.front());
  ASSERT_TRUE(ptx) << ptx.error().message;
  EXPECT_THAT(*ptx, HasSubstr("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3"));
  EXPECT_THAT(*ptx, HasSubstr("cp.async.bulk.tensor.2d"));
  EXPECT_THAT(*ptx, HasSubstr("griddepcontrol.wait"));
  EXPECT_EQ(ptx->find("ld.global.nc"), std::string::npos)
      << "a read-only load may be hoisted above the wait for the kernel that wrote its data";
}

}  // namespace
}  // namespace octile::cuda
