// SPDX-License-Identifier: Apache-2.0
// hopper_wgmma: configs and device code. What it computes is tested with the other families, in families_gpu_test.cpp.
#include "octile/kernels/cuda/hopper_wgmma_family.h"

#include "fake_device.h"
#include "family_under_test.h"
#include "octile/core/env.h"
#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/hopper_decode_family.h"
#include "octile/kernels/cuda/hopper_wgmma_config.h"
#include "octile/kernels/cuda/nvrtc.h"
#include "octile/kernels/known_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace octile::cuda {
namespace {

using testing::HasSubstr;

const DeviceInfo& h200() {
  static const DeviceInfo device = *known_device("NVIDIA_H200");
  return device;
}

Problem problem_of(std::int64_t n, std::int64_t k) {
  Problem problem;
  problem.n = n;
  problem.k = k;
  return problem;
}

std::string why_illegal(const WgmmaTile& tile, const Problem& problem = problem_of(4096, 4096)) {
  const auto checked = hopper_wgmma_family().check(h200(), problem, to_config(tile));
  return checked ? "legal" : checked.error().message;
}

TEST(HopperWgmmaConfig, IllegalConfigsAreRefusedWithTheReason) {
  EXPECT_EQ(why_illegal(wgmma_tile(128, 128, 2, true, 2, 1, 6)), "legal");
  EXPECT_THAT(why_illegal(wgmma_tile(100, 128, 2, true, 1, 1, 6)), HasSubstr("multiple of 8 tokens"));
  EXPECT_THAT(why_illegal(wgmma_tile(264, 64, 1, false, 1, 1, 3)), HasSubstr("BLOCK_SIZE_M = 264"));
  EXPECT_THAT(why_illegal(wgmma_tile(64, 96, 1, false, 1, 1, 3)), HasSubstr("multiple of 64 channels, 192 at most"));
  EXPECT_THAT(why_illegal(wgmma_tile(64, 256, 1, false, 1, 1, 3)), HasSubstr("multiple of 64 channels, 192 at most"));
  EXPECT_THAT(why_illegal(wgmma_tile(64, 192, 2, false, 1, 1, 3)), HasSubstr("multiple of 128 channels"));
  EXPECT_THAT(why_illegal(wgmma_tile(64, 64, 1, true, 1, 1, 3)), HasSubstr("PINGPONG wants two"));
  EXPECT_THAT(why_illegal(wgmma_tile(64, 64, 1, false, 2, 2, 3)), HasSubstr("want one of them to be 1"));
  WgmmaTile pairs = wgmma_tile(64, 64, 1, false, 2, 1, 3);
  pairs.pairs = true;
  EXPECT_THAT(why_illegal(pairs), HasSubstr("PAIRS = 1 wants CLUSTER_M = 1"));
  EXPECT_THAT(why_illegal(wgmma_tile(72, 64, 1, false, 1, 2, 3)), HasSubstr("multiple of 16"));
  EXPECT_THAT(why_illegal(wgmma_tile(200, 192, 3, false, 1, 1, 3)), HasSubstr("BLOCK_SIZE_M <= 192"));
  EXPECT_THAT(why_illegal(wgmma_tile(128, 128, 2, true, 1, 1, 7)), HasSubstr("bytes of shared memory"));
  EXPECT_THAT(why_illegal(wgmma_tile(200, 128, 2, true, 1, 1, 3)), HasSubstr("registers a thread"));
  TileConfig unknown = to_config(wgmma_tile(64, 64, 1, false, 1, 1, 3));
  unknown.set("TOKENS", 8);
  const auto parsed = parse_wgmma_tile(unknown);
  ASSERT_FALSE(parsed);
  EXPECT_THAT(parsed.error().message, HasSubstr("TOKENS"));
}

TEST(HopperWgmmaConfig, OutputsOfFourBytesWantMoreSharedMemory) {
  Problem problem = problem_of(4096, 4096);
  const WgmmaTile tile = wgmma_tile(160, 192, 2, true, 1, 1, 4);
  const WgmmaTile narrow = wgmma_tile(128, 128, 2, true, 1, 1, 6);
  EXPECT_EQ(tile.shared_bytes(DType::bf16), tile.shared_bytes(DType::fp16));
  EXPECT_EQ(narrow.shared_bytes(DType::fp32) - narrow.shared_bytes(DType::bf16), 2 * 2 * (8 * (512 + 16) - 16 * (256 + 16)));
  problem.out_dtype = DType::fp32;
  EXPECT_EQ(why_illegal(narrow, problem), "legal");
}

TEST(HopperWgmmaConfig, PreciseModePromotesPiecesThatFitTheRegisters) {
  const auto promotion = [](const WgmmaTile& tile) {
    const Promotion found = promotion_of(tile);
    return std::pair{found.pieces, found.sets};
  };
  EXPECT_EQ(promotion(wgmma_tile(96, 256, 2, false, 1, 1, 4)), (std::pair{1, 2}));   // Two row blocks take turns.
  EXPECT_EQ(promotion(wgmma_tile(192, 128, 2, false, 1, 1, 4)), (std::pair{2, 2}));  // Two pieces of 96 columns.
  EXPECT_EQ(promotion(wgmma_tile(256, 128, 2, false, 1, 1, 4)), (std::pair{2, 1}));  // Not two sets of 64 columns.
  EXPECT_EQ(promotion(wgmma_tile(128, 128, 2, false, 1, 1, 5)), (std::pair{1, 1}));
  EXPECT_EQ(promotion(wgmma_tile(128, 128, 2, false, 1, 1, 3, 256)), (std::pair{1, 2}));
  EXPECT_EQ(promotion(wgmma_tile(200, 192, 1, false, 1, 1, 3)), (std::pair{0, 0}));
  Problem precise = problem_of(4096, 4096);
  precise.accumulate = Accumulate::precise;
  EXPECT_EQ(why_illegal(wgmma_tile(256, 128, 2, false, 1, 1, 4), precise), "legal");
  EXPECT_THAT(why_illegal(wgmma_tile(136, 192, 1, false, 1, 1, 3), precise), HasSubstr("registers a thread"));
}

// Every tile that is legal in precise mode says how it promotes: its defines are never a division by nothing.
TEST(HopperWgmmaConfig, EveryTileThatIsLegalInPreciseModeHasAPromotion) {
  Problem precise = problem_of(4096, 4096);
  precise.accumulate = Accumulate::precise;
  int legal = 0;
  for (const bool swap : {false, true}) {
    for (const int groups : {1, 2, 3}) {
      for (const bool in_turn : {false, true}) {
        for (int rows = 64; rows <= 256; rows += 64) {
          for (int columns = 16; columns <= 256; columns += 8) {
            for (const int block_k : {128, 256}) {
              WgmmaTile tile = wgmma_tile(swap ? rows : columns, swap ? columns : rows, groups, in_turn, 1, 1, 2, block_k);
              tile.swap = swap;
              if (check_wgmma_tile(h200(), precise, tile)) {
                ++legal;
                const Promotion found = promotion_of(tile);
                ASSERT_GE(found.pieces, 1) << to_config(tile).to_json();
                ASSERT_EQ(columns % (8 * found.pieces), 0) << to_config(tile).to_json();
                ASSERT_LE(tile.registers(Accumulate::precise), tile.most_registers()) << to_config(tile).to_json();
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(legal, 300);
}

TEST(HopperWgmmaConfig, EveryKeySurvivesTheWayThroughATile) {
  const std::pair<const char*, int> all[] = {{"BLOCK_SIZE_M", 96},
                                             {"BLOCK_SIZE_N", 192},
                                             {"BLOCK_SIZE_K", 256},
                                             {"num_stages", 3},
                                             {"WARPGROUPS", 3},
                                             {"PINGPONG", 1},
                                             {"CLUSTER_M", 1},
                                             {"CLUSTER_N", 2},
                                             {"GROUP_SIZE_M", 5},
                                             {"PREFETCH", 4},
                                             {"PDL", 2}};
  TileConfig config;
  for (const auto& [name, value] : all) {
    config.set(name, value);
  }
  config.set("CLUSTER_N", 1);
  config.set("PAIRS", 1);
  EXPECT_TRUE(parse_wgmma_tile(config)->pairs);
  EXPECT_EQ(to_config(*parse_wgmma_tile(config)).get("PAIRS", 0), 1);
  config.set("CLUSTER_N", 2);
  config.set("PAIRS", 0);
  const auto tile = parse_wgmma_tile(config);
  ASSERT_TRUE(tile) << tile.error().message;
  EXPECT_FALSE(tile->pairs);
  EXPECT_EQ(tile->tokens, 96);
  EXPECT_EQ(tile->channels, 192);
  EXPECT_EQ(tile->block_k, 256);
  EXPECT_EQ(tile->stages, 3);
  EXPECT_EQ(tile->groups, 3);
  EXPECT_TRUE(tile->in_turn);
  EXPECT_EQ(tile->cluster_m, 1);
  EXPECT_EQ(tile->cluster_n, 2);
  EXPECT_EQ(tile->group_m, 5);
  EXPECT_EQ(tile->prefetch, 4);
  EXPECT_EQ(tile->pdl, Pdl::full);
  for (const auto& [name, value] : all) {
    EXPECT_EQ(to_config(*tile).get(name, 1), value) << name;  // What is a default is left out.
  }
}

TEST(HopperWgmmaConfig, DefaultsAreLeftOutAndReadBack) {
  const TileConfig shortest = to_config(WgmmaTile{});
  EXPECT_EQ(shortest.values.size(), 3U) << shortest.to_json();
  const auto tile = parse_wgmma_tile(shortest);
  ASSERT_TRUE(tile) << tile.error().message;
  EXPECT_EQ(to_config(*tile), shortest);
  EXPECT_EQ(tile->block_k, 128);
  EXPECT_EQ(tile->groups, 2);
  EXPECT_EQ(tile->pdl, Pdl::consume);
}

TEST(HopperWgmmaConfig, TilesOfAClusterCoverTheOutputs) {
  const auto counts = [](const WgmmaTile& tile, std::int64_t m, std::int64_t n) {
    const TileCounts found = tile_counts(tile, m, n);
    return std::pair{found.m, found.n};
  };
  const WgmmaTile alone = wgmma_tile(72, 128, 2, false, 1, 1, 4);
  const WgmmaTile two_m = wgmma_tile(72, 128, 2, false, 2, 1, 4);
  const WgmmaTile two_n = wgmma_tile(80, 128, 2, false, 1, 2, 4);
  EXPECT_EQ(counts(alone, 72, 128), (std::pair<std::int64_t, std::int64_t>{1, 1}));
  EXPECT_EQ(counts(alone, 73, 129), (std::pair<std::int64_t, std::int64_t>{2, 2}));
  EXPECT_EQ(counts(two_m, 144, 128), (std::pair<std::int64_t, std::int64_t>{1, 1}));
  EXPECT_EQ(counts(two_m, 145, 129), (std::pair<std::int64_t, std::int64_t>{2, 2}));
  EXPECT_EQ(counts(two_n, 80, 256), (std::pair<std::int64_t, std::int64_t>{1, 1}));
  EXPECT_EQ(counts(two_n, 81, 257), (std::pair<std::int64_t, std::int64_t>{2, 2}));
  EXPECT_EQ(counts(alone, 0, 128), (std::pair<std::int64_t, std::int64_t>{0, 1}));
}

TEST(HopperWgmmaConfig, OnlyHopperHasIt) {
  EXPECT_TRUE(hopper_wgmma_family().available(*known_device("NVIDIA_H100_PCIe")));
  EXPECT_FALSE(hopper_wgmma_family().available(*known_device("NVIDIA_L40S")));
  EXPECT_FALSE(hopper_wgmma_family().available(*known_device("NVIDIA_B200")));
}

TEST(HopperWgmmaConfig, BatchInvariantModeIsServedWhereEveryFamilyHasTheBaselinesBits) {
  const WgmmaTile tile = wgmma_tile(128, 128, 2, true, 2, 1, 6);
  Problem problem = problem_of(24576, 4096);
  problem.batch_invariant = true;
  EXPECT_THAT(why_illegal(tile, problem), HasSubstr("batch-invariant"));
  EXPECT_TRUE(hopper_wgmma_family().space(h200(), problem, 512).empty());
  problem.numerics = Numerics::baseline;
  EXPECT_EQ(why_illegal(tile, problem), "legal");
}

TEST(HopperWgmmaConfig, SpaceAndHeuristicAreLegalForEveryM) {
  for (const std::int64_t m : {1, 16, 64, 65, 100, 129, 257, 300, 1000, 4096, 16384, 1 << 20}) {
    for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
      for (const Numerics numerics : {Numerics::deterministic, Numerics::baseline}) {
        for (const DType out : {DType::bf16, DType::fp32}) {
          Problem problem = problem_of(6144, 4096);
          problem.numerics = numerics;
          problem.accumulate = accumulate;
          problem.out_dtype = out;
          const auto space = hopper_wgmma_family().space(h200(), problem, m);
          EXPECT_EQ(space.empty(), m < 65) << m;
          for (const TileConfig& config : space) {
            const auto checked = hopper_wgmma_family().check(h200(), problem, config);
            ASSERT_TRUE(checked) << checked.error().message;
          }
          const auto heuristic =
              hopper_wgmma_family().check(h200(), problem, hopper_wgmma_family().heuristic(h200(), problem, m));
          ASSERT_TRUE(heuristic) << heuristic.error().message;
        }
      }
    }
  }
}

// It is kept from call to call: whatever the space depends on must tell two problems apart.
TEST(HopperWgmmaConfig, TheHeuristicIsTheHeadOfTheSpaceWhateverWasAskedBefore) {
  DeviceInfo fewer = h200();
  fewer.sm_count = 114;
  DeviceInfo less_memory = h200();
  less_memory.shared_memory_bytes = 160 << 10;
  std::vector<Problem> problems(8, problem_of(6144, 4096));
  problems[1].accumulate = Accumulate::precise;
  problems[2].out_dtype = DType::fp32;
  problems[3].pdl = Pdl::off;
  problems[4].max_sms = 60;
  problems[5].layout = WeightLayout::slab64;
  problems[6].k = 4224;
  problems[7].batch_invariant = true;
  for (int round = 0; round < 2; ++round) {
    for (const DeviceInfo& device : {h200(), fewer, less_memory}) {
      for (const Problem& problem : problems) {
        for (const std::int64_t m : {65, 1000}) {
          const std::vector<WgmmaTile> space = wgmma_space(device, problem, m);
          const TileConfig found = to_config(wgmma_heuristic(device, problem, m));
          EXPECT_TRUE(space.empty() || found == to_config(space.front())) << found.to_json();
        }
      }
    }
  }
}

// A thread may be in the middle of it when the process forks.
TEST(HopperWgmmaConfig, ChildrenForkedWhileAnotherThreadAsksGetAnAnswer) {
  std::atomic<bool> is_over = false;
  std::thread asking([&] {
    for (std::int64_t n = 128; !is_over; n += 128) {
      static_cast<void>(wgmma_heuristic(h200(), problem_of(n % 65536 + 128, 128), 65));
    }
  });
  for (int child = 0; child < 40; ++child) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      ::alarm(20);  // A deadlock ends as a signal.
      static_cast<void>(wgmma_heuristic(h200(), problem_of(4096, 256 + 128 * child), 100));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0) << "child " << child;
  }
  is_over = true;
  asking.join();
}

TEST(HopperWgmmaConfig, TheSpaceHasNoLaunchModeBeyondTheOneAskedForAndNoTileTwice) {
  for (const Pdl mode : {Pdl::off, Pdl::consume, Pdl::full}) {
    Problem problem = problem_of(24576, 4096);
    problem.pdl = mode;
    for (const std::int64_t m : {65, 300, 4096}) {
      std::set<std::string> seen;
      std::set<std::int64_t> modes;
      for (const TileConfig& config : hopper_wgmma_family().space(h200(), problem, m)) {
        modes.insert(config.get("PDL", 1));
        EXPECT_TRUE(seen.insert(config.to_json()).second) << config.to_json();
      }
      EXPECT_GT(seen.size(), 16U);
      // An early start may cost more than it gains: beside it stand the modes with less of it.
      std::set<std::int64_t> expected;
      for (std::int64_t less = 0; less <= static_cast<std::int64_t>(mode); ++less) {
        expected.insert(less);
      }
      // (At M = 65 a product that starts late is behind 64 others where there is another mode.)
      EXPECT_TRUE(m == 65 && mode != Pdl::off ? modes.contains(static_cast<std::int64_t>(mode)) : modes == expected) << m;
    }
  }
}

TEST(HopperWgmmaConfig, TheSpaceHoldsTheBestTilesInOtherOrdersAndWithAWindowToo) {
  for (const std::int64_t m : {300, 1024, 4096}) {
    std::set<int> groups;
    std::set<int> windows;
    std::set<bool> swapped;
    for (const WgmmaTile& tile : wgmma_space(h200(), problem_of(24576, 4096), m)) {
      groups.insert(tile.group_m);
      windows.insert(tile.window);
      swapped.insert(tile.swap);
    }
    EXPECT_TRUE(groups.contains(2)) << m;
    EXPECT_GT(groups.size(), 1U) << m;
    EXPECT_EQ(windows, (std::set<int>{0, 48})) << m;
    EXPECT_EQ(swapped.size(), 2U) << m;
  }
}

TEST(HopperWgmmaConfig, TheSpaceHoldsTheTilesThatLeaveTheFewestRowsAndChannelsIdle) {
  const Problem problem = problem_of(4096, 4096);
  const std::pair<std::int64_t, std::set<int>> fitting[] = {
      {65, {40, 72}}, {129, {40, 48, 72, 136}}, {144, {40, 48, 72, 144}}, {200, {40, 56, 72, 104, 200}}};
  for (const auto& [m, heights] : fitting) {
    for (const WgmmaTile& tile : wgmma_space(h200(), problem, m)) {
      if (tile.swap) {
        EXPECT_LT((4096 + tile.channels - 1) / tile.channels * tile.channels - 4096,
                  8 * ((4096 + tile.channels - 1) / tile.channels))
            << to_config(tile).to_json();
      } else {
        EXPECT_TRUE(heights.contains(tile.tokens)) << "M = " << m << ": " << to_config(tile).to_json();
      }
    }
  }
}

// Where our families alone serve, the cost models choose between them; measured, the other takes 1.05 to 2.5 times as long.
TEST(HopperWgmmaConfig, ForManyTokensItIsPredictedToTakeLessThanTheFamilyOfDecoding) {
  for (const auto& [n, k] : {std::pair{6144, 4096}, std::pair{4096, 4096}, std::pair{4096, 12288}, std::pair{24576, 4096}}) {
    const Problem problem = problem_of(n, k);
    const auto predicted_us = [&](const KernelFamily& family, std::int64_t m) {
      return family.predict_us(h200(), problem, m, family.heuristic(h200(), problem, m));
    };
    for (std::int64_t m = 256; m <= 16384; m += m / 4) {
      EXPECT_LT(predicted_us(hopper_wgmma_family(), m), predicted_us(hopper_decode_family(), m))
          << n << " " << k << " M = " << m;
    }
  }
}

TEST(HopperWgmmaConfig, MoreWorkIsNeverPredictedToTakeLess) {
  const WgmmaTile tile = wgmma_tile(128, 128, 2, true, 2, 1, 6);
  double before = 0;
  for (const std::int64_t m : {65, 128, 129, 512, 2048, 8192}) {
    const double us = wgmma_predict_us(h200(), problem_of(6144, 4096), m, tile);
    EXPECT_GE(us, before) << m;
    EXPECT_LT(us, HUGE_VAL);
    EXPECT_LE(us, wgmma_predict_us(h200(), problem_of(6144, 8192), m, tile)) << m;
    before = us;
  }
}

CompileRequest request_of(const WgmmaTile& tile, DType out, Accumulate accumulate,
                          WeightLayout layout = WeightLayout::row_major) {
  return {"sm_90a", "hopper_wgmma.cuh", wgmma_defines(tile, out, accumulate, layout), "octile_hopper_wgmma"};
}

void expect_sound(const std::vector<CompileRequest>& requests) {
  const env::ScopedOverride cache("OCTILE_CACHE_DIR", std::string(OCTILE_TEST_BINARY_DIR) + "/cubins");
  const auto results = compile_all(requests, 2);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i] && results[i].error().code == ErrorCode::unavailable) {
      GTEST_SKIP() << results[i].error().message;
    }
    const std::string defines = testing::PrintToString(requests[i].defines);
    ASSERT_TRUE(results[i]) << results[i].error().message << defines;
    EXPECT_EQ(results[i]->spill_store_bytes + results[i]->spill_load_bytes + results[i]->stack_bytes, 0) << defines;
    // (C75nn): multiplications run one by one, or registers are not moved.
    EXPECT_EQ(results[i]->log.find("(C75"), std::string::npos) << results[i]->log << defines;
  }
}

TEST(HopperWgmmaSource, EveryKindOfTileCompilesWithoutSpills) {
  std::vector<CompileRequest> requests;
  for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
    Problem problem = problem_of(4096, 4096);
    problem.accumulate = accumulate;
    for (const TileConfig& config : legal_wgmma_tiles(problem)) {
      requests.push_back(request_of(*parse_wgmma_tile(config), DType::bf16, accumulate));
    }
  }
  EXPECT_GT(requests.size(), 50U);
  expect_sound(requests);
}

TEST(HopperWgmmaSource, EveryWayToAskForSlabsCompilesWithoutSpills) {
  std::vector<CompileRequest> requests;
  std::set<std::array<int, 4>> seen;
  for (const TileConfig& config : legal_wgmma_tiles(problem_of(4096, 4096))) {
    const WgmmaTile tile = *parse_wgmma_tile(config);
    if (tile.channels / tile.cluster_m % 16 == 0 &&
        seen.insert({tile.channels, tile.block_k, tile.cluster_m, tile.swap ? 1 : 0}).second) {
      requests.push_back(request_of(tile, DType::bf16, Accumulate::fast, WeightLayout::slab64));
    }
  }
  EXPECT_GT(requests.size(), 5U);
  expect_sound(requests);
}

TEST(HopperWgmmaSource, OutputsOfFourBytesCompileWithoutSpills) {
  std::vector<CompileRequest> requests;
  for (const WgmmaTile& tile : {wgmma_tile(24, 64, 1, false, 1, 1, 4), wgmma_tile(192, 128, 2, true, 1, 1, 3),
                                wgmma_tile(256, 128, 2, false, 1, 1, 3), wgmma_tile(192, 192, 3, false, 1, 1, 3)}) {
    requests.push_back(request_of(tile, DType::fp32, Accumulate::fast));
  }
  requests.push_back(request_of(wgmma_tile(128, 128, 2, false, 2, 1, 5), DType::fp32, Accumulate::precise));
  expect_sound(requests);
}

TEST(HopperWgmmaSource, TheHeadOfTheSpaceCompilesWithoutSpills) {
  std::vector<CompileRequest> requests;
  for (const std::int64_t m : {96, 1000}) {
    for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
      Problem problem = problem_of(6144, 4096);
      problem.accumulate = accumulate;
      const auto space = wgmma_space(h200(), problem, m);
      ASSERT_GE(space.size(), 4U);
      for (std::size_t i = 0; i < 4; ++i) {
        requests.push_back(request_of(space[i], DType::bf16, accumulate));
      }
    }
  }
  expect_sound(requests);
}

TEST(HopperWgmmaSource, HoldsItsInstructions) {
  const auto ptx = compile_to_ptx(request_of(wgmma_tile(144, 128, 2, true, 2, 1, 4), DType::bf16, Accumulate::fast));
  if (!ptx && ptx.error().code == ErrorCode::unavailable) {
    GTEST_SKIP() << ptx.error().message;
  }
  ASSERT_TRUE(ptx) << ptx.error().message;
  EXPECT_THAT(*ptx, HasSubstr("wgmma.mma_async.sync.aligned.m64n144k32.f32.e4m3.e4m3"));
  EXPECT_THAT(*ptx, HasSubstr("multicast::cluster"));
  EXPECT_THAT(*ptx, HasSubstr("setmaxnreg.inc.sync.aligned.u32"));
  EXPECT_THAT(*ptx, HasSubstr("stmatrix.sync.aligned.m8n8.x4.trans"));
  EXPECT_THAT(*ptx, HasSubstr("st.global.v4"));
  EXPECT_THAT(*ptx, HasSubstr("griddepcontrol.wait"));
  EXPECT_THAT(*ptx, HasSubstr("griddepcontrol.launch_dependents"));
  EXPECT_EQ(ptx->find("cp.async.bulk.tensor.4d"), std::string::npos) << "of slabs alone";
  EXPECT_EQ(ptx->find("ld.global.nc"), std::string::npos)
      << "a read-only load may be hoisted above the wait for the kernel that wrote its data";
}

TEST(HopperWgmmaSmLimit, ALaunchHasAsManyBlocksAsMultiprocessorsInWholeClusters) {
  struct Case {
    WgmmaTile tile;
    int max_sms;
    std::int64_t clusters;
  };
  const WgmmaTile alone = wgmma_tile(128, 128, 2, true, 1, 1, 6);
  const WgmmaTile pair = wgmma_tile(128, 128, 2, true, 2, 1, 6);
  WgmmaTile started_in_pairs = alone;
  started_in_pairs.pairs = true;
  const WgmmaTile twice = wgmma_tile(64, 64, 1, false, 1, 1, 6);  // An SM holds two of its blocks.
  for (const Case& c : {Case{alone, 0, 132},
                        {alone, 100, 100},
                        {alone, 1, 1},
                        {pair, 0, 66},
                        {pair, 101, 50},
                        {pair, 2, 1},
                        {started_in_pairs, 0, 132},
                        {started_in_pairs, 101, 100},
                        {started_in_pairs, 2, 2},
                        {twice, 0, 264},
                        {twice, 100, 100}}) {
    Problem problem = problem_of(4096, 4096);
    problem.max_sms = c.max_sms;
    EXPECT_EQ(clusters_at_once(h200(), problem, c.tile), c.clusters) << to_config(c.tile).to_json() << ' ' << c.max_sms;
  }
}

TEST(HopperWgmmaSmLimit, AClusterThatDoesNotFitIsNotLegalAndEveryOtherTileIsHeld) {
  Problem problem = problem_of(4096, 4096);
  problem.max_sms = 1;
  EXPECT_THAT(why_illegal(wgmma_tile(128, 128, 2, true, 2, 1, 6), problem), HasSubstr("does not fit 1 multiprocessors"));
  EXPECT_EQ(why_illegal(wgmma_tile(128, 128, 2, true, 1, 1, 6), problem), "legal");
  for (const std::int64_t m : {1, 100, 4096}) {
    const TileConfig config = hopper_wgmma_family().heuristic(h200(), problem, m);
    EXPECT_TRUE(hopper_wgmma_family().check(h200(), problem, config)) << config.to_json();
    EXPECT_TRUE(hopper_wgmma_family().check_sm_limit(problem, config, 1 << 20)) << config.to_json();
    for (const WgmmaTile& tile : wgmma_space(h200(), problem, m)) {
      EXPECT_EQ(tile.cluster(), 1) << to_config(tile).to_json();
    }
  }
}

TEST(HopperWgmmaSmLimit, TheCostModelCountsTheRoundsOfFewerMultiprocessors) {
  const WgmmaTile tile = wgmma_tile(128, 128, 2, true, 1, 1, 6);
  Problem problem = problem_of(6144, 4096);
  const double all = wgmma_predict_us(h200(), problem, 1024, tile);  // 384 tiles: 3 rounds of 132.
  problem.max_sms = 100;                                             // 4 rounds.
  const double fewer = wgmma_predict_us(h200(), problem, 1024, tile);
  EXPECT_GT(fewer, 1.2 * all);
  problem.max_sms = 50;  // 8 rounds.
  EXPECT_GT(wgmma_predict_us(h200(), problem, 1024, tile), 1.7 * fewer);
}

// On a fake driver whose kernels do nothing.
class HopperWgmmaLaunch : public FakeDriverTest {
 protected:
  void SetUp() override {
    if (const auto api = nvrtc(); !api) {
      GTEST_SKIP() << api.error().message;
    }
    FakeDriverTest::SetUp();
    if (!HasFatalFailure()) {
      open();
    }
  }

  // Blocks of the product, for M codes.
  unsigned grid_of(const WgmmaTile& tile, int max_sms, std::int64_t m) {
    constexpr std::int64_t kN = 4096;
    constexpr std::int64_t kK = 128;
    const env::ScopedOverride cache("OCTILE_CACHE_DIR", std::string(OCTILE_TEST_BINARY_DIR) + "/cubins");
    const DeviceContext& context = *contexts_[0];
    Problem problem = problem_of(kN, kK);
    EXPECT_TRUE(limit_sms(context.info, max_sms, problem));
    const std::vector<std::uint8_t> codes(static_cast<std::size_t>(kN * kK), 0x38);
    const std::vector<float> scales(kN, 1.0F);
    WeightSource source;
    source.n = kN;
    source.k = kK;
    source.codes = codes.data();
    source.scales = scales.data();
    source.scale_count = kN;
    const auto weight = pack_row_major(context, source);
    const auto kernel = prepare_hopper_wgmma(context, problem, to_config(tile));
    if (!weight || !kernel) {
      ADD_FAILURE() << (weight ? kernel.error().message : weight.error().message);
      return 0;
    }
    const auto x = allocate_device(context, m * kK);
    const auto sx = allocate_device(context, 4 * m);
    const auto y = allocate_device(context, 2 * m * kN);
    const auto workspace = allocate_device(context, (*kernel)->workspace_bytes(m));
    LaunchArgs args;
    args.activation.x = {(*x)->data(), DType::e4m3, m, kK, kK, 1};
    args.activation.scales = static_cast<const float*>((*sx)->data());
    args.y = {(*y)->data(), DType::bf16, m, kN, kN, 1};
    args.workspace = (*workspace)->data();
    args.workspace_bytes = (*workspace)->bytes();
    state_->launches.clear();
    const auto ran = (*kernel)->run(**weight, args);
    EXPECT_TRUE(ran) << ran.error().message;
    EXPECT_EQ(state_->launches.size(), 1U);
    return state_->launches.empty() ? 0 : state_->launches.front().config.gridDimX;
  }
};

TEST_F(HopperWgmmaLaunch, TheGridKeepsToTheLimitInWholeClustersAndToTheTilesThatThereAre) {
  const WgmmaTile alone = wgmma_tile(64, 64, 1, false, 1, 1, 4);
  const WgmmaTile pair = wgmma_tile(64, 64, 1, false, 2, 1, 4);
  const int all = contexts_[0]->info.sm_count;
  ASSERT_GT(all, 8);
  const std::int64_t m = 64 * 64;  // 64 x 64 tiles.
  EXPECT_GT(grid_of(alone, 0, m), static_cast<unsigned>(all));
  EXPECT_GT(grid_of(alone, all, m), static_cast<unsigned>(all)) << "all of them are no limit";
  EXPECT_EQ(grid_of(alone, 7, m), 7U);
  EXPECT_EQ(grid_of(alone, 1, m), 1U);
  EXPECT_EQ(grid_of(pair, 7, m), 6U);
  EXPECT_EQ(grid_of(alone, all - 1, 1), std::min(64U, static_cast<unsigned>(all - 1))) << "64 tiles";
}

}  // namespace
}  // namespace octile::cuda
