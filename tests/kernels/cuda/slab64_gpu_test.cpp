// SPDX-License-Identifier: Apache-2.0
// Weights in slabs on a GPU: what the permutation writes, the way back, and products whose bits are those of the same kernel
// on row-major weights. Skipped without one.
#include "family_under_test.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/cuda_weight.h"
#include "support/product_case.h"

#include <gtest/gtest.h>
#include <octile/linear.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

namespace octile::cuda {
namespace {

using test::DeviceBytes;
using test::fitted;
using test::ProductCase;
using test::ProductShape;

class SlabsOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    OCTILE_REQUIRE_GPU();
    if (const auto compiler = nvrtc(); !compiler) {
      GTEST_SKIP() << compiler.error().message;
    }
    trace_.emplace(__FILE__, __LINE__, test::seed_text());
  }
  static const DeviceContext& context() { return *test::gpu().context; }
  static bool has_hopper() { return hopper_decode_family().available(context().info).has_value(); }

 private:
  std::optional<testing::ScopedTrace> trace_;
};

struct Source {
  Source(std::int64_t its_n, std::int64_t its_k, std::int64_t padding)
      : n(its_n), k(its_k), stride(k + padding), codes(test::random_codes(n * stride)), scales(test::random_scales(n)) {}
  WeightSource on_host() const {
    WeightSource source;
    source.n = n;
    source.k = k;
    source.codes = codes.data();
    source.row_stride = stride;
    source.scales = scales.data();
    source.scale_count = n;
    return source;
  }
  std::uint8_t at(std::int64_t channel, std::int64_t column) const {
    return codes[static_cast<std::size_t>(channel * stride + column)];
  }

  std::int64_t n, k, stride;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
};

void expect_in_slabs(const CudaWeight& weight, const Source& source) {
  std::vector<std::uint8_t> packed(static_cast<std::size_t>(source.n * source.k));
  ASSERT_TRUE(download_bytes(weight.context(), packed.data(), weight.codes(), source.n * source.k));
  for (std::int64_t channel = 0; channel < source.n; ++channel) {
    for (std::int64_t column = 0; column < source.k; ++column) {
      ASSERT_EQ(packed[static_cast<std::size_t>(slab64_offset(channel, column, source.k))], source.at(channel, column))
          << channel << ", " << column;
    }
  }
}

// Rows with and without padding, at multiples of 16 bytes and not; of one slab, of several, and of more than the staging
// buffer holds at once.
TEST_F(SlabsOnGpu, PackingUpdatingAndUnpackingKeepEveryByte) {
  for (const auto& [n, k, padding] : {std::array{64, 128, 0}, {192, 384, 16}, {128, 256, 5}, {8256, 4096, 0}}) {
    SCOPED_TRACE(testing::Message() << n << " x " << k << " padding " << padding);
    const Source source(n, k, padding);
    const auto weight = pack_slab64(context(), source.on_host());
    ASSERT_TRUE(weight) << weight.error().message;
    expect_in_slabs(**weight, source);

    std::vector<std::uint8_t> rows(static_cast<std::size_t>(n * k), 0xEE);
    std::vector<float> scales(static_cast<std::size_t>(n));
    UnpackTarget target;
    target.codes = rows.data();
    target.scales = scales.data();
    auto unpacked = unpack_weight(**weight, target, nullptr);
    ASSERT_TRUE(unpacked) << unpacked.error().message;
    for (std::int64_t channel = 0; channel < n; ++channel) {
      ASSERT_EQ(
          std::memcmp(rows.data() + channel * k, source.codes.data() + channel * source.stride, static_cast<std::size_t>(k)),
          0)
          << channel;
    }
    EXPECT_EQ(scales, source.scales);

    // Other codes, from the device, and back to it with the rows' own stride.
    const Source other(n, k, padding);
    const DeviceBytes codes(other.codes);
    const DeviceBytes other_scales(other.scales);
    WeightSource on_device = other.on_host();
    on_device.codes = codes.data();
    on_device.scales = static_cast<const float*>(other_scales.data());
    const auto updated = update_weight(**weight, on_device, SourceMemory::device, nullptr);
    ASSERT_TRUE(updated) << updated.error().message;
    expect_in_slabs(**weight, other);
    DeviceBytes back(static_cast<std::int64_t>(other.codes.size()));
    back.fill(0xEE);
    target = {back.data(), other.stride, nullptr, SourceMemory::device};
    unpacked = unpack_weight(**weight, target, nullptr);
    ASSERT_TRUE(unpacked) << unpacked.error().message;
    std::vector<std::uint8_t> host(other.codes.size());
    back.download(host.data());
    for (std::int64_t channel = 0; channel < n; ++channel) {
      for (std::int64_t column = 0; column < other.stride; ++column) {
        const auto i = static_cast<std::size_t>(channel * other.stride + column);
        ASSERT_EQ(host[i], column < k ? other.codes[i] : 0xEE) << channel << ", " << column;
      }
    }
  }
}

// Chunks that begin beyond K arrive as zeros and not as the next slab's codes: the last chunk of K = 1408 is the eleventh,
// and the codes around it are NaN. The bits are those of the row-major kernel, under every config that is legal in both.
TEST_F(SlabsOnGpu, EveryConfigHasTheBitsOfRowMajorWeights) {
  if (!has_hopper()) {
    GTEST_SKIP() << "no Hopper GPU";
  }
  ProductShape shape;
  shape.m = 70;
  shape.n = 448;
  shape.k = 1408;
  shape.bias = true;
  for (const Accumulate accumulate : {Accumulate::fast, Accumulate::precise}) {
    shape.accumulate = accumulate;
    ProductCase slabs(fitted(shape, WeightLayout::slab64));
    ProductCase rows(fitted(shape, WeightLayout::automatic));
    for (std::int64_t channel = 64; channel < 128; ++channel) {
      std::fill_n(slabs.codes_w.begin() + channel * shape.k, shape.k, std::uint8_t{0x7F});
    }
    rows.codes_x = slabs.codes_x;
    rows.scales_x = slabs.scales_x;
    rows.codes_w = slabs.codes_w;
    rows.scales_w = slabs.scales_w;
    rows.bias = slabs.bias;
    slabs.upload();
    rows.upload();
    for (const FamilyUnderTest& tested : families_and_layouts_under_test()) {
      if (tested.layout != WeightLayout::slab64) {
        continue;
      }
      const auto configs = tested.every_kind(slabs.problem(), shape.m);
      std::vector<WarmupItem> items;
      for (const TileConfig& config : configs) {
        items.push_back({&tested.family(), slabs.problem(), config});
        items.push_back({&tested.family(), rows.problem(), config});
      }
      for (const Error& error : warm_up(context().info, items, {}).failures) {
        ADD_FAILURE() << error.message;
      }
      EXPECT_GT(configs.size(), accumulate == Accumulate::fast ? 20U : 10U);  // Promotion wants registers.
      for (const TileConfig& config : configs) {
        const auto of_slabs = slabs.prepare(tested.family(), config);
        const auto of_rows = rows.prepare(tested.family(), config);
        ASSERT_TRUE(of_slabs != nullptr && of_rows != nullptr);
        EXPECT_TRUE(slabs.run(*of_slabs) == rows.run(*of_rows))
            << tested.name << ' ' << config.to_json() << ", accumulate " << to_string(accumulate);
      }
    }
  }
}

// The public way: a weight asked for in slabs, a linear of it, new weights from both memories, and the codes back.
TEST_F(SlabsOnGpu, ALinearOfAWeightInSlabsServesAndIsUpdatedAndUnpacked) {
  if (!has_hopper()) {
    GTEST_SKIP() << "no Hopper GPU";
  }
  constexpr std::int64_t kN = 1024;
  constexpr std::int64_t kK = 2048;
  constexpr std::int64_t kM = 9;
  const env::ScopedOverride no_tables("OCTILE_TABLE_PATH", "");
  const std::array<Source, 2> sources = {Source(kN, kK, 0), Source(kN, kK, 0)};
  WeightOptions options;
  options.device = context().info.id;
  options.layout = WeightLayout::slab64;
  auto weight = Fp8Weight::create(sources[0].on_host(), options);
  ASSERT_TRUE(weight) << weight.error().message;
  EXPECT_EQ(weight->layout(), "slab64");
  EXPECT_EQ(weight->bytes(), kN * kK + kN * 4) << "one copy";
  auto linear = Fp8Linear::create(*weight);
  ASSERT_TRUE(linear) << linear.error().message;
  ASSERT_TRUE(linear->prepare(kM));
  const DeviceBytes x(test::as_bytes(test::normals(kM * kK, 1.0F), DType::bf16));
  DeviceBytes workspace(linear->workspace_bytes(kM));
  const auto run = [&] {
    DeviceBytes y(kM * kN * 2);
    y.fill(0xFF);
    const auto ran = linear->run({x.data(), DType::bf16, kM, kK, kK, 1}, {y.data(), DType::bf16, kM, kN, kN, 1},
                                 workspace.data(), workspace.bytes(), nullptr);
    EXPECT_TRUE(ran) << ran.error().message;
    std::vector<unsigned char> bytes(static_cast<std::size_t>(y.bytes()));
    y.download(bytes.data());
    return bytes;
  };
  const auto first = run();
  ASSERT_TRUE(weight->update(sources[1].on_host()));
  const auto second = run();
  EXPECT_NE(first, second);
  const DeviceBytes codes(sources[0].codes);
  const DeviceBytes scales(sources[0].scales);
  WeightSource on_device = sources[0].on_host();
  on_device.codes = codes.data();
  on_device.scales = scales.data();
  ASSERT_TRUE(weight->update(on_device, SourceMemory::device));
  EXPECT_EQ(run(), first);
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(kN * kK));
  UnpackTarget target;
  target.codes = rows.data();
  ASSERT_TRUE(weight->unpack(target));
  EXPECT_EQ(rows, sources[0].codes);
}

}  // namespace
}  // namespace octile::cuda
