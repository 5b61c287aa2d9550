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

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
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

std::string why_unreadable(const char* key, std::int64_t value) {
  TileConfig config = to_config(DecodeTile{8, 2, 6, 1});
  config.set(key, value);
  const auto parsed = parse_decode_tile(config);
  return parsed ? "readable" : parsed.error().message;
}

TEST(HopperDecodeConfig, EveryKeySurvivesTheWayThroughATile) {
  TileConfig config;
  const std::pair<const char*, int> all[] = {{"TOKENS", 64}, {"K_CHUNKS", 4}, {"STAGES", 7}, {"SPLIT_K", 2}, {"ROWS", 128},
                                             {"CHAINS", 4},  {"WINDOW", 48},  {"EARLY", 1},  {"SWAP", 1},    {"PDL", 2}};
  for (const auto& [name, value] : all) {
    config.set(name, value);
  }
  const auto tile = parse_decode_tile(config);
  ASSERT_TRUE(tile) << tile.error().message;
  EXPECT_EQ(tile->tokens, 64);
  EXPECT_EQ(tile->k_chunks, 4);
  EXPECT_EQ(tile->stages, 7);
  EXPECT_EQ(tile->split_k, 2);
  EXPECT_EQ(tile->rows, 128);
  EXPECT_EQ(tile->chains, 4);
  EXPECT_EQ(tile->window, 48);
  EXPECT_EQ(tile->early, 1);
  EXPECT_EQ(tile->swap, 1);
  EXPECT_EQ(tile->pdl, Pdl::full);
  EXPECT_EQ(to_config(*tile), config);
}

TEST(HopperDecodeConfig, KeysAtTheirDefaultsAreLeftOutAndReadBackAsThem) {
  const TileConfig shortest = to_config(DecodeTile{8, 2, 6, 1});
  EXPECT_EQ(shortest.values.size(), 4U) << shortest.to_json();
  TileConfig whole = shortest;
  const std::pair<const char*, int> defaults[] = {{"ROWS", 64}, {"CHAINS", 1}, {"WINDOW", 0},
                                                  {"EARLY", 0}, {"SWAP", 0},   {"PDL", 1}};
  for (const auto& [name, value] : defaults) {
    EXPECT_EQ(shortest.find(name), std::nullopt);
    whole.set(name, value);
  }
  for (const TileConfig& config : {shortest, whole}) {
    const auto tile = parse_decode_tile(config);
    ASSERT_TRUE(tile) << tile.error().message;
    EXPECT_EQ(to_config(*tile), shortest);
    EXPECT_EQ(tile->pdl, Pdl::consume);
  }
}

TEST(HopperDecodeConfig, AValueOutOfItsKeysRangeOrBetweenItsStepsIsRefusedWithWhatIsWanted) {
  EXPECT_THAT(why_unreadable("WINDOW", 300), HasSubstr("WINDOW = 300: want an integer in 0..256"));
  EXPECT_THAT(why_unreadable("WINDOW", -1), HasSubstr("WINDOW = -1: want an integer in 0..256"));
  EXPECT_THAT(why_unreadable("CHAINS", 5), HasSubstr("CHAINS = 5: want an integer in 1..4"));
  EXPECT_THAT(why_unreadable("CHAINS", 0), HasSubstr("CHAINS = 0: want an integer in 1..4"));
  EXPECT_THAT(why_unreadable("ROWS", 16), HasSubstr("ROWS = 16: want an integer in 32..256"));
  EXPECT_THAT(why_unreadable("PDL", 3), HasSubstr("PDL = 3: want an integer in 0..2"));
  EXPECT_THAT(why_illegal({8, 2, 6, 1, 96}), HasSubstr("ROWS = 96 wants SWAP = 1"));
  EXPECT_THAT(why_illegal({8, 2, 6, 1, 80}), HasSubstr("ROWS: want 32, 48, 64, 96, 128, 192 or 256"));
  EXPECT_THAT(why_unreadable("EARLY", 2), HasSubstr("EARLY = 2: want an integer in 0..1"));
  EXPECT_THAT(why_unreadable("SWAP", -1), HasSubstr("SWAP = -1: want an integer in 0..1"));
  EXPECT_THAT(why_illegal({8, 2, 6, 1, 64, 3}), HasSubstr("CHAINS: want 1, 2 or 4"));
  EXPECT_THAT(why_illegal({8, 2, 6, 1, 64, 1, 300}), HasSubstr("WINDOW = 300"));
  for (const int chains : {1, 2, 4}) {
    for (const int window : {0, 1, 256}) {
      EXPECT_EQ(why_illegal({8, 2, 6, 1, 64, chains, window}), "legal") << chains << ' ' << window;
    }
  }
}

TEST(HopperDecodeConfig, ChainsChangeBitsAndAreNeitherAllowedNorSearchedWhereBitsArePromised) {
  const DeviceInfo device = *known_device("NVIDIA_H200");
  Problem problem = problem_of(24576, 4096);
  problem.numerics = Numerics::baseline;
  EXPECT_EQ(why_illegal({8, 2, 6, 1, 64, 1}, problem), "legal");
  for (const int chains : {2, 4}) {
    EXPECT_THAT(why_illegal({8, 2, 6, 1, 64, chains}, problem), HasSubstr("numerics=baseline allows no CHAINS > 1"));
  }
  for (const std::int64_t m : {1, 8, 16, 17, 64, 128}) {
    problem.numerics = Numerics::baseline;
    const auto promised = decode_space(device, problem, m);
    EXPECT_FALSE(promised.empty());
    for (const DecodeTile& tile : promised) {
      EXPECT_EQ(tile.chains, 1) << to_config(tile).to_json();
      EXPECT_EQ(tile.split_k, 1) << to_config(tile).to_json();
    }
    problem.numerics = Numerics::deterministic;
    const auto unpromised = decode_space(device, problem, m);
    EXPECT_GT(unpromised.size(), promised.size());
    for (const DecodeTile& tile : unpromised) {  // Up to 16 tokens a second chain fills the time that a sum takes.
      EXPECT_EQ(tile.chains, m <= 16 ? 2 : 1) << to_config(tile).to_json();
    }
  }
}

TEST(HopperDecodeConfig, AWindowIsAtLeastOneStageAndAtMostTheRing) {
  DecodeTile tile{8, 2, 6, 1};  // 16 KiB of weights a stage.
  const std::pair<int, int> stages_of[] = {{0, 6}, {1, 1}, {15, 1}, {16, 1}, {31, 1}, {32, 2}, {95, 5}, {96, 6}, {256, 6}};
  for (const auto& [window, stages] : stages_of) {
    tile.window = window;
    EXPECT_EQ(tile.window_stages(), stages) << window << " KiB";
  }
  tile = {8, 8, 2, 1, 256};  // 256 KiB a stage: no window holds a second one.
  for (const int window : {1, 255, 256}) {
    tile.window = window;
    EXPECT_EQ(tile.window_stages(), 1) << window << " KiB";
  }
}

TEST(HopperDecodeConfig, TheSpaceHasTheLaunchModeAskedForAndTheWindowsThatBelongToIt) {
  struct Case {
    Pdl mode;
    std::optional<std::int64_t> pdl;  // In each config; the default is left out.
    std::set<std::int64_t> windows;   // 0: no such key.
  };
  const DeviceInfo device = *known_device("NVIDIA_H200");
  for (const Case& c : {Case{Pdl::full, 2, {8, 16, 24, 32, 40, 48, 80}}, Case{Pdl::consume, std::nullopt, {0, 48}},
                        Case{Pdl::off, 0, {0, 48}}}) {
    SCOPED_TRACE(to_string(c.mode));
    Problem problem = problem_of(24576, 4096);
    problem.pdl = c.mode;
    for (const std::int64_t m : {1, 16, 64}) {
      std::set<std::int64_t> windows;
      const auto space = hopper_decode_family().space(device, problem, m);
      EXPECT_GT(space.size(), 8U);
      for (const TileConfig& config : space) {
        EXPECT_EQ(config.find("PDL"), c.pdl) << config.to_json();
        windows.insert(config.get("WINDOW", 0));
      }
      EXPECT_EQ(windows, c.windows) << "M=" << m;
      EXPECT_EQ(hopper_decode_family().heuristic(device, problem, m).find("PDL"), c.pdl) << "M=" << m;
    }
  }
}

TEST(HopperDecodeConfig, SwappedOperandsWantWholeTilesOf64TokensAndAreSearchedWhereMFillsThem) {
  DecodeTile tile{64, 2, 4, 1, 96};
  tile.swap = 1;
  EXPECT_EQ(why_illegal(tile), "legal");
  for (const int tokens : {8, 56, 80}) {
    tile.tokens = tokens;
    EXPECT_THAT(why_illegal(tile), HasSubstr("SWAP = 1 wants TOKENS 64 or 128")) << tokens;
  }
  tile.tokens = 64;
  tile.rows = 192;
  tile.stages = 3;
  EXPECT_THAT(why_illegal(tile), HasSubstr("ROWS up to 128"));
  const DeviceInfo device = *known_device("NVIDIA_H200");
  for (const std::int64_t m : {1, 48, 56, 57, 64, 80, 128}) {
    const auto space = decode_space(device, problem_of(6144, 4096), m);
    const bool any = std::ranges::any_of(space, [](const DecodeTile& t) { return t.swap != 0; });
    EXPECT_EQ(any, m == 57 || m == 64 || m == 128) << m;
  }
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

CompileRequest request_of(const DecodeTile& tile, DType out, Accumulate accumulate,
                          WeightLayout layout = WeightLayout::row_major) {
  return {"sm_90a", "hopper_decode.cuh", decode_defines(tile, out, accumulate, layout), "octile_hopper_decode"};
}

TEST(HopperDecodeSource, CompilesWithoutSpillsAndHoldsItsInstructions) {
  const env::ScopedOverride cache("OCTILE_CACHE_DIR", std::string(OCTILE_TEST_BINARY_DIR) + "/cubins");
  std::vector<CompileRequest> requests;
  for (const DecodeTile& tile : decode_tiles_of_every_kind()) {
    for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
      if (tile.registers(accumulate) <= tile.most_registers()) {  // Others are not legal.
        requests.push_back(request_of(tile, DType::bf16, accumulate));
      }
    }
    requests.push_back(request_of(tile, DType::bf16, Accumulate::fast, WeightLayout::slab64));
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

TEST(HopperDecodeSource, OfAWeightInSlabsATileOfOneBoxAsksForAWholeStageAtOnce) {
  const auto requests_in = [](const DecodeTile& tile, WeightLayout layout) {
    const auto ptx = compile_to_ptx(request_of(tile, DType::bf16, Accumulate::fast, layout));
    if (!ptx) {
      EXPECT_EQ(ptx.error().code, ErrorCode::unavailable) << ptx.error().message;
      return std::pair(0, 0);
    }
    const auto count = [&](std::string_view instruction) {
      int found = 0;
      for (std::size_t at = ptx->find(instruction); at != std::string::npos; at = ptx->find(instruction, at + 1)) {
        ++found;
      }
      return found;
    };
    return std::pair(count("cp.async.bulk.tensor.2d"), count("cp.async.bulk.tensor.4d"));
  };
  // Codes are asked for in one place, a box a chunk; weights in one place without EARLY.
  const DecodeTile of_64{8, 4, 4, 1, 64};
  if (requests_in(of_64, WeightLayout::row_major) == std::pair(0, 0)) {
    GTEST_SKIP() << "no NVRTC";
  }
  EXPECT_EQ(requests_in(of_64, WeightLayout::row_major), std::pair(8, 0));
  EXPECT_EQ(requests_in(of_64, WeightLayout::slab64), std::pair(4, 1));
  EXPECT_EQ(requests_in({8, 4, 4, 1, 32}, WeightLayout::slab64), std::pair(4, 1));
  EXPECT_EQ(requests_in({8, 2, 4, 1, 48}, WeightLayout::slab64), std::pair(2, 6)) << "three boxes of 16 rows a chunk";
  EXPECT_EQ(requests_in({8, 2, 4, 1, 128}, WeightLayout::slab64), std::pair(2, 4)) << "one box a slab and chunk";
}

TEST(HopperDecodeSmLimit, ItIsHeldWhereItsTilesAreNoMoreThanTheMultiprocessors) {
  Problem problem = problem_of(6144, 4096);
  problem.max_sms = 100;
  const auto held = [&](const DecodeTile& tile, std::int64_t m) {
    const auto checked = hopper_decode_family().check_sm_limit(problem, to_config(tile), m);
    return checked ? "held" : checked.error().message;
  };
  DecodeTile tile{16, 2, 6, 1};  // 96 tiles of 64 channels.
  EXPECT_EQ(held(tile, 1), "held");
  EXPECT_EQ(held(tile, 16), "held");
  EXPECT_THAT(held(tile, 17), HasSubstr("192 here, and cannot be held to 100 multiprocessors"));
  EXPECT_NE(held(tile, std::numeric_limits<std::int64_t>::max()), "held");
  tile.split_k = 2;
  EXPECT_NE(held(tile, 1), "held");
  const DeviceInfo device = *known_device("NVIDIA_H200");
  for (const std::int64_t m : {1, 16, 64}) {
    const auto space = decode_space(device, problem, m);
    EXPECT_FALSE(space.empty()) << m;
    for (const DecodeTile& found : space) {
      EXPECT_LE(decode_blocks(problem, found, m), 100) << to_config(found).to_json();
    }
  }
  problem.n = 65536;
  EXPECT_TRUE(decode_space(device, problem, 1).empty());
}

}  // namespace
}  // namespace octile::cuda
