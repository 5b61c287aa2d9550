// SPDX-License-Identifier: Apache-2.0
// The loop over the places of a fault.
#include "faults/fault_test.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>

namespace octile::test {
namespace {

// Of the places beyond the first few a sample is tried, evenly spread on a logarithmic scale: allocations are up to
// millions. OCTILE_FAULT_STEPS sets how many between N and 2 N.
constexpr std::uint64_t kAll = 5;
constexpr std::uint64_t kStepsAnOctave = 2;

std::uint64_t next_place(std::uint64_t nth) {
  const char* text = std::getenv("OCTILE_FAULT_STEPS");
  const std::uint64_t steps =
      std::max<std::uint64_t>(1, text == nullptr ? kStepsAnOctave : std::strtoull(text, nullptr, 10));
  return nth + (nth < kAll ? 1 : std::max<std::uint64_t>(1, nth / steps));
}

}  // namespace

void FaultTest::SetUp() {
  // Hundreds of runs that sync their files: not to a disk, where there is memory.
  if (::access("/dev/shm", W_OK) == 0) {
    ::setenv("TMPDIR", "/dev/shm", 0);
  }
  CommandTest::SetUp();
}

cli::RunResult FaultTest::run_with(const Work& work, const std::vector<std::string>& arguments, const Fault* fault,
                                   std::uint64_t nth, bool& failed) {
  cli::Invocation options;
  options.program = work.program;
  options.environment = work.environment;
  options.timeout_s = 60;
  const std::string state = path("fault_state");
  if (fault != nullptr) {
    std::ofstream(state, std::ios::binary) << std::string(16, '\0');
    options.environment["LD_PRELOAD"] = OCTILE_FAULTS;
    options.environment["OCTILE_FAULT_STATE"] = state;
    options.environment["OCTILE_FAULT"] =
        fault->group + ":" + std::to_string(nth) + (fault->and_all_after ? "+" : "") + ":" + std::to_string(fault->error);
  }
  cli::RunResult result = run(arguments, options);
  if (fault != nullptr) {
    const std::string bytes = cli::read_file(state);
    failed = bytes.size() == 16 && bytes[8] != 0;
  }
  return result;
}

std::uint64_t FaultTest::calls_of(const std::string& group, const Work& work) {
  bool failed = false;
  const Fault never{group, 0};
  work.reset();
  run_with(work, work.arguments, &never, std::numeric_limits<std::uint64_t>::max(), failed);
  const std::string state = cli::read_file(path("fault_state"));
  std::uint64_t calls = 0;
  std::memcpy(&calls, state.data(), std::min(state.size(), sizeof calls));
  return calls;
}

int FaultTest::inject(const Fault& fault, const Work& work, const Places& places) {
  bool failed = false;
  work.reset();
  const cli::RunResult clean = run_with(work, work.arguments, nullptr, 0, failed);
  EXPECT_EQ(clean.status, 0) << clean.err;
  work.check("without a fault");
  int faults = 0;
  int terminated = 0;
  for (std::uint64_t nth = places.first;; nth = places.stride > 0 ? nth + places.stride : next_place(nth)) {
    const std::string trace = "call " + std::to_string(nth) + " of " + fault.group +
                              (fault.and_all_after ? " and all after" : "") + " fails with " + std::strerror(fault.error);
    SCOPED_TRACE(trace);
    work.reset();
    const cli::RunResult result = run_with(work, work.arguments, &fault, nth, failed);
    if (!failed) {
      EXPECT_EQ(result.status, 0) << result.err;
      break;
    }
    ++faults;
    if (result.status == 4 && work.terminates_of_hundred > 0) {
      ++terminated;
      continue;
    }
    EXPECT_THAT(result.status, testing::AnyOf(0, 1)) << result.err;
    if (result.status == 1) {
      EXPECT_THAT(result.err, testing::AllOf(testing::HasSubstr(work.message), testing::Not(testing::IsEmpty())));
    } else if (work.same_output && result.out != clean.out) {
      EXPECT_THAT(result.err, testing::HasSubstr("warning: ")) << result.out;
    }
    work.check(trace);
    if (!work.repeats) {
      continue;
    }
    const cli::RunResult after =
        run_with(work, work.arguments_again.empty() ? work.arguments : work.arguments_again, nullptr, 0, failed);
    EXPECT_EQ(after.status, 0) << after.err;
    if (work.same_output) {
      EXPECT_EQ(after.out, clean.out) << after.err;
    }
    work.check(trace + ", and a run after it");
    if (HasFailure() && faults > 400) {
      break;
    }
  }
  EXPECT_GT(faults, 0) << "nothing of the group " << fault.group << " is called";
  EXPECT_LE(terminated * 100, faults * work.terminates_of_hundred) << terminated << " of " << faults;
  std::printf("%s%s: %d faults%s\n", fault.group.c_str(), fault.and_all_after ? " and all after" : "", faults,
              terminated == 0 ? "" : (", " + std::to_string(terminated) + " ended the process").c_str());
  return faults;
}

}  // namespace octile::test
