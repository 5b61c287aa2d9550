// SPDX-License-Identifier: Apache-2.0
// `octile tune --mpi` as a process of its own; tests/tune/mpi_test.cpp has whole jobs.
#include "cli/command.h"
#include "octile/tune/mpi_job.h"

#include <gmock/gmock.h>

namespace octile::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using MpiCommandTest = CommandTest;

TEST_F(MpiCommandTest, ALibraryThatIsNoneIsWrongUsage) {
  const RunResult result = run({"tune", "--n", "64", "--k", "64", "--mpi", "intel"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("wanted openmpi, mpich or auto, got \"intel\""));
}

TEST_F(MpiCommandTest, WithoutALauncherItIsWrongUsageAndSaysHowToStart) {
  const RunResult result = run({"tune", "--mpi", "--n", "64", "--k", "64"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("mpirun -n 8 octile tune --mpi"));
}

TEST_F(MpiCommandTest, AnAbsentComponentIsAFailureThatSaysHowToGetIt) {
  const RunResult result = run({"tune", "--mpi", "openmpi", "--n", "64", "--k", "64"},
                               {.environment = {{"OCTILE_MPI_PATH", path("nothing.so")}}});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr(path("nothing.so")), HasSubstr("apt-get install libopenmpi-dev openmpi-bin")));
}

TEST_F(MpiCommandTest, AProcessAloneIsAJobOfOne) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "MPI's libraries are not built for ThreadSanitizer";
#endif
  if (const MpiComponent mpich = open_mpi_component(MpiLibrary::mpich); mpich.api == nullptr) {
    GTEST_SKIP() << mpich.reason;
  }
  // What MPI's library keeps until the end of the process is no leak of ours.
  const RunResult result = run(
      {"tune", "--mpi", "mpich", "--n", "64", "--k", "64", "--m", "1", "--time-budget", "10", "--tables", path("tables")},
      {.environment = {{"ASAN_OPTIONS", "detect_leaks=0:intercept_tls_get_addr=0"}, {"OCTILE_NUM_THREADS", "1"}}});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("tuning over MPI: 1 device on 1 host"));
  EXPECT_THAT(result.out, HasSubstr("wrote " + path("tables")));
}

}  // namespace
}  // namespace octile::cli
