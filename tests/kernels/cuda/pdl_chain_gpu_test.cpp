// SPDX-License-Identifier: Apache-2.0
// Chains of quantise -> product under programmatic dependent launch with alternating inputs and one shared workspace, bit
// for bit against the chain without it: a missing wait shows here, not in a stand-alone call. Skipped without a GPU.
#include "octile/kernels/cuda/ada_mma_family.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/cuda/hopper_decode_family.h"
#include "octile/kernels/cuda/hopper_wgmma_family.h"
#include "support/gpu.h"
#include "support/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace octile::cuda {
namespace {

using test::DeviceBytes;

constexpr std::int64_t kN = 4096;
constexpr std::int64_t kK = 4096;
constexpr int kCalls = 60;

// The outputs of kCalls linears, one enqueued behind the other, whose inputs alternate.
std::vector<std::vector<unsigned char>> run_chain(const KernelFamily& family, TileConfig config, std::int64_t pdl,
                                                  std::int64_t m, const PackedWeight& weight,
                                                  const std::vector<std::unique_ptr<DeviceBytes>>& inputs) {
  config.set("PDL", pdl);
  Problem problem;
  problem.n = kN;
  problem.k = kK;
  const auto kernel = family.prepare(test::gpu().context->info, problem, config, m);
  if (!kernel) {
    ADD_FAILURE() << kernel.error().message;
    return {};
  }
  DeviceBytes workspace((*kernel)->workspace_bytes(m));
  workspace.fill(0xFF);
  std::vector<std::unique_ptr<DeviceBytes>> outputs;
  for (int i = 0; i < kCalls; ++i) {
    outputs.push_back(std::make_unique<DeviceBytes>(m * kN * 2));
    outputs.back()->fill(0xFF);
  }
  CUstream stream = nullptr;
  const CurrentContext current(*test::gpu().context);
  EXPECT_EQ(test::gpu().context->driver->stream_create(&stream, 1), CUDA_SUCCESS);  // Non-blocking.
  for (int i = 0; i < kCalls; ++i) {
    LaunchArgs args;
    args.activation.x = {inputs[static_cast<std::size_t>(i) % inputs.size()]->data(), DType::bf16, m, kK, kK, 1};
    args.y = {outputs[static_cast<std::size_t>(i)]->data(), DType::bf16, m, kN, kN, 1};
    args.workspace = workspace.data();
    args.workspace_bytes = workspace.bytes();
    args.stream = stream;
    const auto ran = (*kernel)->run(weight, args);
    EXPECT_TRUE(ran) << ran.error().message;
  }
  EXPECT_EQ(test::gpu().context->driver->stream_synchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(test::gpu().context->driver->stream_destroy(stream), CUDA_SUCCESS);
  std::vector<std::vector<unsigned char>> results;
  for (const auto& output : outputs) {
    results.emplace_back(static_cast<std::size_t>(output->bytes()));
    output->download(results.back().data());
  }
  return results;
}

void expect_same_bits_in_every_mode(const KernelFamily& family, std::int64_t m) {
  if (const auto available = family.available(test::gpu().context->info); !available) {
    GTEST_SKIP() << available.error().message;
  }
  SCOPED_TRACE(test::seed_text());
  const std::vector<std::uint8_t> codes = test::random_codes(kN * kK);
  const std::vector<float> scales = test::random_scales(kN);
  WeightSource source;
  source.n = kN;
  source.k = kK;
  source.codes = codes.data();
  source.scales = scales.data();
  source.scale_count = kN;
  const auto weight = pack_row_major(*test::gpu().context, source);
  ASSERT_TRUE(weight) << weight.error().message;
  std::vector<std::unique_ptr<DeviceBytes>> inputs;
  for (const float sigma : {1.0F, 30.0F, 0.01F}) {
    inputs.push_back(std::make_unique<DeviceBytes>(test::as_bytes(test::normals(m * kK, sigma), DType::bf16)));
  }
  Problem problem;
  problem.n = kN;
  problem.k = kK;
  auto configs = family.space(test::gpu().context->info, problem, m);
  configs.resize(std::min<std::size_t>(configs.size(), 6));
  for (const TileConfig& config : configs) {
    const auto plain = run_chain(family, config, 0, m, **weight, inputs);
    ASSERT_EQ(plain.size(), static_cast<std::size_t>(kCalls));
    ASSERT_NE(plain[0], plain[1]) << "the inputs differ, so must the outputs";
    for (const std::int64_t mode : {1, 2}) {
      const auto chained = run_chain(family, config, mode, m, **weight, inputs);
      ASSERT_EQ(chained.size(), plain.size());
      for (std::size_t i = 0; i < plain.size(); ++i) {
        ASSERT_EQ(chained[i], plain[i]) << config.to_json() << ", PDL mode " << mode << ", call " << i;
      }
    }
  }
}

TEST(PdlChain, HopperDecodeGivesTheBitsOfTheChainWithout) {
  OCTILE_REQUIRE_GPU();
  for (const std::int64_t m : {1, 16, 64}) {
    expect_same_bits_in_every_mode(hopper_decode_family(), m);
  }
}

TEST(PdlChain, HopperWgmmaGivesTheBitsOfTheChainWithout) {
  OCTILE_REQUIRE_GPU();
  for (const std::int64_t m : {80, 300}) {
    expect_same_bits_in_every_mode(hopper_wgmma_family(), m);
  }
}

TEST(PdlChain, AdaMmaGivesTheBitsOfTheChainWithout) {
  OCTILE_REQUIRE_GPU();
  for (const std::int64_t m : {1, 16}) {
    expect_same_bits_in_every_mode(ada_mma_family(), m);
  }
}

}  // namespace
}  // namespace octile::cuda
