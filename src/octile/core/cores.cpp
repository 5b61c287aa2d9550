// SPDX-License-Identifier: Apache-2.0
// Cores and memory that the process may use, from the affinity mask, /proc and the cgroup file systems.
#include "octile/core/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

namespace octile {
namespace {

constexpr std::size_t kLargestFileBytes = std::size_t{4} << 20U;  // mountinfo of a busy container host; all else is tiny.

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(blanks);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  text = trimmed(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

bool holds(std::string_view comma_list, std::string_view word) {
  const std::vector<std::string_view> words = split(comma_list, ',');
  return std::ranges::find(words, word) != words.end();
}

// mountinfo writes blanks in paths as \040 and the like.
std::string unescaped(std::string_view text) {
  const auto octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(text[i + 1]) && octal(text[i + 2]) && octal(text[i + 3])) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Where the groups of one controller are mounted, and the group of this process below that.
struct CgroupPlace {
  std::string mount_point;
  std::string group;  // "" or "/a/b".
  bool v2 = false;
};

// The group named in /proc/self/cgroup counts from the hierarchy's root; a container sees only the part below `root`. A
// group outside of it (no cgroup namespace) is represented by the mount point itself.
std::string group_below(const std::string& root, const std::string& group) {
  if (root == "/") {
    return group == "/" ? "" : group;
  }
  return group.starts_with(root + "/") ? group.substr(root.size()) : "";
}

std::vector<CgroupPlace> cgroup_places(std::string_view controller, const FileReader& read) {
  const std::optional<std::string> groups = read("/proc/self/cgroup");
  const std::optional<std::string> mounts = read("/proc/self/mountinfo");
  std::vector<CgroupPlace> places;
  if (!groups || !mounts) {
    return places;
  }
  std::optional<std::string> v1_group;
  std::optional<std::string> v2_group;
  for (const std::string_view line : split(*groups, '\n')) {  // "4:memory:/a/b", in version 2 "0::/a/b".
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) {
      continue;
    }
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) {
      v2_group = std::string(line.substr(second + 1));
    } else if (holds(controllers, controller)) {
      v1_group = std::string(line.substr(second + 1));
    }
  }
  for (const std::string_view line : split(*mounts, '\n')) {
    // "32 31 0:29 ROOT MOUNT_POINT OPTIONS [TAG...] - TYPE SOURCE SUPER_OPTIONS"
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) {
      continue;
    }
    const std::vector<std::string_view> left = split(line.substr(0, dash), ' ');
    const std::vector<std::string_view> right = split(line.substr(dash + 3), ' ');
    if (left.size() < 5 || right.size() < 3) {
      continue;
    }
    const bool v2 = right[0] == "cgroup2" && v2_group;
    const bool v1 = right[0] == "cgroup" && v1_group && holds(right[2], controller);
    if (v1 || v2) {
      places.push_back(CgroupPlace{.mount_point = unescaped(left[4]),
                                   .group = group_below(unescaped(left[3]), v2 ? *v2_group : *v1_group),
                                   .v2 = v2});
    }
  }
  return places;
}

// Calls visit(folder) for the group's folder and each one above it, up to the mount point: any of them may limit.
template <class Visit>
void for_each_level(const CgroupPlace& place, Visit visit) {
  for (std::string group = place.group;; group.resize(group.find_last_of('/'))) {
    visit(place.mount_point + group);
    if (group.find_last_of('/') == std::string::npos) {
      return;
    }
  }
}

std::optional<double> quota_of(std::optional<std::int64_t> quota_us, std::optional<std::int64_t> period_us) {
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) {  // Version 1 writes -1 for "no limit".
    return std::nullopt;
  }
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

std::optional<double> quota_of_folder(const std::string& folder, bool v2, const FileReader& read) {
  if (v2) {
    const std::optional<std::string> text = read(folder + "/cpu.max");  // "150000 100000" or "max 100000".
    if (!text) {
      return std::nullopt;
    }
    const std::vector<std::string_view> words = split(trimmed(*text), ' ');
    return words.size() == 2 ? quota_of(parse_integer(words[0]), parse_integer(words[1])) : std::nullopt;
  }
  const std::optional<std::string> quota = read(folder + "/cpu.cfs_quota_us");
  const std::optional<std::string> period = read(folder + "/cpu.cfs_period_us");
  return quota && period ? quota_of(parse_integer(*quota), parse_integer(*period)) : std::nullopt;
}

// A field of /proc/meminfo in bytes, 0 where it is missing: "MemAvailable:   24000000 kB".
std::int64_t meminfo_bytes(std::string_view text, std::string_view field) {
  for (const std::string_view line : split(text, '\n')) {
    if (line.starts_with(field) && line.substr(field.size()).starts_with(':')) {
      const std::string_view number = trimmed(line.substr(field.size() + 1));
      const std::int64_t kib = parse_integer(number.substr(0, number.find(' '))).value_or(0);
      return std::clamp(kib, std::int64_t{0}, std::numeric_limits<std::int64_t>::max() / 1024) * 1024;
    }
  }
  return 0;
}

}  // namespace

std::optional<std::string> read_small_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return std::nullopt;
  }
  std::string text;
  char block[4096];
  while (text.size() < kLargestFileBytes && (file.read(block, sizeof(block)), file.gcount() > 0)) {
    text.append(block, static_cast<std::size_t>(file.gcount()));
  }
  return file.bad() ? std::nullopt : std::optional(std::move(text));
}

std::optional<double> cgroup_cpu_quota(const FileReader& read) {
  std::optional<double> smallest;
  for (const CgroupPlace& place : cgroup_places("cpu", read)) {
    for_each_level(place, [&](const std::string& folder) {
      const std::optional<double> quota = quota_of_folder(folder, place.v2, read);
      if (quota) {
        smallest = std::min(*quota, smallest.value_or(*quota));
      }
    });
  }
  return smallest;
}

std::vector<std::string> cgroup_cpu_stat_files(const FileReader& read) {
  std::vector<std::string> files;
  for (const CgroupPlace& place : cgroup_places("cpu", read)) {
    for_each_level(place, [&](const std::string& folder) { files.push_back(folder + "/cpu.stat"); });
  }
  return files;
}

std::optional<std::int64_t> cgroup_memory_limit(const FileReader& read) {
  // Version 1 writes a number near 2^63 for "no limit", version 2 the word max.
  constexpr std::int64_t unlimited = std::int64_t{1} << 60U;
  std::optional<std::int64_t> smallest;
  for (const CgroupPlace& place : cgroup_places("memory", read)) {
    for_each_level(place, [&](const std::string& folder) {
      const std::optional<std::string> text = read(folder + (place.v2 ? "/memory.max" : "/memory.limit_in_bytes"));
      const std::optional<std::int64_t> limit = text ? parse_integer(*text) : std::nullopt;
      if (limit && *limit > 0 && *limit < unlimited) {
        smallest = std::min(*limit, smallest.value_or(*limit));
      }
    });
  }
  return smallest;
}

std::int64_t usable_memory_bytes(const FileReader& read) {
  const std::string text = read("/proc/meminfo").value_or("");
  std::int64_t memory = meminfo_bytes(text, "MemAvailable");
  if (memory == 0) {
    memory = meminfo_bytes(text, "MemTotal");
  }
  const std::int64_t limit = cgroup_memory_limit(read).value_or(0);
  return memory > 0 && limit > 0 ? std::min(memory, limit) : std::max(memory, limit);
}

int cores_within(int affinity, std::optional<double> quota) {
  const int cores = std::max(affinity, 1);
  if (!quota || !(*quota < cores)) {
    return cores;
  }
  return std::max(static_cast<int>(std::floor(*quota)), 1);
}

std::vector<int> affinity_cpus() {
  std::vector<int> cpus;
  // The mask must be as large as the kernel's, which is not known: it grows until the kernel takes it.
  for (int count = 1024; cpus.empty() && count <= 1 << 20; count *= 2) {
    cpu_set_t* mask = CPU_ALLOC(count);
    if (mask == nullptr) {
      break;
    }
    const std::size_t bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes, mask);
    if (sched_getaffinity(0, bytes, mask) == 0) {
      for (int cpu = 0; cpu < count; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, mask)) {
          cpus.push_back(cpu);
        }
      }
    }
    CPU_FREE(mask);
  }
  if (cpus.empty()) {  // Only where the kernel refuses to say.
    cpus.resize(static_cast<std::size_t>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L)));
    std::iota(cpus.begin(), cpus.end(), 0);
  }
  return cpus;
}

int usable_cores() { return cores_within(static_cast<int>(affinity_cpus().size()), cgroup_cpu_quota(read_small_file)); }

}  // namespace octile
