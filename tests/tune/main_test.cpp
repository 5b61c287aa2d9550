// SPDX-License-Identifier: Apache-2.0
// The test program's main: also the worker process of the tests ("worker SCENARIO --parent PID") and a whole tuner that a
// test may kill ("tune SCENARIO DIRECTORY [--resume] [--shard-2-of-8] [--devices] [--mpi-openmpi] [M...]"; with
// --devices on two, with --mpi-... as one process of a job, whose pid it leaves in the directory).
#include "octile/table/table_store.h"
#include "octile/tune/mpi_run.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <optional>

namespace octile::test {

std::map<std::string, TileTable> tables_in(const std::string& directory) {
  std::map<std::string, TileTable> tables;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    if (file.path().extension() == ".json") {
      std::vector<Finding> findings;
      Expected<TileTable> table = read_table(file.path(), findings);
      EXPECT_TRUE(table.has_value()) << (table ? "" : table.error().message);
      EXPECT_THAT(findings, testing::IsEmpty());
      if (table) {
        tables[file.path().filename()] = std::move(*table);
      }
    }
  }
  return tables;
}

// Everything but the dates. Times are differences on the simulated clock, which is at another place in another run.
void expect_same_entries(const TileTable& one, const TileTable& other) {
  ASSERT_EQ(one.entries.size(), other.entries.size());
  for (std::size_t i = 0; i < one.entries.size(); ++i) {
    const TableEntry& a = one.entries[i];
    const TableEntry& b = other.entries[i];
    SCOPED_TRACE("[" + std::to_string(a.m_lo) + ", " + std::to_string(a.m_hi) + "] " + a.kernel);
    EXPECT_EQ(a.m_lo, b.m_lo);
    EXPECT_EQ(a.m_hi, b.m_hi);
    EXPECT_EQ(a.kernel, b.kernel);
    EXPECT_EQ(a.config, b.config);
    EXPECT_EQ(a.kernel_source_hash, b.kernel_source_hash);
    EXPECT_EQ(a.vendor_version, b.vendor_version);
    EXPECT_EQ(a.inferred, b.inferred);
    EXPECT_NEAR(a.us.value(), b.us.value(), 1e-6 * a.us.value());
    EXPECT_NEAR(a.baseline_us.value(), b.baseline_us.value(), 1e-6 * a.baseline_us.value());
    EXPECT_NEAR(a.rel_error.value(), b.rel_error.value(), 1e-6 * a.rel_error.value());
    ASSERT_EQ(a.ratio.has_value(), b.ratio.has_value());
    if (a.ratio) {
      EXPECT_NEAR(a.ratio->mid, b.ratio->mid, 1e-6);
      EXPECT_NEAR(a.ratio->lo, b.ratio->lo, 1e-6);
      EXPECT_NEAR(a.ratio->hi, b.ratio->hi, 1e-6);
    }
  }
}

namespace {

int worker_main(int argc, char** argv) {
  if (argc != 5 || std::strcmp(argv[3], "--parent") != 0) {
    return 2;
  }
  const SimulatedBackend backend(parse_scenario(argv[2]));
  return serve_worker(std::atoi(argv[4]), finder_of(backend));
}

int status_of(const Expected<TuneSummary>& summary) {
  if (!summary) {
    std::fprintf(stderr, "%s\n", summary.error().message.c_str());
    return 1;
  }
  for (const std::string& note : summary->notes) {
    std::fprintf(stderr, "%s\n", note.c_str());
  }
  if (summary->interrupted_by != 0) {
    return 128 + summary->interrupted_by;
  }
  if (summary->failure) {
    std::fprintf(stderr, "%s\n", summary->failure->c_str());
  }
  return summary->failure ? 1 : 0;
}

int tune_over_mpi(const TuneOptions& options, const std::string& scenario, MpiLibrary library) {
  const auto fail = [](const Error& error) {
    std::fprintf(stderr, "%s\n", error.message.c_str());
    return 1;
  };
  const Expected<std::unique_ptr<MpiJob>> job = MpiJob::join(library);
  if (!job) {
    return fail(job.error());
  }
  std::ofstream(options.tables + "/rank-" + std::to_string((*job)->rank()) + ".pid") << ::getpid();
  const SimulatedBackend backend(parse_scenario(scenario));
  const auto tune_all = [&](HostedRun& run) {
    std::fprintf(stderr, "%s\n", run.description().c_str());
    TuneOptions on_all = options;
    on_all.devices = run.groups().at(0);
    on_all.progress = [](const TuneProgress& progress) { std::fprintf(stderr, "%s\n", progress.doing.c_str()); };
    return status_of(tune_with(on_all, run.hooks()));
  };
  const std::vector<std::string> ids = options.devices.empty() ? std::vector<std::string>{"fake"} : options.devices;
  return run_over_mpi(**job, ids, options, process_hooks(backend), {tune_all, fail});
}

int tune_main(int argc, char** argv) {
  TuneOptions options = tune_options(argv[3], argv[2]);
  std::vector<std::int64_t> m_list;
  std::optional<MpiLibrary> mpi;
  for (int i = 4; i < argc; ++i) {
    if (std::strcmp(argv[i], "--resume") == 0) {
      options.resume = true;
    } else if (std::strcmp(argv[i], "--devices") == 0) {
      options.devices = {"fake", "fake1"};
    } else if (std::string_view(argv[i]).starts_with("--mpi-")) {
      mpi = parse_mpi_library(argv[i] + std::strlen("--mpi-")).value();
    } else if (std::sscanf(argv[i], "--shard-%d-of-%d", &options.shard.index, &options.shard.count) == 2) {
    } else {
      m_list.push_back(std::atoll(argv[i]));
    }
  }
  if (!m_list.empty()) {
    options.m_list = m_list;
  }
  return mpi ? tune_over_mpi(options, argv[2], *mpi) : status_of(tune_in_processes(options, argv[2]));
}

// Without memory it ends as the command does: with status 1 and a message.
int as_the_command(int (*work)(int, char**), int argc, char** argv) {
  std::set_terminate([] {
    std::fputs("ended in the middle\n", stderr);
    std::_Exit(1);
  });
  try {
    return work(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("out of memory\n", stderr);
    return 1;
  }
}

}  // namespace
}  // namespace octile::test

// An exception ends a test program with a message, as it should.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  if (argc > 2 && std::strcmp(argv[1], "worker") == 0) {
    return octile::test::as_the_command(octile::test::worker_main, argc, argv);
  }
  if (argc > 3 && std::strcmp(argv[1], "tune") == 0) {
    return octile::test::as_the_command(octile::test::tune_main, argc, argv);
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
