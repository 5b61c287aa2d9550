// SPDX-License-Identifier: Apache-2.0
// Cores and memory a process may use, from texts as kernels and container engines write them.
#include "octile/core/cores.h"

#include <gtest/gtest.h>

#include <sched.h>

#include <map>
#include <thread>

namespace octile {
namespace {

// A machine described by its files; every other file is missing.
FileReader files(std::map<std::string, std::string> texts) {
  return [texts = std::move(texts)](const std::string& path) -> std::optional<std::string> {
    const auto found = texts.find(path);
    return found == texts.end() ? std::nullopt : std::optional(found->second);
  };
}

constexpr const char* kV2Mounts =
    "24 1 0:22 / /proc rw,nosuid - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kV1Mounts =
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:16 - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
    "34 31 0:31 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";

TEST(CgroupCpuQuota, IsReadFromVersion2) {
  const auto read = files(
      {{"/proc/self/cgroup", "0::/\n"}, {"/proc/self/mountinfo", kV2Mounts}, {"/sys/fs/cgroup/cpu.max", "250000 100000\n"}});
  EXPECT_EQ(cgroup_cpu_quota(read), 2.5);
}

TEST(CgroupCpuQuota, IsNoneWhereVersion2SaysMax) {
  const auto read = files(
      {{"/proc/self/cgroup", "0::/\n"}, {"/proc/self/mountinfo", kV2Mounts}, {"/sys/fs/cgroup/cpu.max", "max 100000\n"}});
  EXPECT_EQ(cgroup_cpu_quota(read), std::nullopt);
}

TEST(CgroupCpuQuota, IsTheSmallestOfAllGroupsAbove) {
  const auto read = files({{"/proc/self/cgroup", "0::/system.slice/job.service\n"},
                           {"/proc/self/mountinfo", kV2Mounts},
                           {"/sys/fs/cgroup/system.slice/job.service/cpu.max", "800000 100000\n"},
                           {"/sys/fs/cgroup/system.slice/cpu.max", "300000 100000\n"},
                           {"/sys/fs/cgroup/cpu.max", "max 100000\n"}});
  EXPECT_EQ(cgroup_cpu_quota(read), 3.0);
}

TEST(CgroupCpuQuota, IsReadFromVersion1) {
  const auto read = files({{"/proc/self/cgroup", "5:memory:/x\n3:cpuset:/\n2:cpu,cpuacct:/docker/abc\n0::/\n"},
                           {"/proc/self/mountinfo", kV1Mounts},
                           {"/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "150000\n"},
                           {"/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "50000\n"},
                           {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
                           {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}});
  EXPECT_EQ(cgroup_cpu_quota(read), 3.0);
}

TEST(CgroupCpuQuota, IsNoneWhereVersion1SaysMinusOne) {
  const auto read = files({{"/proc/self/cgroup", "2:cpu,cpuacct:/\n"},
                           {"/proc/self/mountinfo", kV1Mounts},
                           {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"},
                           {"/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}});
  EXPECT_EQ(cgroup_cpu_quota(read), std::nullopt);
}

TEST(CgroupCpuQuota, IsFoundInsideAContainerThatSeesOnlyItsOwnGroup) {
  // Version 1 without a cgroup namespace: the group counts from the host's root, the mount begins at the container's.
  const auto read = files({{"/proc/self/cgroup", "2:cpu:/docker/abc/inner\n"},
                           {"/proc/self/mountinfo", "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"},
                           {"/sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "400000\n"},
                           {"/sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}});
  EXPECT_EQ(cgroup_cpu_quota(read), 2.0);
}

TEST(CgroupCpuQuota, OfAGroupOutsideTheMountIsTheMountsOwn) {
  const auto read = files({{"/proc/self/cgroup", "2:cpu:/elsewhere\n"},
                           {"/proc/self/mountinfo", "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"},
                           {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}});
  EXPECT_EQ(cgroup_cpu_quota(read), 2.0);
}

TEST(CgroupCpuQuota, UnderstandsBlanksInMountPoints) {
  const auto read = files({{"/proc/self/cgroup", "0::/\n"},
                           {"/proc/self/mountinfo", "31 23 0:28 / /mnt/my\\040groups rw - cgroup2 none rw\n"},
                           {"/mnt/my groups/cpu.max", "100000 100000\n"}});
  EXPECT_EQ(cgroup_cpu_quota(read), 1.0);
}

TEST(CgroupCpuQuota, IsNoneWhereFilesAreMissingOrMakeNoSense) {
  EXPECT_EQ(cgroup_cpu_quota(files({})), std::nullopt);
  EXPECT_EQ(cgroup_cpu_quota(files({{"/proc/self/cgroup", "0::/\n"}, {"/proc/self/mountinfo", kV2Mounts}})), std::nullopt);
  for (const char* text :
       {"", "\n", "max", "100000", "abc def", "0 100000", "100000 0", "-5 100000", "1 2 3", "99999999999999999999 100000"}) {
    const auto read =
        files({{"/proc/self/cgroup", "0::/\n"}, {"/proc/self/mountinfo", kV2Mounts}, {"/sys/fs/cgroup/cpu.max", text}});
    EXPECT_EQ(cgroup_cpu_quota(read), std::nullopt) << "cpu.max: \"" << text << '"';
  }
  for (const char* text : {"::", "garbage", ":", "0:", "2:cpu", "\n\n"}) {
    const auto read = files({{"/proc/self/cgroup", text}, {"/proc/self/mountinfo", " - \nx - y\n1 2 3 - cgroup2 a b\n"}});
    EXPECT_EQ(cgroup_cpu_quota(read), std::nullopt) << "cgroup: \"" << text << '"';
  }
}

TEST(CgroupMemoryLimit, IsReadFromBothVersions) {
  EXPECT_EQ(cgroup_memory_limit(files({{"/proc/self/cgroup", "0::/a\n"},
                                       {"/proc/self/mountinfo", kV2Mounts},
                                       {"/sys/fs/cgroup/a/memory.max", "8589934592\n"},
                                       {"/sys/fs/cgroup/memory.max", "max\n"}})),
            std::int64_t{8} << 30);
  EXPECT_EQ(cgroup_memory_limit(files({{"/proc/self/cgroup", "4:memory:/a/b\n"},
                                       {"/proc/self/mountinfo", kV1Mounts},
                                       {"/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"},
                                       {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n"}})),
            std::int64_t{1} << 30);
}

TEST(CgroupMemoryLimit, IsNoneForTheLargestNumberOfVersion1) {
  EXPECT_EQ(cgroup_memory_limit(files({{"/proc/self/cgroup", "4:memory:/\n"},
                                       {"/proc/self/mountinfo", kV1Mounts},
                                       {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}})),
            std::nullopt);
}

TEST(UsableMemory, IsWhatIsAvailableCappedByTheGroup) {
  const std::string meminfo = "MemTotal:       24000 kB\nMemFree:        1000 kB\nMemAvailable:   20000 kB\n";
  EXPECT_EQ(usable_memory_bytes(files({{"/proc/meminfo", meminfo}})), 20000 * 1024);
  EXPECT_EQ(usable_memory_bytes(files({{"/proc/meminfo", meminfo},
                                       {"/proc/self/cgroup", "0::/\n"},
                                       {"/proc/self/mountinfo", kV2Mounts},
                                       {"/sys/fs/cgroup/memory.max", "4096000\n"}})),
            4096000);
}

TEST(UsableMemory, FallsBackToTheTotalAndThenToNothing) {
  EXPECT_EQ(usable_memory_bytes(files({{"/proc/meminfo", "MemTotal:       24000 kB\n"}})), 24000 * 1024);
  EXPECT_EQ(usable_memory_bytes(files({})), 0);
  EXPECT_EQ(usable_memory_bytes(files({{"/proc/meminfo", "MemAvailable: many kB\nMemTotal: x\n"}})), 0);
}

TEST(CoresWithin, RoundsAQuotaDownToWholeCores) {
  EXPECT_EQ(cores_within(8, std::nullopt), 8);
  EXPECT_EQ(cores_within(8, 16.0), 8);
  EXPECT_EQ(cores_within(8, 3.0), 3);
  EXPECT_EQ(cores_within(8, 2.9), 2);
  EXPECT_EQ(cores_within(8, 0.5), 1);
  EXPECT_EQ(cores_within(0, std::nullopt), 1);
}

TEST(AffinityCpus, FollowsTheThreadsMask) {
  std::vector<int> seen;
  int first = 0;
  bool pinned = false;
  std::thread([&] {  // A thread of its own, whose mask dies with it.
    cpu_set_t all;
    CPU_ZERO(&all);
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    while (!CPU_ISSET(first, &all)) {
      ++first;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    pinned = sched_setaffinity(0, sizeof(one), &one) == 0;
    seen = affinity_cpus();
  })
      .join();
  ASSERT_TRUE(pinned);
  EXPECT_EQ(seen, std::vector<int>{first});
  EXPECT_FALSE(affinity_cpus().empty());
}

TEST(ReadSmallFile, ReadsAFileAndMissesAMissingOne) {
  EXPECT_TRUE(read_small_file("/proc/self/stat").has_value());
  EXPECT_EQ(read_small_file("/nonexistent/file"), std::nullopt);
  EXPECT_EQ(read_small_file("/proc/self"), std::nullopt);  // A folder.
}

}  // namespace
}  // namespace octile
