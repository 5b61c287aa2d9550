// SPDX-License-Identifier: Apache-2.0
// Counters of a CPU's disturbances, from fake files and from this process itself.
#include "octile/kernels/cpu/cpu_conditions.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <map>
#include <memory>

namespace octile::cpu {
namespace {

// Shared, so that a test can change them under the reader.
using Files = std::shared_ptr<std::map<std::string, std::string>>;

FileReader reader_of(const Files& files) {
  return [files](const std::string& path) -> std::optional<std::string> {
    const auto found = files->find(path);
    return found == files->end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(CpuConditions, TimeAtTheQuotaOfAnyGroupAboveCounts) {
  const auto files = std::make_shared<std::map<std::string, std::string>>(std::map<std::string, std::string>{
      {"/proc/self/cgroup", "0::/jobs/7\n"},
      {"/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"},
      {"/sys/fs/cgroup/jobs/7/cpu.stat", "usage_usec 900\nnr_periods 10\nnr_throttled 1\nthrottled_usec 2500\n"},
      {"/sys/fs/cgroup/jobs/cpu.stat", "usage_usec 900\nthrottled_usec 1000000\n"},
  });
  const CpuConditions conditions(reader_of(files), {0});
  ASSERT_TRUE(conditions.now().throttled_s.has_value());
  EXPECT_DOUBLE_EQ(*conditions.now().throttled_s, 1.0025);
  (*files)["/sys/fs/cgroup/jobs/7/cpu.stat"] = "throttled_usec 3500\n";
  EXPECT_DOUBLE_EQ(*conditions.now().throttled_s, 1.0035);
}

TEST(CpuConditions, VersionOneCountsNanoseconds) {
  const auto files = std::make_shared<std::map<std::string, std::string>>(std::map<std::string, std::string>{
      {"/proc/self/cgroup", "4:cpu,cpuacct:/a\n"},
      {"/proc/self/mountinfo", "33 25 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"},
      {"/sys/fs/cgroup/cpu/a/cpu.stat", "nr_periods 10\nnr_throttled 1\nthrottled_time 5000000\n"},
  });
  const CpuConditions conditions(reader_of(files), {0});
  ASSERT_TRUE(conditions.now().throttled_s.has_value());
  EXPECT_DOUBLE_EQ(*conditions.now().throttled_s, 0.005);
}

TEST(CpuConditions, TimeStolenFromItsOwnCoresCounts) {
  const auto files = std::make_shared<std::map<std::string, std::string>>(std::map<std::string, std::string>{
      {"/proc/stat",
       "cpu  10 0 10 900 0 0 0 60 0 0\ncpu0 1 0 1 90 0 0 0 10 0 0\ncpu1 1 0 1 90 0 0 0 20 0 0\ncpu10 1 0 1 90 0 0 0 30 0 0\n"
       "intr 1 2 3\n"},
  });
  const double ticks_per_s = static_cast<double>(::sysconf(_SC_CLK_TCK));
  EXPECT_DOUBLE_EQ(CpuConditions(reader_of(files), {0, 10}).now().stolen_s.value(), 40 / ticks_per_s);
  EXPECT_DOUBLE_EQ(CpuConditions(reader_of(files), {1}).now().stolen_s.value(), 20 / ticks_per_s);
}

TEST(CpuConditions, WhatNoFileSaysIsNotKnown) {
  const auto files = std::make_shared<std::map<std::string, std::string>>();
  const DeviceConditions now = CpuConditions(reader_of(files), {0}).now();
  EXPECT_FALSE(now.throttled_s.has_value());
  EXPECT_FALSE(now.stolen_s.has_value());
  EXPECT_FALSE(now.sm_clock_mhz.has_value());
  ASSERT_TRUE(now.preemptions.has_value()) << "the system always counts them";
  EXPECT_GE(*now.preemptions, 0);
}

TEST(CpuConditions, ThisMachinesCountersNeverFall) {
  const CpuConditions conditions(read_small_file, affinity_cpus());
  const DeviceConditions before = conditions.now();
  const DeviceConditions after = conditions.now();
  EXPECT_GE(after.preemptions.value(), before.preemptions.value());
  EXPECT_GE(after.throttled_s.value_or(0), before.throttled_s.value_or(0));
  EXPECT_GE(after.stolen_s.value_or(0), before.stolen_s.value_or(0));
}

}  // namespace
}  // namespace octile::cpu
