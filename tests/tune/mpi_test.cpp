// SPDX-License-Identifier: Apache-2.0
// Runs over MPI as users start them: a launcher, several processes of the fake device, "hosts" by name; whole, killed and
// interrupted. Once for each of the two libraries; skipped where it is not installed.
#include "octile/core/format.h"
#include "tune/simulated_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "octile/tune/mpi_job.h"

namespace octile::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// The launcher of a library, under names that no other library uses; "" where it is not installed.
std::string launcher_of(MpiLibrary library) {
  const std::vector<std::string> names = library == MpiLibrary::openmpi
                                             ? std::vector<std::string>{"mpirun.openmpi", "orterun"}
                                             : std::vector<std::string>{"mpiexec.mpich", "mpiexec.hydra"};
  const char* path = std::getenv("PATH");
  for (const std::string& name : names) {
    std::string_view rest = path != nullptr ? path : "";
    while (!rest.empty()) {
      const std::string_view folder = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
      const std::string file = format("{}/{}", folder, name);
      if (::access(file.c_str(), X_OK) == 0) {
        return file;
      }
    }
  }
  return {};
}

// A launcher and its processes.
class Job {
 public:
  // One process for each of `hosts`, which runs this test program as a tuner with `arguments`.
  Job(MpiLibrary launcher, const TemporaryDirectory& directory, const std::vector<std::string>& hosts,
      const std::vector<std::string>& arguments)
      : log_(directory.file("job.log")) {
    std::vector<std::string> words{launcher_of(launcher)};
    if (launcher == MpiLibrary::openmpi) {
      words.insert(words.end(), {"--oversubscribe", "--bind-to", "none"});
    }
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      if (i > 0) {
        words.emplace_back(":");
      }
      // What MPI's libraries keep until the end of a process is no leak of ours.
      words.insert(words.end(),
                   {"-n", "1", "env", "OCTILE_MPI_HOST=" + hosts[i], "ASAN_OPTIONS=detect_leaks=0:intercept_tls_get_addr=0",
                    std::filesystem::read_symlink("/proc/self/exe"), "tune"});
      words.insert(words.end(), arguments.begin(), arguments.end());
    }
    std::vector<char*> argv;
    for (std::string& word : words) {
      argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    EXPECT_EQ(::posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ), 0) << words[0];
    ::posix_spawn_file_actions_destroy(&files);
  }
  ~Job() {
    if (pid_ > 0) {
      ::kill(pid_, SIGTERM);
      wait(true);
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // The launcher's exit status; -1 and a failure where it does not end.
  int wait(bool is_told_to_end = false) {
    int status = 0;
    for (int i = 0; i < 6000; ++i) {
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (!is_told_to_end) {
      ADD_FAILURE() << "the job does not end: " << log();
    }
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return -1;
  }
  void send_signal(int number) const { ::kill(pid_, number); }
  std::string log() const { return read_text(log_); }

 private:
  std::string log_;
  pid_t pid_ = -1;
};

// Lines of points in the journals of a directory.
std::int64_t journalled_points(const std::string& directory) {
  std::int64_t points = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    if (file.path().extension() == ".journal") {
      const std::string text = read_text(file.path());
      for (std::size_t at = text.find("{\"point\""); at != std::string::npos; at = text.find("{\"point\"", at + 1)) {
        points += text.find('\n', at) != std::string::npos ? 1 : 0;
      }
    }
  }
  return points;
}

bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return condition();
}

class Mpi : public testing::TestWithParam<MpiLibrary> {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "MPI's libraries are not built for ThreadSanitizer";
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "MPI's libraries are not built for ThreadSanitizer";
#endif
#endif
    const MpiComponent component = open_mpi_component(GetParam());
    if (component.api == nullptr) {
      GTEST_SKIP() << "the component of " << to_string(GetParam()) << " is not built: " << component.reason;
    }
    if (launcher_of(GetParam()).empty()) {
      GTEST_SKIP() << "no launcher of " << to_string(GetParam()) << " in PATH";
    }
  }

  std::vector<std::string> arguments(const std::string& scenario, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> result{scenario, directory_.path(), format("--mpi-{}", to_string(GetParam()))};
    result.insert(result.end(), more.begin(), more.end());
    return result;
  }
  pid_t pid_of_rank(int rank) const {
    return static_cast<pid_t>(std::atoi(read_text(directory_.file(format("rank-{}.pid", rank))).c_str()));
  }

  const ScopedSystemVariable root_{"OMPI_ALLOW_RUN_AS_ROOT", "1"};
  const ScopedSystemVariable root_indeed_{"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"};
  const TemporaryDirectory directory_;
};

// Two winners; in each interval one M is the weakest, so that its proof is the entry's in whatever order points are
// measured. Long enough that each rank takes up points.
constexpr const char* kQuick = "noise:0,ratio:0:1.5,ratio:0:1.6@2,ratio:2:2.3@12,ratio:2:2.1@16,ratio:2:2.4@17,cost:100";
const std::string kSlow = std::string(kQuick) + ",sleep:1";
const std::string kSlower = std::string(kQuick) + ",sleep:6";
const std::vector<std::string> kMList = {"1", "2", "4", "8", "16", "32", "64"};

TEST_P(Mpi, RanksOfSeveralHostsShareTheWorkAndFindWhatOneProcessFinds) {
  const TemporaryDirectory alone;
  TuneOptions options = tune_options(alone.path(), kSlow);
  options.m_list = {1, 2, 4, 8, 16, 32, 64};
  ASSERT_TRUE(tune_simulated(options, kQuick).has_value());
  for (const std::vector<std::string>& hosts : {std::vector<std::string>{"a", "b"}, {"a", "a", "b"}}) {
    std::filesystem::remove_all(directory_.path());
    std::filesystem::create_directories(directory_.path());
    Job job(GetParam(), directory_, hosts, arguments(kSlow, kMList));
    ASSERT_EQ(job.wait(), 0) << job.log();
    EXPECT_THAT(job.log(),
                AllOf(HasSubstr("2 devices on 2 hosts"), HasSubstr("fake small m="), HasSubstr("b/fake small m=")));
    if (hosts.size() == 3) {
      EXPECT_THAT(job.log(), HasSubstr("rank 1 has none")) << "a host's device is driven once, by its first rank";
    }
    const auto expected = tables_in(alone.path());
    const auto found = tables_in(directory_.path());
    ASSERT_THAT(found, SizeIs(2));
    for (const auto& [name, table] : found) {
      SCOPED_TRACE(name);
      expect_same_entries(expected.at(name), table);
    }
    EXPECT_EQ(journalled_points(directory_.path()), 0) << "the journal goes once the tables are written";
  }
}

TEST_P(Mpi, AKilledRankLosesNothingThatWasMeasured) {
  for (const int rank : {1, 0}) {
    std::filesystem::remove_all(directory_.path());
    std::filesystem::create_directories(directory_.path());
    std::int64_t measured = 0;
    {
      Job job(GetParam(), directory_, {"a", "b", "c"}, arguments(kSlower, kMList));
      ASSERT_TRUE(comes_true([&] { return journalled_points(directory_.path()) >= 3; })) << job.log();
      ::kill(pid_of_rank(rank), SIGKILL);
      EXPECT_NE(job.wait(), 0) << "MPI ends the job";
      measured = journalled_points(directory_.path());
      EXPECT_GE(measured, 3);
      EXPECT_THAT(tables_in(directory_.path()), IsEmpty());
    }
    std::vector<std::string> again = kMList;
    again.emplace_back("--resume");
    Job job(GetParam(), directory_, {"a", "b", "c"}, arguments(kSlow, again));
    ASSERT_EQ(job.wait(), 0) << job.log();
    EXPECT_THAT(job.log(), HasSubstr(format("{} points are there", measured)));
    const auto tables = tables_in(directory_.path());
    EXPECT_THAT(tables, SizeIs(2));
    for (const auto& [name, table] : tables) {
      ASSERT_FALSE(table.entries.empty());
      EXPECT_EQ(table.entries.front().m_lo, 1);
      EXPECT_EQ(table.entries.back().m_hi, 64);
    }
  }
}

TEST_P(Mpi, AnInterruptedJobKeepsItsJournal) {
  Job job(GetParam(), directory_, {"a", "b"}, arguments(kSlower, kMList));
  ASSERT_TRUE(comes_true([&] { return journalled_points(directory_.path()) >= 2; })) << job.log();
  job.send_signal(SIGTERM);
  job.wait();  // Its status is the launcher's own affair: MPICH's says 0.
  EXPECT_GE(journalled_points(directory_.path()), 2);
  EXPECT_THAT(tables_in(directory_.path()), IsEmpty());
}

TEST_P(Mpi, ASignalToOneRankEndsTheWholeRunInGoodOrder) {
  Job job(GetParam(), directory_, {"a", "b"}, arguments(kSlower, kMList));
  ASSERT_TRUE(comes_true([&] { return journalled_points(directory_.path()) >= 2; })) << job.log();
  ::kill(pid_of_rank(1), SIGTERM);
  EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.log();
  EXPECT_GE(journalled_points(directory_.path()), 2);
}

TEST_P(Mpi, AnErrorBeforeTheRunEndsEveryRank) {
  const std::string gone = directory_.write("gone", "");
  Job job(GetParam(), directory_, {"a", "b"}, arguments("gone:fake:" + gone));
  EXPECT_NE(job.wait(), 0);
  EXPECT_THAT(job.log(), HasSubstr("no device fake"));
}

TEST_P(Mpi, TheComponentOfTheOtherLibraryIsRefused) {
  const MpiLibrary other = GetParam() == MpiLibrary::openmpi ? MpiLibrary::mpich : MpiLibrary::openmpi;
  Job job(GetParam(), directory_, {"a", "b"}, {"noise:0", directory_.path(), format("--mpi-{}", to_string(other))});
  EXPECT_NE(job.wait(), 0);
  EXPECT_THAT(job.log(), AllOf(HasSubstr(format("use --mpi {}", to_string(GetParam()))), Not(HasSubstr("devices on"))));
  EXPECT_THAT(tables_in(directory_.path()), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Libraries, Mpi, testing::Values(MpiLibrary::openmpi, MpiLibrary::mpich),
                         [](const auto& library) { return std::string(to_string(library.param)); });

// The variables by which launchers are known, as if none had started this process.
class MpiEnvironment : public testing::Test {
 protected:
  const ScopedSystemVariable openmpi_{"OMPI_COMM_WORLD_SIZE", nullptr};
  const ScopedSystemVariable pmi_{"PMI_SIZE", nullptr};
  const ScopedSystemVariable pmix_{"PMIX_RANK", nullptr};
  const ScopedSystemVariable slurm_{"SLURM_NTASKS", nullptr};
};

TEST_F(MpiEnvironment, TheLauncherIsKnownByWhatItSets) {
  EXPECT_FALSE(mpi_launcher().has_value());
  {
    const ScopedSystemVariable set("OMPI_COMM_WORLD_SIZE", "4");
    ASSERT_TRUE(mpi_launcher().has_value());
    EXPECT_EQ(mpi_launcher()->library, MpiLibrary::openmpi);
    EXPECT_EQ(mpi_launcher()->ranks, 4);
  }
  {
    const ScopedSystemVariable set("PMI_SIZE", "8");
    ASSERT_TRUE(mpi_launcher().has_value());
    EXPECT_EQ(mpi_launcher()->library, MpiLibrary::mpich);
    EXPECT_EQ(mpi_launcher()->ranks, 8);
  }
  const ScopedSystemVariable rank("PMIX_RANK", "0");
  const ScopedSystemVariable tasks("SLURM_NTASKS", "16");
  ASSERT_TRUE(mpi_launcher().has_value());
  EXPECT_EQ(mpi_launcher()->library, MpiLibrary::openmpi);
  EXPECT_EQ(mpi_launcher()->ranks, 16);
}

TEST_F(MpiEnvironment, WithoutALauncherTheMessageSaysHowToStart) {
  const auto job = MpiJob::join(MpiLibrary::automatic);
  ASSERT_FALSE(job.has_value());
  EXPECT_EQ(job.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(job.error().message, HasSubstr("mpirun -n 8 octile tune --mpi"));
}

TEST_F(MpiEnvironment, AnAbsentComponentIsNamedWithHowToGetIt) {
  const ScopedSystemVariable nowhere("OCTILE_MPI_PATH", "/nowhere/component.so");
  const auto job = MpiJob::join(MpiLibrary::mpich);
  ASSERT_FALSE(job.has_value());
  EXPECT_EQ(job.error().code, ErrorCode::unavailable);
  EXPECT_THAT(job.error().message, AllOf(HasSubstr("the mpich component is not available: not found: /nowhere/component.so"),
                                         HasSubstr("apt-get install libmpich-dev mpich"), HasSubstr("OCTILE_MPI_PATH")));
}

TEST_F(MpiEnvironment, AFileThatIsTheOtherLibrarysComponentIsRefused) {
  const MpiComponent openmpi = open_mpi_component(MpiLibrary::openmpi);
  if (openmpi.api == nullptr) {
    GTEST_SKIP() << openmpi.reason;
  }
  const ScopedSystemVariable file("OCTILE_MPI_PATH", openmpi.path.c_str());
  EXPECT_EQ(open_mpi_component(MpiLibrary::openmpi).api, openmpi.api);
  const MpiComponent mpich = open_mpi_component(MpiLibrary::mpich);
  EXPECT_EQ(mpich.api, nullptr);
  EXPECT_THAT(mpich.reason, HasSubstr("is the component of openmpi"));
}

TEST(MpiLibraryWord, OtherWordsAreRefusedWithThoseThatAreTaken) {
  EXPECT_EQ(parse_mpi_library("auto").value(), MpiLibrary::automatic);
  EXPECT_EQ(parse_mpi_library("mpich").value(), MpiLibrary::mpich);
  const auto wrong = parse_mpi_library("intel");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().message, "wanted openmpi, mpich or auto, got \"intel\"");
}

}  // namespace
}  // namespace octile::test
