// SPDX-License-Identifier: Apache-2.0
// Which layout a weight is packed in: the table's, what was asked for, the baseline's with the kill switch off. On the
// families of an H200 that need not be here.
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/known_devices.h"
#include "octile/linear/choose.h"
#include "tables.h"

#include <octile/linear.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace octile {
namespace {

using test::in_table;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

class WeightLayouts : public testing::Test {
 protected:
  WeightLayouts() {
    problem.n = 6144;
    problem.k = 4096;
  }
  // A table with one entry of hopper_decode for M up to 64, and the vendor's own choice above where `layout` allows it.
  TileTable table(const std::string& layout) const {
    Problem in_layout = problem;
    in_layout.layout = layout == "slab64" ? WeightLayout::slab64 : WeightLayout::row_major;
    const KernelFamily& family = *find_family("hopper_decode");
    TableEntry entry = test::entry(1, 64, "hopper_decode", 0, 1.5);
    entry.config = family.heuristic(device, in_layout, 64);
    entry.kernel_source_hash = family.source_hash();
    TileTable made = test::own_table(device, problem, {entry});
    made.key.weight_layout = layout;
    return made;
  }
  Plan plan(const std::string& layout, WeightLayout wanted = WeightLayout::automatic, bool tuned = true) const {
    Problem asked = problem;
    asked.layout = wanted;
    return Plan::from_lookup(&cuda::cuda_backend(), device, asked, in_table(table(layout)), tuned);
  }

  DeviceInfo device = *known_device("NVIDIA_H200");
  Problem problem;
};

TEST_F(WeightLayouts, TheTablesLayoutIsTaken) {
  const Plan slabs = plan("slab64");
  EXPECT_EQ(slabs.table_refusal(), "");
  EXPECT_EQ(slabs.problem().layout, WeightLayout::slab64);
  EXPECT_EQ(slabs.choose(16).kind, ChoiceKind::tile) << slabs.choose(16).reason;
  EXPECT_THAT(slabs.layouts(kForever), ElementsAre("slab64")) << "one copy for every M, also those without an entry";
  EXPECT_EQ(slabs.choose(5000).kind, ChoiceKind::heuristic) << "hopper_decode is not the only family that reads slabs";
  const Plan rows = plan("row_major");
  EXPECT_THAT(rows.layouts(64), ElementsAre("row_major"));
  EXPECT_NE(rows.problem().layout, WeightLayout::slab64);
}

TEST_F(WeightLayouts, ATableOfAnotherLayoutThanAskedForIsNotUsed) {
  const Plan rows = plan("slab64", WeightLayout::row_major);
  EXPECT_THAT(rows.table_refusal(), HasSubstr("weight_layout: the table has slab64, here it is row_major"));
  EXPECT_THAT(rows.layouts(kForever), Not(Contains("slab64")));
  const Plan slabs = plan("row_major", WeightLayout::slab64);
  EXPECT_THAT(slabs.table_refusal(), HasSubstr("weight_layout: the table has row_major, here it is slab64"));
  EXPECT_THAT(slabs.layouts(kForever), ElementsAre("slab64"));
  EXPECT_EQ(slabs.choose(16).kind, ChoiceKind::heuristic);
}

TEST_F(WeightLayouts, TheKillSwitchTakesTheBaselinesLayout) {
  for (const WeightLayout wanted : {WeightLayout::automatic, WeightLayout::slab64}) {
    const Plan off = plan("slab64", wanted, false);
    EXPECT_EQ(off.problem().layout, WeightLayout::row_major);
    EXPECT_THAT(off.layouts(kForever), Not(Contains("slab64")));
  }
}

TEST_F(WeightLayouts, InSlabsAnEntryOfAKernelThatReadsRowsIsSkipped) {
  TileTable mixed = table("slab64");
  TableEntry rows = test::entry(65, 128, "ada_mma", 0, 1.2);
  const KernelFamily& ada = *find_family("ada_mma");
  rows.config = ada.heuristic(device, problem, 128);
  rows.kernel_source_hash = ada.source_hash();
  mixed.entries.push_back(rows);
  const Plan p = Plan::from_lookup(&cuda::cuda_backend(), device, problem, in_table(mixed), true);
  EXPECT_THAT(p.skip_reason(1), HasSubstr("weight layout: the table has slab64, ada_mma reads row_major"));
  EXPECT_THAT(p.layouts(kForever), ElementsAre("slab64"));
}

TEST_F(WeightLayouts, AShapeWithoutWholeSlabsOrADeviceWithoutSuchKernelsIsRefusedWithTheReason) {
  Problem asked = problem;
  asked.layout = WeightLayout::slab64;
  EXPECT_TRUE(check_weight_layout(cuda::cuda_backend(), device, asked));
  asked.k = 4100;
  const auto narrow = check_weight_layout(cuda::cuda_backend(), device, asked);
  ASSERT_FALSE(narrow);
  EXPECT_EQ(narrow.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(narrow.error().message, HasSubstr("want N a multiple of 64 and K of 128, got N = 6144, K = 4100"));
  asked.layout = WeightLayout::row_major;
  EXPECT_TRUE(check_weight_layout(cuda::cuda_backend(), device, asked));
  asked = problem;
  asked.layout = WeightLayout::slab64;
  const auto ada = check_weight_layout(cuda::cuda_backend(), *known_device("NVIDIA_L40S"), asked);
  ASSERT_FALSE(ada);
  EXPECT_EQ(ada.error().code, ErrorCode::unavailable);
  EXPECT_THAT(ada.error().message, HasSubstr("NVIDIA_L40S has no kernel family that reads weights in layout slab64"));
}

TEST_F(WeightLayouts, OnACpuSlabsAreRefused) {
  const std::vector<std::uint8_t> codes(64 * 128, 0x38);
  const float scale = 1.0F;
  WeightSource source;
  source.n = 64;
  source.k = 128;
  source.codes = codes.data();
  source.scales = &scale;
  source.scale_count = 1;
  WeightOptions options;
  options.layout = WeightLayout::slab64;
  const auto refused = Fp8Weight::create(source, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("layout slab64"));
  options.layout = WeightLayout::row_major;
  const auto weight = Fp8Weight::create(source, options);
  ASSERT_TRUE(weight) << weight.error().message;
  EXPECT_NE(weight->layout(), "slab64");
  std::vector<std::uint8_t> rows(codes.size());
  UnpackTarget target;
  target.codes = rows.data();
  const auto unpacked = weight->unpack(target);
  ASSERT_FALSE(unpacked) << "a CPU's layouts have no way back";
  EXPECT_EQ(unpacked.error().code, ErrorCode::unavailable);
  target.codes = nullptr;
  EXPECT_EQ(weight->unpack(target).error().code, ErrorCode::invalid_argument);
  target.codes = rows.data();
  target.row_stride = 127;
  EXPECT_THAT(weight->unpack(target).error().message, HasSubstr("row stride 127"));
}

}  // namespace
}  // namespace octile
