// SPDX-License-Identifier: Apache-2.0
// The journal: what is written comes back, a torn file loses its last line only, other hard keys start afresh.
#include "octile/tune/journal.h"

#include "octile/core/json_file.h"
#include "octile/kernels/known_devices.h"
#include "octile/tune/sweep.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace octile::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const HardKeys kKeys{{"device_name", "Fake"}, {"kernel fake_tile", "bbbb"}};

TunePoint some_point(std::int64_t m) {
  TunePoint point;
  point.shape = {"qkv", 48, 64};
  point.m = m;
  point.status = PointStatus::tile;
  point.kernel = "fake_tile";
  point.config = TileConfig{{{"v", 3}, {"rows", 16}}};
  point.us = 1.5;
  point.baseline_us = 3.25;
  point.ratio = 2.1;
  point.ratio_lo = 2.0;
  point.ratio_hi = 2.2;
  point.rounds = 14;
  point.rel_error = 1e-3;
  point.undecided = true;
  point.worked = {"fake_tile", "fake_vendor"};
  point.reason = "a \"quoted\" reason\nwith a line break";
  return point;
}

Journal open_journal(const std::string& directory, bool resume, JournalContent& content, std::vector<std::string>& notes,
                     const HardKeys& keys = kKeys, const std::string& request = "r") {
  Expected<Journal> journal = Journal::open(directory, "Fake", keys, request, resume, content, notes);
  EXPECT_TRUE(journal.has_value()) << (journal ? "" : journal.error().message);
  return std::move(*journal);
}

TEST(Journal, LinesNestedBeyondReasonAreLeftOutWithoutRecursion) {
  const std::string deep(1 << 20, '[');
  const std::string header =
      "{\"octile_journal\":1,\"hard_keys\":{\"device_name\":\"Fake\",\"kernel fake_tile\":\"bbbb\"},\"request\":\"r\"}\n";
  JournalContent content;
  std::string request;
  std::string why;
  std::size_t valid_bytes = 0;
  EXPECT_TRUE(parse_journal(header + deep + "\n{\"point\":" + deep + "}\n", kKeys, content, request, valid_bytes, why));
  EXPECT_THAT(content.points, IsEmpty());
  EXPECT_FALSE(parse_journal("{\"octile_journal\":1,\"hard_keys\":{\"x\":" + deep + std::string(1 << 20, ']') + "}}\n",
                             kKeys, content, request, valid_bytes, why));
  EXPECT_FALSE(
      parse_journal("{\"octile_journal\":1,\"hard_keys\":" + deep + "\n", kKeys, content, request, valid_bytes, why));
}

TEST(Journal, WhatIsAppendedComesBackAsItWas) {
  const TemporaryDirectory directory;
  JournalContent content;
  std::vector<std::string> notes;
  {
    Journal journal = open_journal(directory.path(), false, content, notes);
    ASSERT_TRUE(journal.append(some_point(16)).has_value());
    ASSERT_TRUE(
        journal.append(FailedCandidate{"qkv", 4, "fake_tile", TileConfig{{{"v", 1}}}, "crash", "signal 6"}).has_value());
  }
  open_journal(directory.path(), true, content, notes);
  ASSERT_THAT(content.points, SizeIs(1));
  const TunePoint& back = content.points[0];
  const TunePoint wrote = some_point(16);
  EXPECT_EQ(back.shape.name, wrote.shape.name);
  EXPECT_EQ(back.shape.n, wrote.shape.n);
  EXPECT_EQ(back.shape.k, wrote.shape.k);
  EXPECT_EQ(back.m, wrote.m);
  EXPECT_EQ(back.status, wrote.status);
  EXPECT_EQ(back.kernel, wrote.kernel);
  EXPECT_EQ(back.config, wrote.config);
  EXPECT_EQ(back.us, wrote.us);
  EXPECT_EQ(back.baseline_us, wrote.baseline_us);
  EXPECT_EQ(back.ratio, wrote.ratio);
  EXPECT_EQ(back.ratio_lo, wrote.ratio_lo);
  EXPECT_EQ(back.ratio_hi, wrote.ratio_hi);
  EXPECT_EQ(back.rounds, wrote.rounds);
  EXPECT_EQ(back.rel_error, wrote.rel_error);
  EXPECT_EQ(back.undecided, wrote.undecided);
  EXPECT_EQ(back.worked, wrote.worked);
  EXPECT_EQ(back.reason, wrote.reason);
  EXPECT_TRUE(back.resumed);
  ASSERT_THAT(content.failed, SizeIs(1));
  EXPECT_EQ(content.failed[0].kind, "crash");
  EXPECT_EQ(content.failed[0].config.get("v", 0), 1);
}

TEST(Journal, ATornFileLosesOnlyTheLineThatWasBeingWrittenAtEveryByte) {
  const TemporaryDirectory directory;
  JournalContent content;
  std::vector<std::string> notes;
  std::string path;
  {
    Journal journal = open_journal(directory.path(), false, content, notes);
    path = journal.path();
    for (const std::int64_t m : {1, 2, 3}) {
      ASSERT_TRUE(journal.append(some_point(m)).has_value());
    }
  }
  const std::string whole = read_whole_file(path).value();
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    const std::string torn = whole.substr(0, length);
    const auto lines = static_cast<std::size_t>(std::count(torn.begin(), torn.end(), '\n'));
    std::string request;
    std::string why;
    std::size_t valid_bytes = 0;
    const bool is_journal = parse_journal(torn, kKeys, content, request, valid_bytes, why);
    EXPECT_EQ(is_journal, lines > 0) << "at byte " << length << ": " << why;
    EXPECT_THAT(content.points, SizeIs(lines > 0 ? lines - 1 : 0)) << "at byte " << length;
    EXPECT_EQ(valid_bytes, torn.rfind('\n') + 1);
  }
}

TEST(Journal, GoingOnFromATornFileCutsTheTornEnd) {
  const TemporaryDirectory directory;
  JournalContent content;
  std::vector<std::string> notes;
  std::string path;
  {
    Journal journal = open_journal(directory.path(), false, content, notes);
    path = journal.path();
    ASSERT_TRUE(journal.append(some_point(1)).has_value());
  }
  {
    std::ofstream(path, std::ios::app) << R"({"point":{"shape":"qk)";
  }
  {
    Journal journal = open_journal(directory.path(), true, content, notes);
    ASSERT_THAT(content.points, SizeIs(1));
    ASSERT_TRUE(journal.append(some_point(2)).has_value());
  }
  open_journal(directory.path(), true, content, notes);
  EXPECT_THAT(content.points, SizeIs(2));
}

TEST(Journal, OtherHardKeysStartAfreshAndSayWhichKeyDiffers) {
  const TemporaryDirectory directory;
  JournalContent content;
  std::vector<std::string> notes;
  {
    Journal journal = open_journal(directory.path(), false, content, notes);
    ASSERT_TRUE(journal.append(some_point(1)).has_value());
  }
  HardKeys other = kKeys;
  other["kernel fake_tile"] = "cccc";
  const Journal journal = open_journal(directory.path(), true, content, notes, other);
  EXPECT_THAT(content.points, IsEmpty());
  ASSERT_THAT(notes, SizeIs(1));
  EXPECT_THAT(notes[0], HasSubstr("kernel fake_tile"));
  EXPECT_THAT(notes[0], HasSubstr("bbbb"));
  EXPECT_THAT(notes[0], HasSubstr("cccc"));
  EXPECT_TRUE(std::filesystem::exists(journal.path() + ".old"));
}

TEST(Journal, OneOfAnotherLaunchModeIsSetAside) {
  const SimulatedBackend backend(parse_scenario(""));
  const auto keys_of = [&](Pdl pdl) {
    RunOptions options;
    options.pdl = pdl;
    return hard_keys_of_run(backend, *known_device("NVIDIA_H200"), options);
  };
  const TemporaryDirectory directory;
  JournalContent content;
  std::vector<std::string> notes;
  {
    Journal journal = open_journal(directory.path(), false, content, notes, keys_of(Pdl::full));
    ASSERT_TRUE(journal.append(some_point(1)).has_value());
  }
  open_journal(directory.path(), true, content, notes, keys_of(Pdl::full));
  EXPECT_THAT(content.points, SizeIs(1)) << "of the same mode, the run goes on";
  notes.clear();
  const Journal journal = open_journal(directory.path(), true, content, notes, keys_of(Pdl::consume));
  EXPECT_THAT(content.points, IsEmpty());
  ASSERT_THAT(notes, SizeIs(1));
  EXPECT_THAT(notes[0], HasSubstr("pdl: the journal has \"full\", this run \"consume\""));
  EXPECT_TRUE(std::filesystem::exists(journal.path() + ".old"));
}

TEST(Journal, AFreshStartKeepsTheInterruptedRunsJournalAside) {
  const TemporaryDirectory directory;
  JournalContent content;
  std::vector<std::string> notes;
  {
    Journal journal = open_journal(directory.path(), false, content, notes);
    ASSERT_TRUE(journal.append(some_point(1)).has_value());
  }
  open_journal(directory.path(), false, content, notes);
  EXPECT_THAT(content.points, IsEmpty());
  ASSERT_THAT(notes, SizeIs(1));
  EXPECT_THAT(notes[0], HasSubstr("--resume"));
}

TEST(Journal, ResumingWhereThereIsNothingStartsAfresh) {
  const TemporaryDirectory directory;
  JournalContent content;
  std::vector<std::string> notes;
  open_journal(directory.path(), true, content, notes);
  EXPECT_THAT(content.points, IsEmpty());
  EXPECT_THAT(notes, IsEmpty());
}

TEST(Journal, TwoAtOnceHaveAFileEachAndResumeTheirOwnRequest) {
  const TemporaryDirectory directory;
  JournalContent content;
  std::vector<std::string> notes;
  {
    Journal first = open_journal(directory.path(), false, content, notes, kKeys, "first");
    Journal second = open_journal(directory.path(), false, content, notes, kKeys, "second");
    EXPECT_NE(first.path(), second.path());
    ASSERT_TRUE(first.append(some_point(1)).has_value());
    ASSERT_TRUE(second.append(some_point(2)).has_value());
  }
  open_journal(directory.path(), true, content, notes, kKeys, "second");
  ASSERT_THAT(content.points, SizeIs(1));
  EXPECT_EQ(content.points[0].m, 2);
}

TEST(Journal, AFileThatIsNoJournalIsSetAside) {
  const TemporaryDirectory directory;
  JournalContent content;
  std::vector<std::string> notes;
  std::string path;
  {
    Journal journal = open_journal(directory.path(), false, content, notes);
    path = journal.path();
  }
  {
    std::ofstream(path) << std::string("\0\xff not a journal\n[1, 2\n", 22);
  }
  const Journal journal = open_journal(directory.path(), true, content, notes);
  EXPECT_THAT(content.points, IsEmpty());
  EXPECT_THAT(notes, SizeIs(1));
}

}  // namespace
}  // namespace octile::test
