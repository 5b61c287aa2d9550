// SPDX-License-Identifier: Apache-2.0
// The families of GPU kernels as parameters of tests: what every one of them must do is tested once, for all of them.
#pragma once

#include "l40s_tables.h"
#include "octile/core/env.h"
#include "octile/kernels/cuda/ada_mma_config.h"
#include "octile/kernels/cuda/ada_mma_family.h"
#include "octile/kernels/cuda/cublaslt_family.h"
#include "octile/kernels/cuda/cutlass_family.h"
#include "octile/kernels/cuda/cutlass_tiles.h"
#include "octile/kernels/cuda/hopper_decode_config.h"
#include "octile/kernels/cuda/hopper_decode_family.h"
#include "octile/kernels/cuda/hopper_wgmma_config.h"
#include "octile/kernels/cuda/hopper_wgmma_family.h"
#include "octile/kernels/cuda/nvrtc.h"
#include "octile/kernels/cuda/warmup.h"
#include "octile/kernels/known_devices.h"
#include "support/gpu.h"
#include "support/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace octile::cuda {

inline AdaTile ada_tile(int m, int n, int k, int warps, int stages, int split = 1, bool swap = false) {
  AdaTile tile;
  tile.block_m = m;
  tile.block_n = n;
  tile.block_k = k;
  tile.warps = warps;
  tile.stages = stages;
  tile.split_k = split;
  tile.swap_ab = swap;
  return tile;
}

// The published tiles, and each warp grid, ring depth, orientation and split.
inline std::vector<TileConfig> ada_tiles_of_every_kind() {
  std::vector<TileConfig> tiles = test::l40s_tiles();
  for (const AdaTile& tile :
       {ada_tile(16, 16, 32, 1, 1),           ada_tile(16, 16, 64, 2, 3),          ada_tile(16, 128, 64, 4, 6),
        ada_tile(32, 64, 32, 4, 4, 3),        ada_tile(8, 32, 256, 4, 4, 1, true), ada_tile(8, 16, 512, 4, 3, 2, true),
        ada_tile(16, 64, 128, 4, 4, 1, true), ada_tile(64, 64, 64, 4, 3, 4),       ada_tile(64, 128, 128, 8, 3, 1, true),
        ada_tile(128, 64, 128, 4, 3, 2),      ada_tile(16, 256, 128, 8, 3),        ada_tile(256, 16, 128, 8, 3),
        ada_tile(128, 128, 128, 16, 3),       ada_tile(16, 16, 1024, 16, 3, 5),    ada_tile(48, 48, 512, 8, 3),
        ada_tile(48, 48, 256, 8, 4),          ada_tile(64, 48, 256, 4, 3),         ada_tile(48, 64, 128, 8, 3, 2),
        ada_tile(48, 96, 64, 2, 3),           ada_tile(96, 48, 64, 4, 3, 1, true), ada_tile(48, 16, 32, 1, 2),
        ada_tile(192, 48, 128, 8, 2)}) {
    tiles.push_back(to_config(tile));
  }
  return tiles;
}

// Every width, split, ring and stage.
inline std::vector<DecodeTile> decode_tiles_of_every_kind() {
  std::vector<DecodeTile> tiles;
  for (const int tokens : {8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128}) {
    tiles.push_back({tokens, tokens % 16 == 0 ? 2 : 1, 4, 1});
  }
  for (const DecodeTile& tile :
       {DecodeTile{8, 1, 12, 2}, DecodeTile{8, 4, 3, 4}, DecodeTile{16, 2, 5, 8}, DecodeTile{32, 4, 2, 2},
        DecodeTile{64, 1, 6, 4}, DecodeTile{128, 1, 3, 2}, DecodeTile{8, 8, 2, 1}, DecodeTile{8, 4, 6, 1, 48},
        DecodeTile{16, 1, 3, 2, 48}, DecodeTile{24, 2, 2, 1, 32}, DecodeTile{8, 1, 32, 4, 32}, DecodeTile{64, 2, 4, 1, 128},
        DecodeTile{16, 1, 2, 4, 128}, DecodeTile{32, 2, 3, 2, 192}, DecodeTile{128, 1, 4, 1, 256},
        // Independent sums, and windows of one stage, of some, and of more than the ring holds.
        DecodeTile{8, 2, 6, 1, 48, 2, 32}, DecodeTile{16, 1, 32, 1, 32, 4, 1}, DecodeTile{8, 4, 3, 4, 64, 2, 48},
        DecodeTile{24, 2, 2, 1, 32, 1, 80}, DecodeTile{8, 4, 2, 8, 64, 2, 16}, DecodeTile{64, 1, 7, 1, 192, 2, 48}}) {
    tiles.push_back(tile);
  }
  // First weights asked for before the block's threads have met: fewer stages than the window, as many, more.
  for (DecodeTile tile : {DecodeTile{8, 4, 8, 1, 48, 2, 48}, DecodeTile{16, 1, 2, 2, 64, 1, 0}, DecodeTile{8, 1, 32, 8, 32},
                          DecodeTile{64, 1, 4, 1, 64, 1, 16}}) {
    tile.early = 1;
    tiles.push_back(tile);
  }
  // Tokens as the 64-row operand.
  for (DecodeTile tile : {DecodeTile{64, 2, 6, 1, 48, 1, 48}, DecodeTile{64, 4, 2, 1, 32}, DecodeTile{64, 1, 4, 2, 96},
                          DecodeTile{64, 2, 3, 4, 128}, DecodeTile{128, 1, 4, 1, 96, 1, 32}, DecodeTile{128, 1, 3, 8, 64},
                          DecodeTile{64, 2, 4, 1, 64, 2}}) {
    tile.swap = 1;
    tile.early = tile.rows == 96 ? 1 : 0;
    tiles.push_back(tile);
  }
  return tiles;
}

// Of these, the ones that are legal for the problem: some modes refuse a split of K, chains, or the registers of wide tiles.
inline std::vector<TileConfig> legal_decode_tiles(const Problem& problem) {
  std::vector<TileConfig> configs;
  for (const DecodeTile& tile : decode_tiles_of_every_kind()) {
    if (hopper_decode_family().check(*known_device("NVIDIA_H200"), problem, to_config(tile))) {
      configs.push_back(to_config(tile));
    }
  }
  return configs;
}

inline std::vector<TileConfig> to_configs(const std::vector<DecodeTile>& tiles) {
  std::vector<TileConfig> configs;
  for (const DecodeTile& tile : tiles) {
    configs.push_back(to_config(tile));
  }
  return configs;
}

inline WgmmaTile wgmma_tile(int tokens, int channels, int groups, bool in_turn, int cluster_m, int cluster_n, int stages,
                            int block_k = 128) {
  WgmmaTile tile;
  tile.tokens = tokens;
  tile.channels = channels;
  tile.groups = groups;
  tile.in_turn = in_turn;
  tile.cluster_m = cluster_m;
  tile.cluster_n = cluster_n;
  tile.stages = stages;
  tile.block_k = block_k;
  return tile;
}

// Every width of both operands; every way for warpgroups to share tiles or take turns, alone and with both kinds of
// clusters; short and long rings; orders of tiles in which the last group is narrower; weights requested ahead by one stage.
inline std::vector<WgmmaTile> wgmma_tiles_of_every_kind() {
  std::vector<WgmmaTile> tiles = {wgmma_tile(16, 64, 1, false, 1, 1, 12),      wgmma_tile(24, 64, 1, false, 2, 1, 4),
                                  wgmma_tile(32, 64, 1, false, 1, 2, 3, 256),  wgmma_tile(40, 128, 1, false, 2, 1, 6),
                                  wgmma_tile(48, 192, 1, false, 1, 2, 2),      wgmma_tile(56, 64, 2, true, 1, 1, 5),
                                  wgmma_tile(64, 64, 2, true, 2, 1, 2, 256),   wgmma_tile(72, 128, 2, false, 1, 1, 7),
                                  wgmma_tile(80, 128, 2, false, 1, 2, 2, 256), wgmma_tile(88, 128, 2, true, 2, 1, 4),
                                  wgmma_tile(96, 128, 2, true, 1, 2, 2, 256),  wgmma_tile(104, 192, 2, true, 1, 1, 5),
                                  wgmma_tile(112, 192, 2, true, 2, 1, 3),      wgmma_tile(120, 192, 3, false, 1, 1, 4),
                                  wgmma_tile(128, 192, 3, false, 1, 2, 2),     wgmma_tile(136, 256, 2, false, 1, 1, 4),
                                  wgmma_tile(144, 256, 2, false, 1, 2, 3),     wgmma_tile(152, 64, 3, true, 1, 1, 7),
                                  wgmma_tile(160, 64, 1, false, 1, 2, 6),      wgmma_tile(168, 128, 2, true, 2, 1, 5),
                                  wgmma_tile(176, 64, 1, false, 1, 1, 2, 256), wgmma_tile(184, 192, 3, false, 2, 1, 4),
                                  wgmma_tile(192, 128, 2, true, 1, 2, 3),      wgmma_tile(200, 64, 2, true, 1, 1, 4),
                                  wgmma_tile(208, 128, 2, false, 1, 1, 4),     wgmma_tile(216, 64, 1, false, 2, 1, 5),
                                  wgmma_tile(224, 128, 2, false, 1, 2, 4),     wgmma_tile(232, 64, 2, true, 2, 1, 5),
                                  wgmma_tile(240, 64, 1, false, 1, 2, 4),      wgmma_tile(248, 128, 2, false, 2, 1, 2),
                                  wgmma_tile(256, 128, 2, false, 1, 1, 4),     wgmma_tile(128, 128, 2, true, 2, 1, 5),
                                  wgmma_tile(64, 128, 3, true, 1, 2, 6),       wgmma_tile(64, 256, 2, false, 2, 1, 2, 256)};
  // Tokens as the 64-row operand, channels as the other: tails of eight channels behind whole slabs of outputs and not.
  for (WgmmaTile tile : {wgmma_tile(64, 16, 1, false, 1, 1, 12), wgmma_tile(64, 24, 1, false, 1, 2, 4),
                         wgmma_tile(64, 48, 2, true, 2, 1, 3, 256), wgmma_tile(128, 72, 1, false, 1, 1, 5),
                         wgmma_tile(128, 104, 2, false, 1, 2, 4), wgmma_tile(128, 144, 2, true, 2, 1, 3),
                         wgmma_tile(192, 96, 3, false, 1, 1, 4), wgmma_tile(192, 40, 2, true, 1, 1, 2, 256),
                         wgmma_tile(256, 120, 2, false, 2, 1, 4), wgmma_tile(64, 256, 1, false, 1, 1, 2, 256),
                         wgmma_tile(64, 200, 2, true, 1, 2, 4), wgmma_tile(128, 176, 2, false, 1, 1, 4)}) {
    tile.swap = true;
    tile.window = tile.channels % 48 == 0 ? 48 : 0;
    tiles.push_back(tile);
  }
  // Precise mode promotes pieces of the columns, with one set of sums and with two.
  tiles.insert(tiles.end(), {wgmma_tile(128, 128, 2, false, 1, 1, 5), wgmma_tile(192, 128, 2, false, 1, 1, 4),
                             wgmma_tile(256, 128, 2, false, 1, 1, 3), wgmma_tile(128, 256, 2, false, 2, 1, 4),
                             wgmma_tile(192, 64, 2, true, 1, 1, 5), wgmma_tile(96, 256, 2, false, 1, 1, 4),
                             wgmma_tile(96, 64, 2, true, 1, 1, 4, 256)});
  for (const int group_m : {1, 3}) {
    WgmmaTile& tile = tiles.emplace_back(wgmma_tile(16, 64, 1, false, 1, 1, 5));
    tile.group_m = group_m;
    tile.prefetch = group_m;
    tile.window = group_m;  // KiB: one stage under way.
  }
  // Pairs, of which the last block may have no tile; sums shared, in turn, of swapped operands.
  for (WgmmaTile tile : {wgmma_tile(24, 64, 1, false, 1, 1, 4), wgmma_tile(64, 128, 2, false, 1, 1, 3),
                         wgmma_tile(40, 192, 3, false, 1, 1, 2), wgmma_tile(64, 64, 2, true, 1, 1, 5)}) {
    for (const bool swap : {false, true}) {
      if (swap) {
        std::swap(tile.tokens, tile.channels);
      }
      tile.swap = swap;
      tile.pairs = true;
      tile.group_m = 2;
      tiles.push_back(tile);
    }
  }
  return tiles;
}

// Of these, the ones that are legal for the problem: precise mode wants registers, fp32 outputs shared memory.
inline std::vector<TileConfig> legal_wgmma_tiles(const Problem& problem) {
  std::vector<TileConfig> configs;
  for (const WgmmaTile& tile : wgmma_tiles_of_every_kind()) {
    if (hopper_wgmma_family().check(*known_device("NVIDIA_H200"), problem, to_config(tile))) {
      configs.push_back(to_config(tile));
    }
  }
  return configs;
}

// The library's own choice and the head of its search, which depends on the shape.
inline std::vector<TileConfig> cublaslt_algorithms(const Problem& problem, std::int64_t m) {
  constexpr std::size_t kMost = 16;
  auto configs = cublaslt_family().space(test::gpu().context->info, problem, m);
  configs.resize(std::min(configs.size(), kMost));
  return configs;
}

// The component's own choice and each of its kernels; the choice alone where there is no component.
inline std::vector<TileConfig> cutlass_kernels() {
  std::vector<TileConfig> configs = {{}};
  if (const OctileCutlassApi* api = cutlass_component().api; api != nullptr) {
    for (const OctileCutlassConfig& tile : cutlass_tiles(*api)) {
      configs.push_back(to_config(tile));
    }
  }
  return configs;
}

struct FamilyUnderTest {
  const char* name;
  const KernelFamily& (*family)();
  std::vector<TileConfig> (*every_kind)(const Problem& problem, std::int64_t m);
  // Two or three that differ most, legal for every shape.
  std::vector<TileConfig> (*few)();
  // One for very many rows.
  TileConfig (*wide)();
  // Makes a problem of one whose legal configs all promise the same bits.
  void (*promise_bits)(Problem& problem);
  WeightLayout layout = WeightLayout::automatic;
};

inline void PrintTo(const FamilyUnderTest& family, std::ostream* stream) { *stream << family.name; }

inline const std::vector<FamilyUnderTest>& families_under_test() {
  static const std::vector<FamilyUnderTest> families = {
      {"ada_mma", ada_mma_family, [](const Problem&, std::int64_t) { return ada_tiles_of_every_kind(); },
       [] {
         return std::vector{to_config(ada_tile(16, 32, 128, 4, 3)), to_config(ada_tile(64, 64, 64, 4, 3)),
                            to_config(ada_tile(8, 32, 64, 2, 3, 2, true))};
       },
       [] { return to_config(ada_tile(128, 128, 64, 8, 3)); }, [](Problem& problem) { problem.batch_invariant = true; }},
      {"hopper_decode", hopper_decode_family,
       [](const Problem& problem, std::int64_t) { return legal_decode_tiles(problem); },
       [] { return to_configs({{8, 2, 4, 1}, {8, 1, 12, 2}, {32, 4, 2, 2}}); },
       [] { return to_config(DecodeTile{128, 1, 4, 1}); }, [](Problem& problem) { problem.numerics = Numerics::baseline; }},
      {"hopper_wgmma", hopper_wgmma_family, [](const Problem& problem, std::int64_t) { return legal_wgmma_tiles(problem); },
       [] {
         return std::vector{to_config(wgmma_tile(16, 64, 1, false, 1, 1, 4)),
                            to_config(wgmma_tile(72, 128, 2, false, 2, 1, 3)),
                            to_config(wgmma_tile(64, 64, 2, true, 1, 2, 5))};
       },
       [] { return to_config(wgmma_tile(128, 128, 2, true, 1, 1, 5)); },
       [](Problem& problem) { problem.numerics = Numerics::baseline; }},
      {"cublaslt", cublaslt_family, cublaslt_algorithms, [] { return std::vector<TileConfig>{{}}; },
       [] { return TileConfig{}; }, [](Problem& problem) { problem.numerics = Numerics::baseline; }},
      {"cutlass", cutlass_family, [](const Problem&, std::int64_t) { return cutlass_kernels(); },
       [] {
         const auto all = cutlass_kernels();
         return std::vector{all.front(), all[all.size() / 2], all.back()};
       },
       [] { return TileConfig{}; }, [](Problem& problem) { problem.batch_invariant = true; }},
  };
  return families;
}

// The same, and those that read weights in slabs once more with such.
inline std::vector<FamilyUnderTest> families_and_layouts_under_test() {
  std::vector<FamilyUnderTest> families = families_under_test();
  for (const FamilyUnderTest& family : families_under_test()) {
    if (std::string_view(family.name).starts_with("hopper")) {
      FamilyUnderTest& in_slabs = families.emplace_back(family);
      in_slabs.name = std::string_view(family.name) == "hopper_decode" ? "hopper_decode_slab64" : "hopper_wgmma_slab64";
      in_slabs.layout = WeightLayout::slab64;
    }
  }
  return families;
}

// Skips where there is no GPU, or none that the family serves.
class FamilyTest : public testing::TestWithParam<FamilyUnderTest> {
 protected:
  void SetUp() override {
    OCTILE_REQUIRE_GPU();
    if (const auto compiler = nvrtc(); !compiler) {
      GTEST_SKIP() << compiler.error().message;
    }
    cutlass_too_.emplace("OCTILE_CUTLASS_ON_ANY_GPU", "on");
    if (const auto available = family().available(device()); !available) {
      GTEST_SKIP() << available.error().message;
    }
    trace_.emplace(__FILE__, __LINE__, test::seed_text());
  }
  void TearDown() override {
    trace_.reset();
    cutlass_too_.reset();
  }

  const KernelFamily& family() const { return GetParam().family(); }
  static const DeviceInfo& device() { return test::gpu().context->info; }

  // Every kind of config that is legal for the problem, compiled by all cores into the cache: one after the other they take
  // minutes of the GPU's time.
  std::vector<TileConfig> configs_for(const Problem& problem, std::int64_t m) const {
    std::vector<TileConfig> legal;
    std::vector<WarmupItem> items;
    for (const TileConfig& config : GetParam().every_kind(problem, m)) {
      if (family().check(device(), problem, config)) {
        legal.push_back(config);
        items.push_back({&family(), problem, config});
      }
    }
    EXPECT_FALSE(legal.empty());
    if (!family().is_vendor()) {
      for (const Error& error : warm_up(device(), items, {}).failures) {
        ADD_FAILURE() << error.message;
      }
    }
    return legal;
  }

 private:
  std::optional<testing::ScopedTrace> trace_;
  std::optional<env::ScopedOverride> cutlass_too_;  // Its PTX runs on the GPUs that are not its own.
};

inline std::string name_of(const testing::TestParamInfo<FamilyUnderTest>& info) { return info.param.name; }

}  // namespace octile::cuda
