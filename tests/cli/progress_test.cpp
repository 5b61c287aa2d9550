// SPDX-License-Identifier: Apache-2.0
// The progress bar and its plain lines.
#include "octile/cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace octile::cli {
namespace {

TuneProgress at(std::int64_t done, std::int64_t total) {
  TuneProgress progress;
  progress.done = done;
  progress.total = total;
  progress.elapsed_s = 12;
  progress.left_s = 75;
  progress.doing = "qkv m=16";
  return progress;
}

TEST(Progress, TheBarShowsShareAndTimeLeft) {
  EXPECT_EQ(progress_bar(at(12, 48), 200), "[#####---------------] 12/48  25 %, 1 min 15 s left, qkv m=16");
}

TEST(Progress, TheBarIsCutToTheTerminal) {
  EXPECT_EQ(progress_bar(at(12, 48), 30), "[#####---------------] 12/48  ");
  EXPECT_EQ(progress_bar(at(12, 48), 0), "");
}

TEST(Progress, NothingToDoAndTooMuchDoneAreDrawn) {
  EXPECT_THAT(progress_bar(at(0, 0), 200), testing::StartsWith("[--------------------] 0/0   0 %"));
  EXPECT_THAT(progress_bar(at(9, 3), 200), testing::StartsWith("[####################] 9/3 100 %"));
}

TEST(Progress, TheEndSaysHowLongItTook) {
  TuneProgress progress = at(48, 48);
  progress.finished = true;
  progress.doing.clear();
  EXPECT_EQ(progress_bar(progress, 200), "[####################] 48/48 100 %, done in 12 s");
  EXPECT_EQ(progress_line(progress), "48/48 (100 %), done in 12 s");
}

TEST(Progress, ALineSaysTheSame) { EXPECT_EQ(progress_line(at(12, 48)), "12/48 (25 %), 1 min 15 s left: qkv m=16"); }

}  // namespace
}  // namespace octile::cli
