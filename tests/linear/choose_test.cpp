// SPDX-License-Identifier: Apache-2.0
// The look-up order of docs/tables.md on a fake device: what serves, what is skipped, and what is said about it.
#include "octile/linear/choose.h"

#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/known_devices.h"
#include "octile/linear/explain.h"
#include "support/fake_backend.h"
#include "support/log_capture.h"
#include "support/random.h"
#include "tables.h"

#include <octile/octile.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace octile {
namespace {

using test::baseline_entry;
using test::entry;
using test::FakeBackend;
using test::FakeFamily;
using test::in_table;
using test::own_table;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

// One family of ours and a vendor on a CPU, unless a test adds more.
class Choosing : public testing::Test {
 protected:
  Choosing() : ours(backend.add("ours")), vendor(backend.add_vendor("vendor")) {
    problem.n = 96;
    problem.k = 64;
  }
  Plan plan(TileTable table) const {
    return Plan::from_lookup(&backend, backend.info, problem, in_table(std::move(table)), true);
  }
  TileTable table(std::vector<TableEntry> entries) const { return own_table(backend.info, problem, std::move(entries)); }

  FakeBackend backend;
  FakeFamily& ours;
  FakeFamily& vendor;
  Problem problem;
};

TEST_F(Choosing, TheIntervalThatHoldsMServesWithItsKeyAndItsProof) {
  const Plan p = plan(table({entry(1, 16, "ours", 8, 1.5), entry(17, 64, "ours", 32, 1.25)}));
  const Choice low = p.choose(16);
  const Choice high = p.choose(17);
  EXPECT_EQ(low.kind, ChoiceKind::tile);
  EXPECT_EQ(low.family, &ours);
  EXPECT_EQ(low.kernel, "ours");
  EXPECT_EQ(low.config.get("tile", 0), 8);
  EXPECT_EQ(low.table_key, "[1, 16]");
  EXPECT_EQ(high.config.get("tile", 0), 32);
  EXPECT_EQ(high.table_key, "[17, 64]");
  EXPECT_FALSE(low.stale);
  const Explanation explanation = explain_plan(p, 17, 1234);
  EXPECT_EQ(explanation.choice, "tile");
  EXPECT_EQ(explanation.bytes, 1234);
  EXPECT_THAT(explanation.table_file, HasSubstr("fake.octile.json"));
  EXPECT_THAT(explanation.measured, HasSubstr("\"mid\":1.25"));
  EXPECT_THAT(explanation.reason, HasSubstr("1.25x the baseline"));
}

TEST_F(Choosing, OurFamiliesAloneAreTheTablesTilesAndElseTheHeuristic) {
  const Plan p = plan(table({entry(1, 16, "ours", 8, 1.5), baseline_entry(17, 64)}));
  EXPECT_EQ(p.own_choice(16).kind, ChoiceKind::tile);
  EXPECT_EQ(p.own_choice(16).config.get("tile", 0), 8);
  for (const std::int64_t m : {17, 1000}) {
    const Choice own = p.own_choice(m);
    EXPECT_EQ(p.choose(m).family, &vendor);
    EXPECT_EQ(own.kind, ChoiceKind::heuristic);
    EXPECT_EQ(own.family, &ours);
    EXPECT_THAT(own.reason, HasSubstr("our own families alone"));
  }
}

// A limit of multiprocessors.
class ChoosingHeld : public Choosing {
 protected:
  ChoosingHeld() {
    problem.max_sms = 8;
    vendor.held_up_to_m = kForever;
  }
};

TEST_F(ChoosingHeld, AnEntryThatKeepsToTheLimitServesAndSaysSo) {
  ours.held_up_to_m = 64;
  const Plan p = plan(table({entry(1, 64, "ours", 8, 1.5)}));
  const Choice choice = p.choose(3);
  EXPECT_EQ(choice.kind, ChoiceKind::tile);
  EXPECT_THAT(choice.reason,
              testing::AllOf(HasSubstr("measured on all multiprocessors"), HasSubstr("held to 8 multiprocessors")));
}

TEST_F(ChoosingHeld, AnEntryThatCannotBeHeldAtEveryMThatItServesIsSkippedForWhatCan) {
  ours.held_up_to_m = 63;
  const Plan p = plan(table({entry(1, 64, "ours", 8, 1.5)}));
  EXPECT_THAT(p.skip_reason(0), HasSubstr("cannot be held to 8 multiprocessors"));
  const Choice choice = p.choose(3);
  EXPECT_EQ(choice.kind, ChoiceKind::baseline);
  EXPECT_EQ(choice.family, &vendor);
  EXPECT_THAT(choice.reason, testing::AllOf(HasSubstr("cannot be held"), HasSubstr("vendor is asked to keep to 8")));
}

TEST_F(ChoosingHeld, AFieldsLastKeyServesEveryMAndMustBeHeldThere) {
  ours.held_up_to_m = 1 << 20;
  TileTable t = table({entry(16, 16, "ours", 8)});
  t.field_format = true;
  EXPECT_NE(plan(std::move(t)).skip_reason(0), "");
}

TEST_F(ChoosingHeld, WithoutABaselineThatCanBeHeldAHeuristicServesAsFarAsOneCan) {
  vendor.held_up_to_m.reset();
  ours.held_up_to_m = 32;
  const Plan p = plan(table({baseline_entry(1, 4096)}));
  EXPECT_EQ(p.choose(20).family, &ours);
  EXPECT_THAT(p.choose(20).reason, HasSubstr("vendor cannot be held to 8 multiprocessors"));
  const Choice none = p.choose(4096);
  EXPECT_EQ(none.family, nullptr);
  EXPECT_THAT(none.reason, HasSubstr("no kernel family can be held to 8 multiprocessors at M = 4096"));
}

TEST_F(ChoosingHeld, WhereAGapIsTheBaselinesFromSomeMOnItsLayoutIsReadToo) {
  ours.held_up_to_m = 100;
  const Plan p = plan(table({entry(1, 16, "ours", 8, 1.5)}));
  EXPECT_EQ(p.choose(17).family, &ours);
  EXPECT_EQ(p.choose(200).family, &vendor);
  EXPECT_THAT(p.layouts(kForever), ElementsAre("packed", "vendor_layout"));
  EXPECT_THAT(p.layouts(50), ElementsAre("packed"));
}

TEST_F(ChoosingHeld, WithTheKillSwitchOffTheBaselineServesAndSaysThatItIsNotHeld) {
  vendor.held_up_to_m.reset();
  const Plan p = Plan::from_lookup(&backend, backend.info, problem, {}, false);
  EXPECT_EQ(p.choose(8).family, &vendor);
  EXPECT_THAT(p.choose(8).reason, testing::AllOf(HasSubstr("kill switch"), HasSubstr("not held to 8 multiprocessors")));
}

TEST_F(ChoosingHeld, ATableMeasuredWithALimitServesThatLimitAndLooserOnes) {
  ours.held_up_to_m = kForever;
  TileTable t = table({entry(1, 64, "ours", 8, 1.5)});
  t.key.max_sms = 8;
  EXPECT_EQ(plan(t).choose(1).kind, ChoiceKind::tile);
  EXPECT_EQ(plan(t).choose(1).reason.find("measured on all"), std::string::npos);
  problem.max_sms = 9;
  EXPECT_EQ(plan(t).choose(1).kind, ChoiceKind::tile);
  EXPECT_THAT(plan(t).choose(1).reason, testing::AllOf(HasSubstr("measured on 8"), HasSubstr("held to 9 multiprocessors")));
  for (const int other : {0, 7}) {
    problem.max_sms = other;
    EXPECT_THAT(plan(t).table_refusal(), HasSubstr("max_sms: the table has 8, here it is " + std::to_string(other)));
    EXPECT_EQ(plan(t).choose(1).kind, ChoiceKind::baseline);
  }
}

TEST_F(Choosing, KillSwitchOffIsTheBaselineAndReadsNoTable) {
  const Plan p = Plan::from_lookup(&backend, backend.info, problem, in_table(table({entry(1, 64, "ours", 8, 1.5)})), false);
  EXPECT_EQ(p.choose(8).kind, ChoiceKind::baseline);
  EXPECT_EQ(p.choose(8).family, &vendor);
  EXPECT_EQ(p.lookup().table, nullptr);
  EXPECT_THAT(p.choose(8).reason, HasSubstr("kill switch"));
  EXPECT_THAT(p.layouts(kForever), ElementsAre("vendor_layout"));
}

TEST_F(Choosing, ABaselineEntryIsTheBaseline) {
  const Plan p = plan(table({entry(1, 16, "ours", 8, 1.5), baseline_entry(17, 64)}));
  const Choice choice = p.choose(40);
  EXPECT_EQ(choice.kind, ChoiceKind::baseline);
  EXPECT_EQ(choice.kernel, "vendor");
  EXPECT_EQ(choice.table_key, "[17, 64]");
  EXPECT_THAT(choice.reason, HasSubstr("the baseline won"));
}

TEST_F(Choosing, AGapIsTheCostModelsChoiceWhereItBeatTheBaselineWhereverMeasured) {
  const Plan p = plan(table({entry(1, 16, "ours", 8, 1.5), entry(32, 64, "ours", 32, 1.1)}));
  for (const std::int64_t m : {17, 31, 65, 100000}) {
    const Choice choice = p.choose(m);
    EXPECT_EQ(choice.kind, ChoiceKind::heuristic) << m;
    EXPECT_EQ(choice.family, &ours) << m;
    EXPECT_EQ(choice.entry, nullptr) << m;
    EXPECT_THAT(choice.reason, HasSubstr("beat the baseline wherever")) << m;
  }
  EXPECT_THAT(p.layouts(kForever), ElementsAre("packed"));
}

TEST_F(Choosing, AGapIsTheBaselineWhereItWonAnywhereOrNothingWasMeasured) {
  const TileTable lost_one = table({entry(1, 16, "ours", 8, 1.5), baseline_entry(32, 64)});
  const TileTable tied_one = table({entry(1, 16, "ours", 8, 1.5), entry(32, 64, "ours", 8, 1.0)});
  const TileTable unmeasured = table({entry(1, 16, "ours", 8)});
  TileTable inferred = unmeasured;
  inferred.entries[0].inferred = true;
  for (const TileTable& each : {lost_one, tied_one, unmeasured, inferred}) {
    const Choice choice = plan(each).choose(20);
    EXPECT_EQ(choice.kind, ChoiceKind::baseline);
    EXPECT_THAT(choice.reason, HasSubstr("no measured interval"));
  }
}

TEST_F(Choosing, PartsOfAnIntervalThatMergingCutHaveItsProofInGapsToo) {
  TileTable cut = table({entry(1, 16, "ours", 8, 1.5)});
  cut.entries[0].inferred = true;
  EXPECT_EQ(plan(cut).choose(20).kind, ChoiceKind::heuristic);
}

TEST_F(Choosing, AGapIsTheUpperNeighboursKernelWhereItTakesLessThanTheBaselineDidBelow) {
  TableEntry lost = test::timed_entry(256, 256, kBaselineKernel, 0, 300, 300);
  lost.ratio.reset();
  const Plan p = plan(table({test::timed_entry(1, 8, "ours", 8, 10, 20), test::timed_entry(16, 16, "ours", 16, 12, 21),
                             test::timed_entry(64, 64, "ours", 64, 20.7, 30), lost}));
  for (const std::int64_t m : {9, 15}) {
    const Choice choice = p.choose(m);
    EXPECT_EQ(choice.kind, ChoiceKind::tile) << m;
    EXPECT_EQ(choice.config.get("tile", 0), 16) << m;
    EXPECT_EQ(choice.table_key, "[16, 16]") << m;
    EXPECT_EQ(choice.entry, nullptr) << "what was not measured is no entry's";
    EXPECT_THAT(choice.reason, HasSubstr("inferred: it takes 12 us there, the baseline 20 us already in [1, 8]")) << m;
  }
  // 20.7 us are not 5 % less than 21; and what the baseline won says nothing of others.
  for (const std::int64_t m : {17, 63, 65, 255, 257}) {
    EXPECT_EQ(p.choose(m).kind, ChoiceKind::baseline) << m;
  }
}

TEST_F(Choosing, AGapIsNotTheUpperNeighboursWhereThatIsNoProof) {
  const auto gap = [&](const auto& change) {
    std::vector<TableEntry> entries = {test::timed_entry(1, 8, "ours", 8, 10, 20),
                                       test::timed_entry(16, 16, "ours", 16, 10, 20)};
    change(entries[0], entries[1]);
    entries.push_back(baseline_entry(300, 300));  // No cost model is trusted.
    return plan(table(std::move(entries))).choose(12).kind;
  };
  EXPECT_EQ(gap([](TableEntry&, TableEntry&) {}), ChoiceKind::tile);
  // A part of a measured interval has the whole one's proof.
  EXPECT_EQ(gap([](TableEntry& below, TableEntry& above) { below.inferred = above.inferred = true; }), ChoiceKind::tile);
  EXPECT_EQ(gap([](TableEntry& below, TableEntry&) { below.baseline_us.reset(); }), ChoiceKind::baseline);
  EXPECT_EQ(gap([](TableEntry&, TableEntry& above) { above.us.reset(); }), ChoiceKind::baseline);
  EXPECT_EQ(gap([](TableEntry&, TableEntry& above) { above.baseline_us = 10.2; }), ChoiceKind::baseline);
  EXPECT_EQ(gap([](TableEntry&, TableEntry& above) { above.ratio = Ratio{1.02, 0.99, 1.05}; }), ChoiceKind::baseline);
  EXPECT_EQ(gap([](TableEntry&, TableEntry& above) { above.config.set("tile", -1); }), ChoiceKind::baseline);
  EXPECT_EQ(gap([](TableEntry&, TableEntry& above) { above.kernel_source_hash = "another"; }), ChoiceKind::baseline);
  // Above the last entry and below the first there is no second neighbour.
  const Plan p = plan(table({test::timed_entry(4, 8, "ours", 8, 10, 20), baseline_entry(300, 300)}));
  EXPECT_EQ(p.choose(3).kind, ChoiceKind::baseline);
  EXPECT_EQ(p.choose(301).kind, ChoiceKind::baseline);
}

TEST_F(Choosing, ATrustedCostModelFillsAGapUnlessItsNeighboursAreAsFastAsEachOther) {
  const Plan p = plan(table({test::timed_entry(1, 8, "ours", 8, 10, 40), test::timed_entry(16, 16, "ours", 16, 11, 40),
                             test::timed_entry(64, 64, "ours", 64, 22, 60)}));
  EXPECT_EQ(p.choose(12).kind, ChoiceKind::tile);
  EXPECT_THAT(p.choose(12).reason, HasSubstr("the best 10 us"));
  EXPECT_EQ(p.choose(40).kind, ChoiceKind::heuristic);
  // Where the device is not here, so is the cost model: no other kernel is named in its place.
  TileTable same =
      table({test::timed_entry(1, 8, "reference", 8, 10, 40), test::timed_entry(16, 16, "reference", 16, 11, 40),
             test::timed_entry(64, 64, "reference", 64, 22, 60)});
  for (TableEntry& each : same.entries) {
    each.config = find_family("reference")->heuristic(backend.info, problem, each.m_lo);
  }
  same.key.weight_layout.clear();
  const Plan absent = Plan::from_lookup(nullptr, backend.info, problem, in_table(same), true);
  for (const std::int64_t m : {40, 65}) {
    EXPECT_EQ(absent.choose(m).kind, ChoiceKind::heuristic);
    EXPECT_EQ(absent.choose(m).kernel, "unknown");
  }
}

TEST_F(Choosing, TheCostModelChoosesAmongTheFamiliesThatBeatTheBaseline) {
  FakeFamily& faster = backend.add("faster");
  FakeFamily& unproven = backend.add("unproven");
  faster.us_per_row = 0.5;
  unproven.us_per_row = 0.1;
  const Plan p = plan(table({entry(1, 16, "ours", 8, 1.5), entry(17, 32, "faster", 8, 1.5)}));
  EXPECT_EQ(p.choose(50).family, &faster);
}

TEST_F(Choosing, WithoutATableTheBaselineServesAndANearDeviceIsNamedOnly) {
  TableLookup lookup;
  lookup.near_device = "Fake_CPU-avx2-4t";
  const Plan p = Plan::from_lookup(&backend, backend.info, problem, lookup, true);
  const Choice choice = p.choose(7);
  EXPECT_EQ(choice.kind, ChoiceKind::baseline);
  EXPECT_THAT(choice.reason, HasSubstr("untuned: no table for Fake_CPU-avx2-2t, N = 96, K = 64"));
  EXPECT_THAT(choice.reason, HasSubstr("Fake_CPU-avx2-4t has one, which is not used"));
  EXPECT_THAT(explain_plan(p, 7).table_file, IsEmpty());
  EXPECT_EQ(explain_plan(p, 7).measured, "null");
}

TEST_F(Choosing, WithoutABaselineTheHeuristicServesAndSaysWhy) {
  backend.its_baseline = nullptr;
  backend.its_vendors = {{"vendor", "", false, "libvendor.so is not installed"}};
  const Plan untuned = Plan::from_lookup(&backend, backend.info, problem, {}, true);
  EXPECT_EQ(untuned.choose(7).kind, ChoiceKind::heuristic);
  EXPECT_EQ(untuned.choose(7).family, &ours);
  EXPECT_THAT(untuned.choose(7).reason, HasSubstr("libvendor.so is not installed"));
  const Plan off = Plan::from_lookup(&backend, backend.info, problem, {}, false);
  EXPECT_EQ(off.choose(7).kind, ChoiceKind::heuristic);
  EXPECT_EQ(plan(table({baseline_entry(1, 64)})).choose(7).kind, ChoiceKind::heuristic);
  EXPECT_THAT(off.layouts(kForever), ElementsAre("packed"));
}

TEST_F(Choosing, WithNoFamilyAtAllTheChoiceIsNoneWithAReason) {
  backend.its_baseline = nullptr;
  ours.unavailable = "needs an instruction that is not here";
  const Plan p = Plan::from_lookup(&backend, backend.info, problem, {}, true);
  EXPECT_EQ(p.choose(7).family, nullptr);
  EXPECT_EQ(p.choose(7).kernel, "none");
  EXPECT_THAT(p.layouts(kForever), IsEmpty());
}

TEST_F(Choosing, SkippedEntriesAreSaidOnceAFileAndTheBaselineServes) {
  const test::LogCapture log;
  TileTable two = table({entry(1, 16, "ours", 1000, 1.5), entry(17, 64, "nobody", 8, 1.5), entry(65, 80, "ours", 8, 1.5)});
  two.file = "/tables/said-once.octile.json";
  const Plan p = plan(two);
  plan(two);
  EXPECT_EQ(p.choose(1).kind, ChoiceKind::baseline);
  EXPECT_EQ(p.choose(1).table_key, "[1, 16]");
  EXPECT_EQ(p.choose(1).entry, nullptr);
  EXPECT_THAT(p.choose(1).reason, HasSubstr("tile = 1000 is out of range [1, 256]"));
  EXPECT_THAT(p.choose(17).reason, HasSubstr("nobody is unknown"));
  EXPECT_EQ(p.choose(65).kind, ChoiceKind::tile);
  EXPECT_EQ(log.warnings_with("said-once"), 1);
  EXPECT_EQ(log.warnings_with("2 of 3 entries"), 1);
  EXPECT_THAT(p.skip_reason(0), HasSubstr("out of range"));
  EXPECT_THAT(p.skip_reason(2), IsEmpty());
}

TEST_F(Choosing, ASkippedEntryWithoutABaselineIsTheHeuristic) {
  backend.its_baseline = nullptr;
  const Choice choice = plan(table({entry(1, 16, "nobody", 8, 1.5)})).choose(3);
  EXPECT_EQ(choice.kind, ChoiceKind::heuristic);
  EXPECT_THAT(choice.reason, HasSubstr("nobody is unknown"));
  EXPECT_THAT(choice.reason, HasSubstr("heuristic of ours serves"));
}

TEST_F(Choosing, AnotherSourceHashSkipsTheEntry) {
  TileTable t = table({entry(1, 16, "ours", 8, 1.5)});
  t.entries[0].kernel_source_hash = "an-older-hash";
  EXPECT_EQ(plan(t).choose(1).kind, ChoiceKind::baseline);
  EXPECT_THAT(plan(t).choose(1).reason, HasSubstr("measured with an-older-hash, this build has hash-of-fake"));
  t.entries[0].kernel_source_hash = ours.source_hash();
  EXPECT_EQ(plan(t).choose(1).kind, ChoiceKind::tile);
}

TEST_F(Choosing, AnotherVendorVersionSkipsTheVendorsEntry) {
  TileTable t = table({entry(1, 16, "vendor", 8, 1.5)});
  t.entries[0].vendor_version = "3.0";
  EXPECT_EQ(plan(t).choose(1).kind, ChoiceKind::baseline);
  EXPECT_THAT(plan(t).choose(1).reason, HasSubstr("measured with 3.0, here it is 3.1"));
  t.entries[0].vendor_version = "3.1";
  EXPECT_EQ(plan(t).choose(1).kind, ChoiceKind::vendor);
}

TEST_F(Choosing, AFamilyThatIsNotAvailableSkipsTheEntry) {
  backend.add("other").unavailable = "needs AMX";
  EXPECT_THAT(plan(table({entry(1, 16, "other", 8, 1.5)})).choose(1).reason, HasSubstr("needs AMX"));
}

TEST_F(Choosing, AnEntryOfAnotherLayoutThanItsTablesIsSkipped) {
  backend.add("other", "other_layout");
  EXPECT_THAT(plan(table({entry(1, 16, "other", 8, 1.5)})).choose(1).reason,
              HasSubstr("the table has packed, other reads other_layout"));
}

TEST_F(Choosing, AnEntryLeftOutWhenReadIsTheBaselineAndNotWarnedAboutAgain) {
  const test::LogCapture log;
  TileTable t = table({baseline_entry(1, 16)});
  t.file = "/tables/left-out.octile.json";
  t.entries[0].left_out = "num_warps = 3 is no power of two";
  EXPECT_EQ(plan(t).choose(1).kind, ChoiceKind::baseline);
  EXPECT_THAT(plan(t).choose(1).reason, HasSubstr("num_warps = 3"));
  EXPECT_EQ(log.warnings_with("left-out"), 0);
}

TEST_F(Choosing, ASoftKeyMakesStaleAndStillServes) {
  TileTable t = table({entry(1, 16, "ours", 8, 1.5)});
  t.provenance["octile"] = version();
  t.provenance["vendor"] = "3.1";
  t.provenance["date"] = "2001-01-01";
  EXPECT_FALSE(plan(t).choose(1).stale);
  t.provenance["vendor"] = "2.9";
  EXPECT_TRUE(plan(t).choose(1).stale);
  EXPECT_EQ(plan(t).choose(1).kind, ChoiceKind::tile);
  EXPECT_THAT(plan(t).choose(1).reason, HasSubstr("measured with vendor 2.9, here it is 3.1"));
  t.provenance["octile"] = "0.0.1";
  EXPECT_THAT(plan(t).choose(1).reason, HasSubstr("octile 0.0.1"));
}

// One hard key changed in the table, and what the reason must hold.
struct HardKey {
  const char* name;
  void (*change)(TableKey& key);
  const char* said;
};
class HardKeys : public Choosing, public testing::WithParamInterface<HardKey> {};

TEST_P(HardKeys, ADifferenceMakesTheTableUnusedAndIsNamedInTheReason) {
  const test::LogCapture log;
  TileTable t = table({entry(1, 64, "ours", 8, 1.5)});
  ASSERT_EQ(plan(t).choose(1).kind, ChoiceKind::tile);
  t.file = std::string("/tables/hard-key-") + GetParam().name;
  GetParam().change(t.key);
  const Plan p = plan(t);
  EXPECT_EQ(p.choose(1).kind, ChoiceKind::baseline);
  EXPECT_EQ(p.choose(1).entry, nullptr);
  EXPECT_THAT(p.choose(1).reason, HasSubstr(GetParam().said));
  EXPECT_THAT(p.choose(1).reason, HasSubstr(t.file));
  EXPECT_THAT(p.table_refusal(), HasSubstr(GetParam().said));
  EXPECT_EQ(log.warnings_with(t.file), 1);
}

INSTANTIATE_TEST_SUITE_P(
    Each, HardKeys,
    testing::Values(HardKey{"device_name", [](TableKey& key) { key.device_name = "Fake_CPU-avx2-3t"; },
                            "device_name: the table has Fake_CPU-avx2-3t, here it is Fake_CPU-avx2-2t"},
                    HardKey{"arch", [](TableKey& key) { key.arch = "amx"; }, "arch: the table has amx, here it is avx2"},
                    HardKey{"model", [](TableKey& key) { key.model = "Another CPU"; }, "model: the table has Another CPU"},
                    HardKey{"sm_count", [](TableKey& key) { key.sm_count = 16; }, "threads: the table has 16, here it is 2"},
                    HardKey{"n", [](TableKey& key) { key.n = 97; }, "n: the table has 97, here it is 96"},
                    HardKey{"k", [](TableKey& key) { key.k = 65; }, "k: the table has 65, here it is 64"},
                    HardKey{"scheme", [](TableKey& key) { key.scheme = "fp8_w8a8,block_shape=[128, 128]"; },
                            "scheme: the table has"},
                    HardKey{"out_dtype", [](TableKey& key) { key.out_dtype = "fp16"; },
                            "out_dtype: the table has fp16, here it is bf16"},
                    HardKey{"weight_layout", [](TableKey& key) { key.weight_layout = "swizzled"; },
                            "weight_layout: the table has swizzled"}),
    [](const testing::TestParamInfo<HardKey>& key) { return key.param.name; });

TEST_F(Choosing, AnAliasMakesAnotherDevicesNameMatchOnPurpose) {
  TileTable t = table({entry(1, 64, "ours", 8, 1.5)});
  t.key.device_name = "Another_CPU-avx2-2t";
  TableLookup lookup = in_table(t);
  lookup.alias = "Another_CPU-avx2-2t";
  EXPECT_EQ(Plan::from_lookup(&backend, backend.info, problem, lookup, true).choose(1).kind, ChoiceKind::tile);
}

TEST_F(Choosing, FastEntriesAreWeakerThanPreciseOnAGpuAndTheSameOnACpu) {
  problem.accumulate = Accumulate::precise;
  TileTable t = table({entry(1, 64, "ours", 8, 1.5)});
  t.key.accumulate = "fast";
  EXPECT_EQ(plan(t).choose(1).kind, ChoiceKind::tile);

  FakeBackend gpu(DeviceKind::cuda);
  gpu.add("ours");
  gpu.add_vendor("vendor", "packed");
  t.key = own_table(gpu.info, problem, {}).key;
  t.key.accumulate = "fast";
  const Choice choice = Plan::from_lookup(&gpu, gpu.info, problem, in_table(t), true).choose(1);
  EXPECT_EQ(choice.kind, ChoiceKind::baseline);
  EXPECT_THAT(choice.reason, HasSubstr("weaker than asked: the entry is accumulate=fast"));
  t.key.accumulate = "precise";
  const auto of_precise = [&] { return Plan::from_lookup(&gpu, gpu.info, problem, in_table(t), true).choose(1); };
  EXPECT_EQ(of_precise().kind, ChoiceKind::tile);
  EXPECT_EQ(of_precise().reason.find("measured with"), std::string::npos);
  // Stronger than asked, and other kernels than those that were measured.
  for (const Accumulate asked : {Accumulate::device_default, Accumulate::fast}) {
    problem.accumulate = asked;
    EXPECT_EQ(of_precise().kind, ChoiceKind::tile);
    EXPECT_THAT(of_precise().reason, HasSubstr("measured with precise sums"));
  }
}

TEST_F(Choosing, DeterministicEntriesAreWeakerThanTheBaselinesBits) {
  problem.numerics = Numerics::baseline;
  TileTable t = table({entry(1, 64, "ours", 8, 1.5)});
  t.key.numerics = "deterministic";
  EXPECT_EQ(plan(t).choose(1).kind, ChoiceKind::baseline);
  EXPECT_THAT(plan(t).choose(1).reason, HasSubstr("asked was numerics=baseline"));
  t.key.numerics = "baseline";
  EXPECT_EQ(plan(t).choose(1).kind, ChoiceKind::tile);
}

TEST_F(Choosing, BatchInvarianceTakesNoVendorForAnyM) {
  problem.batch_invariant = true;
  FakeFamily& varying = backend.add("varying");
  varying.batch_invariant = false;
  const Plan p = plan(table({entry(1, 8, "ours", 8, 1.5), baseline_entry(9, 16), entry(17, 24, "vendor", 8, 1.5),
                             entry(25, 32, "varying", 8, 1.5)}));
  EXPECT_EQ(p.choose(8).kind, ChoiceKind::tile);
  for (const std::int64_t m : {9, 17, 25, 33, 1000}) {
    EXPECT_EQ(p.choose(m).kind, ChoiceKind::heuristic) << m;
    EXPECT_EQ(p.choose(m).family, &ours) << m;
  }
  EXPECT_THAT(p.choose(9).reason, HasSubstr("batch_invariant"));
  EXPECT_THAT(p.choose(25).reason, HasSubstr("varying is not batch-invariant"));
  EXPECT_THAT(p.layouts(kForever), ElementsAre("packed"));
}

TEST_F(Choosing, ALayoutThatTheVendorCannotReadHasNoBaselineOnAGpu) {
  FakeBackend gpu(DeviceKind::cuda);
  FakeFamily& tile = gpu.add("ours", "permuted");
  gpu.add_vendor("vendor", "row_major");
  TileTable t = own_table(gpu.info, problem, {entry(1, 8, "ours", 8, 1.5), baseline_entry(9, 16)});
  t.key.weight_layout = "permuted";
  const Plan p = Plan::from_lookup(&gpu, gpu.info, problem, in_table(t), true);
  EXPECT_EQ(p.choose(9).kind, ChoiceKind::heuristic);
  EXPECT_EQ(p.choose(9).family, &tile);
  EXPECT_THAT(p.choose(9).reason, HasSubstr("reads weights in layout row_major, the table has them in permuted"));
  EXPECT_THAT(p.layouts(kForever), ElementsAre("permuted"));
}

TEST_F(Choosing, LayoutsAreThoseThatSomeMReadsAndNoMore) {
  EXPECT_THAT(plan(table({entry(1, kForever, "ours", 8, 1.5)})).layouts(kForever), ElementsAre("packed"));
  EXPECT_THAT(plan(table({entry(1, 8, "ours", 8, 1.5), baseline_entry(9, 16)})).layouts(kForever),
              ElementsAre("packed", "vendor_layout"));
  EXPECT_THAT(plan(table({entry(1, 8, "ours", 8, 1.5), baseline_entry(9, 16)})).layouts(8), ElementsAre("packed"));
}

TEST_F(Choosing, BetweenTwoBreakpointsTheChoiceNeverChanges) {
  SCOPED_TRACE(test::seed_text());
  auto& random = test::generator();
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 20; ++round) {
    std::vector<TableEntry> entries;
    for (std::int64_t m = draw(1, 9); m < 300 && entries.size() < 12;) {
      const std::int64_t hi = m + draw(0, 40);
      const int us = draw(10, 30);
      entries.push_back(draw(0, 5) == 0 && round % 2 == 0
                            ? baseline_entry(m, hi)
                            : test::timed_entry(m, hi, "ours", draw(1, 300), us, us * (1.0 + 0.1 * draw(1, 5))));
      m = hi + 1 + draw(0, 30);
    }
    const Plan p = plan(table(entries));
    const auto starts = p.breakpoints(700);
    ASSERT_EQ(starts.front(), 1);
    ASSERT_LE(starts.back(), 700);
    Choice current;
    std::size_t next = 0;
    for (std::int64_t m = 1; m <= 700; ++m) {
      const Choice choice = p.choose(m);
      if (next < starts.size() && starts[next] == m) {
        current = choice;
        ++next;
      }
      ASSERT_EQ(choice.kind, current.kind) << "M = " << m;
      ASSERT_EQ(choice.family, current.family) << "M = " << m;
      ASSERT_EQ(choice.config, current.config) << "M = " << m;
      ASSERT_EQ(choice.table_key, current.table_key) << "M = " << m;
    }
    ASSERT_EQ(next, starts.size()) << "breakpoints are ascending and within range";
  }
}

// Whatever holds the plan: a table or none, gaps, two layouts, a limit of multiprocessors, an engine's kernel, batches that
// must not matter, the switch.
TEST_F(Choosing, NoMReadsALayoutThatLayoutsLacksAndEachOfThemIsRead) {
  SCOPED_TRACE(test::seed_text());
  auto& random = test::generator();
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  constexpr std::int64_t kLargest = 400;
  for (int round = 0; round < 2000; ++round) {
    FakeBackend device(draw(0, 1) == 0 ? DeviceKind::cpu : DeviceKind::cuda);
    const auto hold = [&](FakeFamily& family) {
      if (draw(0, 3) != 0) {
        family.held_up_to_m = draw(0, 2) == 0 ? kForever : draw(1, static_cast<int>(kLargest));
      }
      family.us_per_row = draw(1, 3);
      family.batch_invariant = draw(0, 3) != 0;
    };
    hold(device.add("ours"));
    hold(device.add("other", draw(0, 1) == 0 ? "packed" : "other_layout"));
    if (draw(0, 3) != 0) {
      hold(device.add_vendor("vendor", draw(0, 1) == 0 ? "packed" : "vendor_layout"));
    }
    problem.max_sms = draw(0, 1) * 8;
    problem.batch_invariant = draw(0, 3) == 0;
    std::vector<TableEntry> entries;
    const std::array kernels = {"ours", "ours", "other", "vendor", "of_another_build"};
    const bool all_ours = draw(0, 1) == 0;
    for (std::int64_t m = draw(1, 40); m < kLargest && draw(0, 6) != 0;) {
      const std::int64_t hi = m + draw(0, 40);
      const int us = draw(10, 30);
      entries.push_back(!all_ours && draw(0, 5) == 0
                            ? baseline_entry(m, hi)
                            : test::timed_entry(m, hi, all_ours ? "ours" : kernels[static_cast<std::size_t>(draw(0, 4))],
                                                draw(1, 300), us, us * (0.9 + 0.1 * draw(all_ours ? 2 : 0, 6))));
      m = hi + 1 + draw(0, 60);
    }
    TileTable t = own_table(device.info, problem, entries);
    t.key.weight_layout = draw(0, 3) == 0 ? "" : "packed";
    const bool tuned = draw(0, 7) != 0;
    const Plan p = Plan::from_lookup(&device, device.info, problem, entries.empty() ? TableLookup{} : in_table(t), tuned);
    const std::vector<std::string> said = p.layouts(kLargest);
    const std::vector<std::int64_t> starts = p.breakpoints(kLargest);
    std::set<std::string> read;
    Choice begun;
    for (std::int64_t m = 1; m <= kLargest; ++m) {
      const Choice choice = p.choose(m);
      if (choice.family != nullptr) {
        read.emplace(choice.family->layout_for(problem));
      }
      begun = std::ranges::binary_search(starts, m) ? choice : begun;
      ASSERT_EQ(choice.family, begun.family) << "round " << round << ", M = " << m;
      ASSERT_EQ(choice.config, begun.config) << "round " << round << ", M = " << m;
    }
    EXPECT_EQ(std::set<std::string>(said.begin(), said.end()), read)
        << "round " << round << ", max_sms = " << problem.max_sms << ", table of " << entries.size();
  }
}

TEST_F(Choosing, HeuristicsAreAskedAtFewMsAndAtEachUpTo32) {
  backend.its_baseline = nullptr;
  ours.largest_tile = kForever;
  const Plan p = Plan::from_lookup(&backend, backend.info, problem, {}, true);
  for (std::int64_t m = 1; m <= 32; ++m) {
    EXPECT_EQ(p.choose(m).config.get("tile", 0), m);
  }
  for (const std::int64_t m : {33, 100, 1000, 8191, 8192}) {
    const std::int64_t asked = p.choose(m).config.get("tile", 0);
    EXPECT_GE(asked, m);
    EXPECT_LE(asked, m + m / 16);
  }
  EXPECT_LE(p.breakpoints(8192).size(), 32U + 16U * 8U);
  EXPECT_EQ(p.choose(kForever).config.get("tile", 0), std::int64_t{1} << 20);
}

// A cost model may take milliseconds an M, and every weight and linear asks for its layouts.
TEST_F(Choosing, LayoutsOfAnUntunedWeightAskTheHeuristicAboutOneM) {
  backend.its_baseline = nullptr;
  const Plan p = Plan::from_lookup(&backend, backend.info, problem, {}, true);
  std::set<std::int64_t> asked;
  ours.its_heuristic = [&](std::int64_t m) {
    asked.insert(m);
    return TileConfig{};
  };
  EXPECT_THAT(p.layouts(kForever), ElementsAre("packed"));
  EXPECT_EQ(asked.size(), 1U);
}

TEST_F(Choosing, ExplainOfNoRowsSaysThatNothingIsLaunched) {
  const Plan p = plan(table({entry(1, 64, "ours", 8, 1.5)}));
  for (const std::int64_t m : {std::int64_t{0}, std::int64_t{-5}}) {
    const Explanation explanation = explain_plan(p, m);
    EXPECT_EQ(explanation.m, m);
    EXPECT_THAT(explanation.reason, HasSubstr("launches nothing"));
    EXPECT_EQ(explanation.measured, "null");
  }
}

// The families of a GPU are there without one; a driver is needed to run them only.
TEST(BatchInvariantOnAGpu, OneFamilyServesEveryMWhateverTheTableSays) {
  const DeviceInfo h200 = *known_device("NVIDIA_H200");
  Problem problem;
  problem.n = problem.k = 4096;
  TableEntry decode = entry(1, 16, "hopper_decode", 0, 1.5);
  decode.config = TileConfig{{{"K_CHUNKS", 2}, {"SPLIT_K", 1}, {"STAGES", 5}, {"TOKENS", 16}}};
  TableEntry vendor = entry(17, 64, "cublaslt", 0, 1.5);
  vendor.config = {};
  TileTable mixed = own_table(h200, problem, {decode, vendor});
  mixed.key.weight_layout = "row_major";
  problem.batch_invariant = true;
  for (const bool has_table : {false, true}) {
    const Plan p =
        Plan::from_lookup(&cuda::cuda_backend(), h200, problem, has_table ? in_table(mixed) : TableLookup{}, true);
    for (const std::int64_t m : {1, 2, 16, 17, 64, 129, 300, 1024, 8192}) {
      const Choice choice = p.choose(m);
      ASSERT_NE(choice.family, nullptr) << m << ": " << choice.reason;
      EXPECT_FALSE(choice.family->is_vendor()) << m;
      EXPECT_EQ(choice.family, p.choose(1).family) << m << ": " << choice.reason;
      EXPECT_TRUE(choice.family->check(h200, problem, choice.config)) << m;
    }
  }
}

}  // namespace
}  // namespace octile
