// SPDX-License-Identifier: Apache-2.0
// Whole sweeps on a simulated device and clock: what wins, what is written, what the budget buys.
#include "octile/tune/tune.h"

#include "octile/linear/choose.h"
#include "octile/table/table_store.h"
#include "support/files.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

namespace octile::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TileTable read_only_table(const std::string& path) {
  std::vector<Finding> findings;
  Expected<TileTable> table = read_table(path, findings);
  EXPECT_TRUE(table.has_value()) << (table ? "" : table.error().message);
  EXPECT_THAT(findings, IsEmpty());
  return table ? *table : TileTable{};
}

int journals_in(const std::string& directory) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    count += file.path().extension() == ".journal" ? 1 : 0;
  }
  return count;
}

// A vendor's algorithms are timed before they are checked: the fastest is not always right, and one that is not races with
// nobody.
TEST(Tune, OfAVendorsAlgorithmsTheFastestThatIsRightWins) {
  const TemporaryDirectory directory;
  const auto summary = tune_simulated(
      tune_options(directory.path(), ""),
      "algorithms:5,ratio:A1:3,wrong:A1,ratio:A2:1.5,ratio:A3:1.2,ratio:A4:2,error_timed:A4,ratio:A5:2.5,error:A5");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  ASSERT_FALSE(summary->points.empty());
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.status, PointStatus::vendor) << point.m;
    EXPECT_EQ(point.kernel, "fake_vendor");
    EXPECT_EQ(point.config.get("v", 0), 2);
    EXPECT_NEAR(point.ratio, 1.5, 0.05);
    EXPECT_GT(point.rel_error, 0) << "it was checked";
  }
  std::set<std::int64_t> failed;
  for (const FailedCandidate& each : summary->failed) {
    EXPECT_EQ(each.kernel, "fake_vendor");
    failed.insert(each.config.get("v", 0));
  }
  EXPECT_THAT(failed, testing::ElementsAre(1, 4, 5));
}

TEST(Tune, UsesAreTunedExactlyAndTheDearestFirst) {
  const TemporaryDirectory directory;
  TuneOptions options = tune_options(directory.path(), "");
  options.uses = {{48, 64, 3, 10}, {80, 32, 700, 5}, {80, 32, 2, 1e9}, {48, 64, 3, 2}, {48, 64, 5, 1}};
  std::vector<std::string> order;
  options.progress = [&](const TuneProgress& progress) {
    if (progress.doing.find(" m=") != std::string::npos && (order.empty() || order.back() != progress.doing)) {
      order.push_back(progress.doing);
    }
  };
  const auto summary = tune_simulated(options, "ratio:0:1.5");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  std::vector<std::pair<std::string, std::int64_t>> points;
  for (const TunePoint& point : summary->points) {
    points.emplace_back(point.shape.name, point.m);
    EXPECT_EQ(point.status, PointStatus::tile);
  }
  EXPECT_EQ(points,
            (std::vector<std::pair<std::string, std::int64_t>>{{"small", 3}, {"small", 5}, {"wide", 2}, {"wide", 700}}));
  ASSERT_GE(order.size(), 2U);
  EXPECT_EQ(order[0], "wide m=2");
  EXPECT_EQ(order[1], "wide m=700");
}

TEST(Tune, UsesThatCannotBeAreRefused) {
  const TemporaryDirectory directory;
  for (const TuneUse& use : {TuneUse{48, 64, 0, 1}, TuneUse{48, 64, 1, 0}, TuneUse{48, 64, 1, -3},
                             TuneUse{48, 64, 1, std::numeric_limits<double>::quiet_NaN()}, TuneUse{48, 65, 1, 1}}) {
    TuneOptions options = tune_options(directory.path(), "");
    options.uses = {{48, 64, 1, 1}, {80, 32, 1, 1}, use};
    const auto summary = tune_simulated(options, "");
    ASSERT_FALSE(summary.has_value());
    EXPECT_EQ(summary.error().code, ErrorCode::invalid_argument);
  }
  TuneOptions options = tune_options(directory.path(), "");
  options.uses = {{48, 64, 1, 1}};
  const auto summary = tune_simulated(options, "");
  ASSERT_FALSE(summary.has_value());
  EXPECT_THAT(summary.error().message, HasSubstr("wide")) << "a shape without any use";
}

TEST(Tune, AFasterHeuristicIsProvenAndWrittenAsOneInterval) {
  const TemporaryDirectory directory;
  const auto summary = tune_simulated(tune_options(directory.path(), ""), "ratio:0:1.5");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  EXPECT_FALSE(summary->failure.has_value());
  ASSERT_THAT(summary->points, SizeIs(6));
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.status, PointStatus::tile) << point.shape.name << " m=" << point.m << ": " << point.reason;
    EXPECT_EQ(point.kernel, "fake_tile");
    EXPECT_NEAR(point.ratio, 1.5, 0.05);
    EXPECT_LE(point.ratio_lo, point.ratio);
    EXPECT_GE(point.ratio_hi, point.ratio);
    EXPECT_GT(point.ratio_lo, 1.02);
    EXPECT_GT(point.rel_error, 0);
  }
  ASSERT_THAT(summary->files, SizeIs(2));
  const TileTable table = read_only_table(summary->files[0]);
  ASSERT_THAT(table.entries, SizeIs(1));
  EXPECT_EQ(table.entries[0].m_lo, 1);
  EXPECT_EQ(table.entries[0].m_hi, 16);
  EXPECT_EQ(table.entries[0].kernel, "fake_tile");
  EXPECT_EQ(table.entries[0].config.get("v", -1), 0);
  EXPECT_EQ(table.entries[0].kernel_source_hash, "bbbb");
  EXPECT_GT(table.entries[0].ratio->lo, 1.02);
  EXPECT_EQ(table.key.weight_layout, "fake_packed");
  EXPECT_THAT(table.provenance.at("protocol"), HasSubstr("copies of"));
  EXPECT_EQ(journals_in(directory.path()), 0);
}

// A vendor that is faster, one that is slower: in slabs ours serve in any case, and the ratio says what that costs or gains.
TEST(Tune, WeightsInSlabsHaveATableOfOurFamiliesAlone) {
  for (const double ratio : {0.8, 1.5}) {
    const TemporaryDirectory directory;
    TuneOptions options = tune_options(directory.path(), "");
    options.layout = WeightLayout::slab64;
    const std::string scenario = "ratio:0:" + std::to_string(ratio) + ",ratio:3:" + std::to_string(1.2 * ratio) +
                                 ",ratio:1:0.5,ratio:2:0.5,ratio:4:0.5";
    const auto summary = tune_simulated(options, scenario);
    ASSERT_TRUE(summary.has_value()) << summary.error().message;
    ASSERT_THAT(summary->points, SizeIs(6));
    for (const TunePoint& point : summary->points) {
      EXPECT_EQ(point.status, PointStatus::tile) << point.shape.name << " m=" << point.m << ": " << point.reason;
      EXPECT_EQ(point.kernel, "fake_tile");
      EXPECT_EQ(point.config.get("v", -1), 3) << "the fastest of ours, whether it beats the vendor or not";
      EXPECT_NEAR(point.ratio, 1.2 * ratio, 0.05 * ratio);
      EXPECT_GT(point.baseline_us, 0);
    }
    const TileTable table = read_only_table(summary->files[0]);
    EXPECT_EQ(table.key.weight_layout, "slab64");
    ASSERT_THAT(table.entries, SizeIs(1));
    EXPECT_EQ(table.entries[0].kernel, "fake_tile");
    EXPECT_NEAR(table.entries[0].ratio->mid, 1.2 * ratio, 0.05 * ratio);

    // It serves in its layout, and nobody falls back on the vendor.
    const SimulatedBackend backend(parse_scenario(scenario));
    Problem problem;
    problem.n = table.key.n;
    problem.k = table.key.k;
    const Plan plan = Plan::make(&backend, backend.info(), problem, directory.path(), true);
    EXPECT_EQ(plan.problem().layout, WeightLayout::slab64);
    EXPECT_EQ(plan.choose(4).kind, ChoiceKind::tile) << plan.choose(4).reason;
  }
}

TEST(Tune, WithNothingButTheHeuristicInSlabsTheBaselineStillSaysWhatItIsWorth) {
  const TemporaryDirectory directory;
  TuneOptions options = tune_options(directory.path(), "");
  options.layout = WeightLayout::slab64;
  const auto summary = tune_simulated(options, "ratio:0:1.25,wrong:1,wrong:2,wrong:3,wrong:4");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.status, PointStatus::tile) << point.reason;
    EXPECT_EQ(point.config.get("v", -1), 0);
    EXPECT_NEAR(point.ratio, 1.25, 0.05);
  }
}

TEST(Tune, WhereEveryOtherKernelIsWrongTheBaselineIsTheEntryAndHasATime) {
  const TemporaryDirectory directory;
  const auto summary = tune_simulated(tune_options(directory.path(), ""), "wrong:0,wrong:1,wrong:2,wrong:3,wrong:4");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.status, PointStatus::baseline) << point.reason;
    EXPECT_GT(point.us, 0);
    EXPECT_EQ(point.reason, "nothing else was left to try");
  }
}

TEST(Tune, ATableServesEveryPointItWasTunedFor) {
  const TemporaryDirectory directory;
  const std::string scenario = "ratio:0:1.5,ratio:B:1";
  ASSERT_TRUE(tune_simulated(tune_options(directory.path(), ""), scenario).has_value());
  const SimulatedBackend backend(parse_scenario(scenario));
  for (const TuneShape& shape : tune_options("", "").shapes) {
    Problem problem;
    problem.n = shape.n;
    problem.k = shape.k;
    const Plan plan = Plan::make(&backend, backend.info(), problem, directory.path(), true);
    for (const std::int64_t m : {1, 4, 16}) {
      EXPECT_EQ(plan.choose(m).kind, ChoiceKind::tile) << plan.choose(m).reason;
      EXPECT_NE(plan.choose(m).entry, nullptr);
    }
  }
}

TEST(Tune, EqualKernelsLeaveTheBaselineEverywhere) {
  const TemporaryDirectory directory;
  const auto summary = tune_simulated(tune_options(directory.path(), ""), "noise:0.03");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.status, PointStatus::baseline) << point.shape.name << " m=" << point.m;
  }
  const TileTable table = read_only_table(summary->files[0]);
  ASSERT_THAT(table.entries, SizeIs(1));
  EXPECT_EQ(table.entries[0].kernel, kBaselineKernel);
}

TEST(Tune, AKernelThatIsFastOnlyWithAWarmCacheDoesNotWin) {
  // The control: on one weight that fits the cache, called again and again, the kernel is three times as fast.
  const SimulatedBackend backend(parse_scenario("warm:0:3,noise:0"));
  const std::vector<std::uint8_t> codes(48 * 64, 0x38);
  const std::vector<float> scales(48, 1.0F);
  WeightSource source;
  source.n = 48;
  source.k = 64;
  source.codes = codes.data();
  source.scales = scales.data();
  source.scale_count = 48;
  const KernelFamily* family = backend.families().front();
  Problem problem;
  problem.n = 48;
  problem.k = 64;
  const auto weight = backend.pack(backend.info(), family->layout(), source);
  const auto kernel = family->prepare(backend.info(), problem, family->heuristic(backend.info(), problem, 1), 1);
  ASSERT_TRUE(weight && kernel);
  std::vector<std::uint16_t> x(64), y(48);
  LaunchArgs args;
  args.activation.x = {x.data(), DType::bf16, 1, 64, 64, 1};
  args.y = {y.data(), DType::bf16, 1, 48, 48, 1};
  const auto timed = [&] {
    const double before_s = backend.now_s();
    EXPECT_TRUE((*kernel)->run(**weight, args));
    return backend.now_s() - before_s;
  };
  const double cold_s = timed();
  EXPECT_NEAR(cold_s / timed(), 3.0, 1e-6);

  const TemporaryDirectory directory;
  const auto summary = tune_simulated(tune_options(directory.path(), ""), "warm:0:3");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.status, PointStatus::baseline) << point.shape.name << " m=" << point.m;
  }
}

TEST(Tune, ABetterConfigReplacesTheHeuristic) {
  const TemporaryDirectory directory;
  const auto summary = tune_simulated(tune_options(directory.path(), ""), "ratio:0:1.2,ratio:3:1.5");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.config.get("v", -1), 3) << point.reason;
  }
}

TEST(Tune, AConfigThatIsNotProvenBetterThanTheHeuristicDoesNotReplaceIt) {
  const TemporaryDirectory directory;
  const auto summary = tune_simulated(tune_options(directory.path(), ""), "ratio:0:1.5,ratio:3:1.505");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.config.get("v", -1), 0) << point.reason;
  }
}

TEST(Tune, TheBorderBetweenTwoWinnersIsNarrowedWithTheTimeLeft) {
  const TemporaryDirectory directory;
  TuneOptions options = tune_options(directory.path(), "");
  options.shapes = {{"small", 48, 64}};
  options.m_list = {1, 64};
  options.time_budget_s = 600;
  const auto summary = tune_simulated(options, "ratio:0:1.5,ratio:0:0.5@23");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  const TileTable table = read_only_table(summary->files[0]);
  ASSERT_THAT(table.entries, SizeIs(2));
  EXPECT_EQ(table.entries[0].m_hi, 22);
  EXPECT_EQ(table.entries[1].m_lo, 23);
  EXPECT_EQ(table.entries[1].kernel, kBaselineKernel);
}

TEST(Tune, WithoutAVendorTheHeuristicStandsInForTheBaseline) {
  const TemporaryDirectory directory;
  const auto summary = tune_simulated(tune_options(directory.path(), ""), "novendor,ratio:2:1.3");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.status, PointStatus::tile);
    EXPECT_EQ(point.config.get("v", -1), 2);
  }
  const TemporaryDirectory other;
  const auto equal = tune_simulated(tune_options(other.path(), ""), "novendor");
  ASSERT_TRUE(equal.has_value()) << equal.error().message;
  const TileTable table = read_only_table(equal->files[0]);
  ASSERT_THAT(table.entries, SizeIs(1));
  EXPECT_EQ(table.entries[0].kernel, "fake_tile") << "a table of a device without a baseline names no baseline";
}

TEST(Tune, AWrongCandidateIsRecordedAndLeftOutThoughItIsTheFastest) {
  for (const char* fault : {"wrong", "unwritten", "guard", "workspace"}) {
    const TemporaryDirectory directory;
    const auto summary =
        tune_simulated(tune_options(directory.path(), ""), std::string("ratio:0:1.2,ratio:3:1.9,") + fault + ":3");
    ASSERT_TRUE(summary.has_value()) << summary.error().message;
    for (const TunePoint& point : summary->points) {
      EXPECT_EQ(point.config.get("v", -1), 0) << fault;
    }
    ASSERT_FALSE(summary->failed.empty()) << fault;
    EXPECT_EQ(summary->failed[0].kind, "wrong") << fault << ": " << summary->failed[0].reason;
    EXPECT_EQ(summary->failed[0].config.get("v", -1), 3);
    EXPECT_FALSE(summary->failure.has_value());
  }
}

TEST(Tune, AFamilyThatFailsAtEveryCandidateIsAFailureAndNotNoImprovement) {
  const TemporaryDirectory directory;
  const auto summary = tune_simulated(tune_options(directory.path(), ""), "throw:0,throw:1,throw:2,throw:3,throw:4");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  ASSERT_TRUE(summary->failure.has_value());
  EXPECT_THAT(*summary->failure, HasSubstr("fake_tile failed at every candidate"));
  EXPECT_THAT(*summary->failure, HasSubstr("cannot prepare"));
}

TEST(Tune, AFailingBaselineIsAFailure) {
  const TemporaryDirectory directory;
  const auto summary = tune_simulated(tune_options(directory.path(), ""), "error:B");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  ASSERT_TRUE(summary->failure.has_value());
  EXPECT_THAT(*summary->failure, HasSubstr("fake_vendor"));
  for (const TunePoint& point : summary->points) {
    EXPECT_EQ(point.status, PointStatus::failed);
  }
}

// Of four shapes as large as a model's, on a device whose calls take simulated milliseconds to seconds.
TuneOptions model_options(const std::string& directory, double budget_s) {
  TuneOptions options = tune_options(directory, "");
  options.shapes = {{"qkv", 24, 64}, {"o", 16, 64}, {"gate_up", 96, 64}, {"down", 64, 48}};
  options.m_list = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  options.time_budget_s = budget_s;
  return options;
}

// Cost such that gate_up takes 4 ms at M = 1 and 0.26 s at M = 1024.
constexpr const char* kModelSpeeds = "ratio:0:1.6,ratio:1:1.5,noise:0.03,cost:40";

TEST(Tune, TheBudgetIsKeptWithinTenPercentAndMostlyUsed) {
  for (const double budget_s : {5.0, 20.0, 60.0, 120.0}) {
    const TemporaryDirectory directory;
    const SimulatedBackend backend(parse_scenario(kModelSpeeds));
    const auto summary = tune_with(model_options(directory.path(), budget_s), simulated_hooks(backend));
    ASSERT_TRUE(summary.has_value()) << summary.error().message;
    EXPECT_LE(backend.now_s(), 1.1 * budget_s);
    const auto without = std::count_if(summary->points.begin(), summary->points.end(),
                                       [](const TunePoint& p) { return p.status == PointStatus::no_budget; });
    if (without > 0) {
      EXPECT_GE(backend.now_s(), 0.5 * budget_s) << without << " points had no budget though time was left";
    }
  }
}

TEST(Tune, ASmallBudgetDecidesTheSmallMFirstAndListsTheRest) {
  const TemporaryDirectory directory;
  const auto summary = tune_simulated(model_options(directory.path(), 8), kModelSpeeds);
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  ASSERT_THAT(summary->points, SizeIs(44));
  int without = 0;
  for (const TunePoint& point : summary->points) {
    if (point.status == PointStatus::no_budget) {
      ++without;
      EXPECT_GT(point.m, 8) << point.shape.name << ": " << point.reason;
      EXPECT_FALSE(point.reason.empty());
    } else {
      EXPECT_EQ(point.status, PointStatus::tile) << point.shape.name << " m=" << point.m << ": " << point.reason;
    }
  }
  EXPECT_GT(without, 0);
}

TEST(Tune, ProgressCountsUpToTheEndAndTellsTheTimeLeft) {
  const TemporaryDirectory directory;
  TuneOptions options = model_options(directory.path(), 60);
  std::vector<TuneProgress> seen;
  options.progress = [&](const TuneProgress& progress) { seen.push_back(progress); };
  ASSERT_TRUE(tune_simulated(options, kModelSpeeds).has_value());
  ASSERT_GE(seen.size(), 44U);
  EXPECT_TRUE(seen.back().finished);
  for (std::size_t i = 1; i < seen.size(); ++i) {
    EXPECT_GE(seen[i].done, seen[i - 1].done);
    EXPECT_LE(seen[i].done, seen[i].total);
    EXPECT_GE(seen[i].left_s, 0);
    EXPECT_LE(seen[i].left_s, 60);
  }
}

TEST(Tune, ASecondRunOnTheSameDirectoryAddsItsPoints) {
  const TemporaryDirectory directory;
  TuneOptions options = tune_options(directory.path(), "");
  options.shapes = {{"small", 48, 64}};
  options.m_list = {1, 4};
  ASSERT_TRUE(tune_simulated(options, "ratio:0:1.5").has_value());
  options.m_list = {64};
  const auto summary = tune_simulated(options, "ratio:2:1.5");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  const TileTable table = read_only_table(summary->files[0]);
  ASSERT_THAT(table.entries, SizeIs(2));
  EXPECT_EQ(table.entries[0].m_hi, 4);
  EXPECT_EQ(table.entries[1].m_lo, 64);
}

TEST(Tune, ATableOfOtherHardKeysIsRefusedBeforeAnythingIsMeasuredAndKeepsItsEntries) {
  const TemporaryDirectory directory;
  const TuneOptions first = tune_options(directory.path(), "");
  ASSERT_TRUE(tune_simulated(first, "ratio:0:1.5").has_value());
  const auto before = tables_in(directory.path());
  const auto refused = [&](const char* key, auto change) {
    SCOPED_TRACE(key);
    TuneOptions options = first;
    change(options);
    const SimulatedBackend backend(parse_scenario("ratio:0:1.5"));
    const auto summary = tune_with(options, simulated_hooks(backend));
    ASSERT_FALSE(summary.has_value());
    EXPECT_THAT(summary.error().message, testing::AllOf(HasSubstr(key), HasSubstr("tune into another directory")));
    EXPECT_EQ(backend.runs(), 0);
  };
  refused("out_dtype", [](TuneOptions& options) { options.out_dtype = DType::fp16; });
  refused("bias", [](TuneOptions& options) { options.bias = true; });
  refused("accumulate", [](TuneOptions& options) { options.accumulate = Accumulate::precise; });
  refused("numerics", [](TuneOptions& options) { options.numerics = Numerics::baseline; });
  const auto after = tables_in(directory.path());
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, table] : before) {
    expect_same_entries(table, after.at(name));
  }
}

TEST(Tune, ATableOfWhichNothingCanServeAnyMoreIsReplacedWhateverItsKeys) {
  const TemporaryDirectory directory;
  TuneOptions options = tune_options(directory.path(), "");
  const auto first = tune_simulated(options, "ratio:0:1.5");
  ASSERT_TRUE(first.has_value()) << first.error().message;
  for (const std::string& file : first->files) {
    std::string text = read_text(file);
    const std::string mine = "\"bbbb\"";
    ASSERT_NE(text.find(mine), std::string::npos);
    for (std::size_t at = text.find(mine); at != std::string::npos; at = text.find(mine)) {
      text.replace(at, mine.size(), "\"an older source\"");
    }
    std::ofstream(file) << text;
  }
  options.out_dtype = DType::fp16;
  const auto summary = tune_simulated(options, "ratio:0:1.5");
  ASSERT_TRUE(summary.has_value()) << summary.error().message;
  const TileTable table = read_only_table(summary->files[0]);
  EXPECT_EQ(table.key.out_dtype, "fp16");
  for (const TableEntry& entry : table.entries) {
    EXPECT_NE(entry.kernel_source_hash, "an older source");
  }
}

TEST(Tune, BadOptionsAreRefusedWithTheValue) {
  const TemporaryDirectory directory;
  const auto message_of = [&](const std::function<void(TuneOptions&)>& change) {
    TuneOptions options = tune_options(directory.path(), "");
    change(options);
    const auto summary = tune_simulated(options, "");
    return summary ? std::string("no error") : summary.error().message;
  };
  EXPECT_THAT(message_of([](TuneOptions& o) { o.shapes.clear(); }), HasSubstr("at least one shape"));
  EXPECT_THAT(message_of([](TuneOptions& o) { o.shapes[0].n = 0; }), HasSubstr("n = 0"));
  EXPECT_THAT(message_of([](TuneOptions& o) { o.m_list = {4, -3}; }), HasSubstr("-3"));
  EXPECT_THAT(message_of([](TuneOptions& o) { o.time_budget_s = -1; }), HasSubstr("-1"));
  EXPECT_THAT(message_of([](TuneOptions& o) { o.device = "gpu9"; }), HasSubstr("fake"));
  EXPECT_THAT(message_of([](TuneOptions& o) { o.tables = "a:b"; }), HasSubstr("a:b"));
  EXPECT_THAT(message_of([](TuneOptions& o) { o.tables = "/proc/nowhere"; }), HasSubstr("/proc/nowhere"));
}

}  // namespace
}  // namespace octile::test
