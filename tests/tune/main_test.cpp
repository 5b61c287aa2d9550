// SPDX-License-Identifier: Apache-2.0
// The test program's main: also the worker process of the tests ("worker SCENARIO --parent PID") and a whole tuner that a
// test may kill ("tune SCENARIO DIRECTORY [--resume] [M...]").
#include "tune/simulated_run.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace octile::test {
namespace {

int worker_main(int argc, char** argv) {
  if (argc != 5 || std::strcmp(argv[3], "--parent") != 0) {
    return 2;
  }
  const SimulatedBackend backend(parse_scenario(argv[2]));
  return serve_worker(std::atoi(argv[4]), finder_of(backend));
}

int tune_main(int argc, char** argv) {
  TuneOptions options = tune_options(argv[3], argv[2]);
  std::vector<std::int64_t> m_list;
  for (int i = 4; i < argc; ++i) {
    if (std::strcmp(argv[i], "--resume") == 0) {
      options.resume = true;
    } else {
      m_list.push_back(std::atoll(argv[i]));
    }
  }
  if (!m_list.empty()) {
    options.m_list = m_list;
  }
  const Expected<TuneSummary> summary = tune_in_processes(options, argv[2]);
  if (!summary) {
    std::fprintf(stderr, "%s\n", summary.error().message.c_str());
    return 1;
  }
  if (summary->interrupted_by != 0) {
    return 128 + summary->interrupted_by;
  }
  return summary->failure ? 1 : 0;
}

}  // namespace
}  // namespace octile::test

// An exception ends a test program with a message, as it should.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  if (argc > 2 && std::strcmp(argv[1], "worker") == 0) {
    return octile::test::worker_main(argc, argv);
  }
  if (argc > 3 && std::strcmp(argv[1], "tune") == 0) {
    return octile::test::tune_main(argc, argv);
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
