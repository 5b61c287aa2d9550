// SPDX-License-Identifier: Apache-2.0
// Proof of the device code on machines without a GPU: NVRTC compiles it for every architecture, nothing spills, and the
// instruction that a kernel is about is in it. Compiled once: the cubins are cached in the build tree.
#include "kernels/cuda/l40s_tables.h"
#include "octile/core/env.h"
#include "octile/kernels/cuda/ada_mma_config.h"
#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/known_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace octile::cuda {
namespace {

using testing::HasSubstr;

struct Target {
  const char* device;
  const char* arch;
};
constexpr Target kTargets[] = {{"NVIDIA_L40S", "sm_89"}, {"NVIDIA_H200", "sm_90a"}, {"NVIDIA_GeForce_RTX_5090", "sm_120"}};
// Where ada_mma runs, which has the instruction on all but sm_90.
constexpr Target kAdaTargets[] = {kTargets[0], kTargets[1], {"NVIDIA_B200", "sm_100a"}, kTargets[2]};

CompileRequest ada_request(const Target& target, const TileConfig& config, Accumulate accumulate, DType out) {
  Problem problem;
  problem.n = 4096;
  problem.k = 4096;
  problem.accumulate = accumulate;
  const auto tile = parse_ada_tile(config);
  EXPECT_TRUE(tile) << config.to_json();
  const auto grid = check_ada_tile(*known_device(target.device), problem, *tile);
  EXPECT_TRUE(grid) << grid.error().message;
  return {target.arch, "ada_mma.cuh", ada_defines(*tile, *grid, out, accumulate), "octile_ada_mma"};
}

std::string text(const CompileRequest& request) {
  std::string all = request.arch + " " + request.kernel;
  for (const std::string& define : request.defines) {
    all += " " + define;
  }
  return all;
}

// Skips the test where there is no compiler at all; every other failure is one.
class DeviceSources : public testing::Test {
 protected:
  void SetUp() override {
    const auto compiled =
        compile_to_ptx({"sm_89", "quantise.cuh", {"THREADS=32", "VECTORS=1", "IN_TYPE=0"}, "octile_quantise"});
    if (!compiled && compiled.error().code == ErrorCode::unavailable) {
      GTEST_SKIP() << compiled.error().message;
    }
  }

  static void expect_no_spills(const std::vector<CompileRequest>& requests) {
    const auto results = compile_all(requests, 2);
    ASSERT_EQ(results.size(), requests.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      SCOPED_TRACE(text(requests[i]));
      ASSERT_TRUE(results[i]) << results[i].error().message;
      EXPECT_EQ(results[i]->spill_store_bytes, 0);
      EXPECT_EQ(results[i]->spill_load_bytes, 0);
      EXPECT_EQ(results[i]->stack_bytes, 0);
      EXPECT_GT(results[i]->registers, 8);
      EXPECT_LE(results[i]->registers, 255);
    }
  }

 private:
  env::ScopedOverride cache_{"OCTILE_CACHE_DIR", std::string(OCTILE_TEST_BINARY_DIR) + "/cubins"};
};

TEST_F(DeviceSources, EveryTileOfThePublishedTablesCompilesForEveryArchitectureWithoutSpills) {
  std::vector<CompileRequest> requests;
  for (const Target& target : kAdaTargets) {
    for (const TileConfig& config : test::l40s_tiles()) {
      requests.push_back(ada_request(target, config, Accumulate::fast, DType::bf16));
    }
  }
  EXPECT_GE(requests.size(), 100U);
  expect_no_spills(requests);
}

TEST_F(DeviceSources, ASampleOfTheSpaceCompilesWithoutSpills) {
  std::vector<CompileRequest> requests;
  Problem problem;
  problem.n = 4096;
  problem.k = 4096;
  for (const Target& target : kTargets) {
    for (const std::int64_t m : {1, 16, 32, 64, 512}) {
      const auto space = ada_space(*known_device(target.device), problem, m);
      const Accumulate accumulate = m == 64 ? Accumulate::precise : Accumulate::fast;
      for (const std::size_t i : {std::size_t{0}, space.size() - 1}) {
        requests.push_back(ada_request(target, to_config(space[i]), accumulate, m == 1 ? DType::fp32 : DType::fp16));
      }
    }
  }
  expect_no_spills(requests);
}

TEST_F(DeviceSources, TilesOfFortyEightCompileWithoutSpills) {
  std::vector<CompileRequest> requests;
  for (const Target& target : kTargets) {
    for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
      for (const auto& [m, n, k, warps] :
           {std::array{48, 48, 512, 8}, {48, 48, 256, 8}, {64, 48, 256, 4}, {96, 192, 64, 8}}) {
        TileConfig config;
        config.set("BLOCK_SIZE_M", m);
        config.set("BLOCK_SIZE_N", n);
        config.set("BLOCK_SIZE_K", k);
        config.set("num_warps", warps);
        config.set("num_stages", 3);
        requests.push_back(ada_request(target, config, accumulate, DType::bf16));
      }
    }
  }
  expect_no_spills(requests);
}

TEST_F(DeviceSources, TheKernelsWithoutTilesCompileWithoutSpills) {
  std::vector<CompileRequest> requests;
  for (const Target& target : kTargets) {
    for (const char* in_type : {"IN_TYPE=0", "IN_TYPE=1"}) {
      requests.push_back({target.arch, "quantise.cuh", {"THREADS=512", "VECTORS=3", in_type}, "octile_quantise"});
    }
    requests.push_back({target.arch, "quantise.cuh", {"THREADS=512", "VECTORS=1", "IN_TYPE=0"}, "octile_copy_codes"});
    requests.push_back({target.arch, "stream_floor.cuh", {"UNROLL=4"}, "octile_stream_floor"});
    requests.push_back({target.arch, "slab64.cuh", {}, "octile_rows_to_slabs"});
    requests.push_back({target.arch, "slab64.cuh", {}, "octile_slabs_to_rows"});
  }
  expect_no_spills(requests);
}

TEST_F(DeviceSources, TheMatrixInstructionIsInTheCode) {
  const TileConfig config = test::l40s_tiles().front();
  for (const Target& target : kAdaTargets) {
    const auto ptx = compile_to_ptx(ada_request(target, config, Accumulate::fast, DType::bf16));
    ASSERT_TRUE(ptx) << ptx.error().message;
    // sm_90 has no e4m3 mma.sync: a fragment is unpacked once and multiplied as fp16.
    const bool halves = std::string_view(target.arch) == "sm_90a";
    constexpr const char* kCodes = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32";
    constexpr const char* kHalves = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32";
    EXPECT_THAT(*ptx, HasSubstr(halves ? kHalves : kCodes)) << target.arch;
    EXPECT_EQ(ptx->find(halves ? kCodes : kHalves), std::string::npos) << target.arch;
    EXPECT_THAT(*ptx, HasSubstr("cp.async.cg.shared.global")) << target.arch;
    EXPECT_THAT(*ptx, HasSubstr("ldmatrix.sync.aligned.m8n8.x4")) << target.arch;
    EXPECT_EQ(ptx->find("ld.global.nc"), std::string::npos)
        << target.arch << ": a read-only load may be hoisted above the wait for the kernel that wrote its data";
  }
}

TEST_F(DeviceSources, KernelsOfSm90WaitForTheKernelBeforeThem) {
  for (const CompileRequest& request :
       {CompileRequest{"sm_90a", "quantise.cuh", {"THREADS=512", "VECTORS=1", "IN_TYPE=0"}, "octile_quantise"},
        ada_request(kTargets[1], test::l40s_tiles().front(), Accumulate::fast, DType::bf16)}) {
    const auto ptx = compile_to_ptx(request);
    ASSERT_TRUE(ptx) << ptx.error().message;
    EXPECT_THAT(*ptx, HasSubstr("griddepcontrol.wait")) << request.kernel;
    EXPECT_THAT(*ptx, HasSubstr("griddepcontrol.launch_dependents")) << request.kernel;
  }
}

}  // namespace
}  // namespace octile::cuda
