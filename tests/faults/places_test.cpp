// SPDX-License-Identifier: Apache-2.0
// Machines that lack what others have: no home, one that cannot be written, no folder for temporary files, a clock that
// jumps; and many processes at once on one cache.
#include "faults/fault_test.h"

#include <filesystem>
#include <future>

#include <gmock/gmock.h>

namespace octile::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Places : public FaultTest {
 protected:
  const std::vector<std::string> warmup_{"warmup", "--n", "4096", "--k", "4096", "--device-name", "NVIDIA_L40S"};
  const std::map<std::string, std::string> fake_gpu_{{"OCTILE_CUDA_PATH", OCTILE_FAULT_GPU}};

  cli::Invocation with(std::map<std::string, std::string> environment) const {
    cli::Invocation options;
    options.environment = std::move(environment);
    options.environment.insert(fake_gpu_.begin(), fake_gpu_.end());
    return options;
  }
};

TEST_F(Places, WithoutAHomeKernelsAreCompiledAnewAndItIsSaid) {
  const cli::RunResult result = run(warmup_, with({{"HOME", ""}, {"XDG_DATA_HOME", ""}, {"XDG_CACHE_HOME", ""}}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("cubin cache: none, since neither OCTILE_CACHE_DIR, XDG_CACHE_HOME nor HOME is set"));
  EXPECT_THAT(result.out, HasSubstr(" 0 found in the cache"));
}

TEST_F(Places, InAHomeThatCannotBeWrittenWarmupWorksAndTuneSaysSoAtOnce) {
  // Nobody can make a folder there, root included.
  const std::map<std::string, std::string> home{
      {"HOME", "/proc/self"}, {"XDG_DATA_HOME", "/proc/self/data"}, {"XDG_CACHE_HOME", "/proc/self/cache"}};
  const cli::RunResult warm = run(warmup_, with(home));
  EXPECT_EQ(warm.status, 0) << warm.err;
  EXPECT_THAT(warm.err, testing::AllOf(HasSubstr("going on without it"), HasSubstr("/proc/self/cache")));
  const cli::RunResult tuned = run({"tune", "--n", "64", "--k", "64", "--m", "1", "--device", "cpu"}, with(home));
  EXPECT_EQ(tuned.status, 1);
  EXPECT_THAT(tuned.err, testing::AllOf(HasSubstr("error: "), HasSubstr("/proc/self/data")));
}

TEST_F(Places, NothingNeedsAFolderForTemporaryFiles) {
  const auto environment = with({{"TMPDIR", path("none")}});
  EXPECT_EQ(run(warmup_, environment).status, 0);
  const cli::RunResult imported = run({"table", "import", cli::l40s_table(4096, 4096), "--out", path("out")}, environment);
  EXPECT_EQ(imported.status, 0) << imported.err;
  EXPECT_EQ(run({"table", "lint", path("out")}, environment).status, 0);
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(Places, ADriverOlderThanTheCompilerIsNamedAndTheCpuGoesOn) {
  struct Case {
    const char* version;
    std::vector<std::string> said;
  };
  const std::vector<Case> cases = {
      {"12000", {"cuda:0: NVIDIA_H200", "available, version 13.0, but NVRTC 13.0 (", "newer CUDA than the driver's 12.0"}},
      {"11080", {"no CUDA device: ", "11.8", "12.0"}}};
  for (const Case& one : cases) {
    const auto environment = with({{"OCTILE_FAKE_CUDA_VERSION", one.version}});
    const cli::RunResult devices = run({"devices"}, environment);
    EXPECT_EQ(devices.status, 0) << devices.err;
    EXPECT_THAT(devices.out, HasSubstr("cpu: "));
    for (const std::string& words : one.said) {
      EXPECT_THAT(devices.out, HasSubstr(words)) << one.version;
    }
    cli::Invocation linear = environment;
    linear.program = OCTILE_FAULT_TARGET;
    const cli::RunResult ran = run({"linear", "cpu"}, linear);
    EXPECT_EQ(ran.status, 0) << ran.err;
  }
}

TEST_F(Places, AMachineCodeThatTheDriverRefusesIsAnErrorThatNamesBothVersions) {
  cli::Invocation linear = with({{"OCTILE_FAKE_CUDA_VERSION", "12000"},
                                 {"OCTILE_FAKE_CUDA_REFUSES_CODE", "1"},
                                 {"OCTILE_CACHE_DIR", path("cache")},
                                 {"OCTILE_CUTLASS_PATH", path("none")}});
  linear.program = OCTILE_FAULT_TARGET;
  const cli::RunResult ran = run({"beside", "cuda:0"}, linear);
  EXPECT_EQ(ran.status, 1) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("the CPU went on"));
  EXPECT_THAT(ran.err, testing::AllOf(HasSubstr("a fake driver's failure"), HasSubstr("NVRTC 13.0"), HasSubstr("12.0")));
}

TEST_F(Places, APartOfAGpuHasTablesOfItsOwn) {
  const auto environment = with({{"OCTILE_FAKE_CUDA_NAME", "NVIDIA H100/80GB HBM3 MIG 1g.18gb"}});
  const std::string name = "NVIDIA_H100_80GB_HBM3_MIG_1g.18gb";
  EXPECT_THAT(run({"devices"}, environment).out, HasSubstr("cuda:0: " + name + " (cuda"));
  const fs::path directory = fs::path(path("tables")) / name;
  fs::create_directories(directory);
  const fs::path table = directory / ("N=4096,K=4096,device_name=" + name + ",dtype=fp8_w8a8_channelwise.json");
  fs::copy_file(cli::l40s_table(4096, 4096), table);
  const cli::RunResult explained =
      run({"explain", "--device", "cuda:0", "--n", "4096", "--k", "4096", "--m", "1", "--tables", path("tables"), "--json"},
          environment);
  EXPECT_EQ(explained.status, 0) << explained.err;
  EXPECT_THAT(explained.out, HasSubstr(table.string()));
}

TEST_F(Places, AClockThatJumpsToThePastAndBackChangesNothing) {
  Work work;
  work.program = OCTILE_TUNER;
  work.arguments = {"tune", "ratio:0:1.5", path("tables"), "1", "4"};
  work.reset = [this] { fs::remove_all(path("tables")); };
  work.check = [this](const std::string&) {
    const cli::RunResult lint = run({"table", "lint", path("tables")});
    EXPECT_EQ(lint.status, 0) << lint.out << lint.err;
  };
  inject({"clock", 0}, work);
  inject({"clock", 0, true}, work);
}

TEST_F(Places, ThirtyTwoProcessesFillOneCache) {
  constexpr int kProcesses = 32;
  const cli::Invocation options = with({{"OCTILE_CACHE_DIR", path("cache")}});
  std::vector<std::future<cli::RunResult>> runs;
  for (int i = 0; i < kProcesses; ++i) {
    runs.push_back(std::async(std::launch::async, [&] { return run(warmup_, options); }));
  }
  for (auto& one : runs) {
    const cli::RunResult result = one.get();
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, testing::Not(HasSubstr("warning"))) << result.err;
  }
  const cli::RunResult after = run(warmup_, options);
  EXPECT_THAT(after.out, HasSubstr(" 0 compiled now, "));
  for (const auto& file : fs::directory_iterator(path("cache/cubin"))) {
    EXPECT_EQ(file.path().extension(), ".cubin") << file.path();
  }
}

}  // namespace
}  // namespace octile::test
