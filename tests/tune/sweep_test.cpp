// SPDX-License-Identifier: Apache-2.0
// What a run's options become: the problem that is measured, and the keys of its table and journal.
#include "octile/tune/sweep.h"

#include "octile/kernels/known_devices.h"
#include "octile/tune/session.h"
#include "support/simulated_device.h"

#include <gtest/gtest.h>

namespace octile::test {
namespace {

constexpr Pdl kModes[] = {Pdl::off, Pdl::consume, Pdl::full};

TEST(Sweep, TheLaunchModeOfTheOptionsIsTheProblemsAndTheWorkers) {
  for (const Pdl mode : kModes) {
    RunOptions options;
    options.pdl = mode;
    EXPECT_EQ(problem_of(options, {"qkv", 48, 64}).pdl, mode);
    EXPECT_EQ(measure_settings(options, 1).problem.pdl, mode);
  }
}

TEST(Sweep, ATablesLaunchModeIsTheProblemsWhereTheDeviceHasItAndOffElsewhere) {
  const SimulatedBackend cpu(parse_scenario(""));
  for (const Pdl mode : kModes) {
    Problem problem;
    problem.n = 48;
    problem.k = 64;
    problem.pdl = mode;
    EXPECT_EQ(table_key(*known_device("NVIDIA_H200"), problem, "row_major").pdl, to_string(mode));
    EXPECT_EQ(table_key(*known_device("NVIDIA_B200"), problem, "row_major").pdl, to_string(mode));
    EXPECT_EQ(table_key(*known_device("NVIDIA_L40S"), problem, "row_major").pdl, "off");
    EXPECT_EQ(table_key(cpu.info(), problem, "fake_packed").pdl, "off");
    EXPECT_EQ(table_key(*known_device("AMD_EPYC-avx512bf16-2t"), problem, "avx512").pdl, "off");
  }
}

TEST(Sweep, AJournalsHardKeysNameTheLaunchModeWhereItMatters) {
  const SimulatedBackend backend(parse_scenario(""));
  for (const Pdl mode : kModes) {
    RunOptions options;
    options.pdl = mode;
    EXPECT_EQ(hard_keys_of_run(backend, *known_device("NVIDIA_H200"), options).at("pdl"), to_string(mode));
    EXPECT_EQ(hard_keys_of_run(backend, *known_device("NVIDIA_L40S"), options).at("pdl"), "off");
    EXPECT_EQ(hard_keys_of_run(backend, backend.info(), options).at("pdl"), "off");
  }
}

TEST(Sweep, TablesAndJournalsNameTheSumsAndTheDefaultByTheNameOfWhatItIs) {
  const SimulatedBackend backend(parse_scenario(""));
  for (const auto& [asked, name] : {std::pair{Accumulate::device_default, "fast"}, std::pair{Accumulate::fast, "fast"},
                                    std::pair{Accumulate::precise, "precise"}}) {
    RunOptions options;
    options.accumulate = asked;
    EXPECT_EQ(hard_keys_of_run(backend, *known_device("NVIDIA_H200"), options).at("accumulate"), name);
    EXPECT_EQ(table_key(*known_device("NVIDIA_H200"), problem_of(options, {"qkv", 48, 64}), "row_major").accumulate, name);
    EXPECT_EQ(measure_settings(options, 1).problem.accumulate, asked);
  }
}

}  // namespace
}  // namespace octile::test
