// SPDX-License-Identifier: Apache-2.0
// What is read from /proc, /sys and CPUID to describe the CPU.
#include "octile/kernels/cpu/cpu_device.h"

#include "octile/core/format.h"
#include "octile/core/log.h"
#include "octile/kernels/cpu/cpu_features.h"
#include "octile/kernels/cpu/thread_pool.h"

#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <set>
#include <utility>

namespace octile::cpu {
namespace {

bool letter_or_digit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\n' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

// "32768K" or "32M" in bytes; 0 for anything else.
std::int64_t parse_cache_size(std::string_view text) {
  text = trimmed(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  if (error != std::errc() || value < 0 || value > (std::int64_t{1} << 40U)) {
    return 0;
  }
  return unit == "K" ? value << 10U : unit == "M" ? value << 20U : unit.empty() ? value : 0;
}

struct Cache {
  int level = 0;
  std::int64_t bytes = 0;
  std::string shared_by;  // "0-7": the same text for every core that shares it.
};

// The highest data or unified cache of one core, by /sys.
Cache highest_cache(int cpu, const FileReader& read) {
  Cache best;
  for (int index = 0; index < 16; ++index) {
    const std::string folder = format("/sys/devices/system/cpu/cpu{}/cache/index{}/", cpu, index);
    const std::optional<std::string> level = read(folder + "level");
    const std::optional<std::string> size = read(folder + "size");
    if (!level || !size) {
      break;
    }
    const std::string type = read(folder + "type").value_or("");
    const int number = static_cast<int>(parse_cache_size(*level));
    if (number > best.level && trimmed(type) != "Instruction") {
      const std::string shared_by = read(folder + "shared_cpu_list").value_or(format("{}", cpu));
      best = Cache{.level = number, .bytes = parse_cache_size(*size), .shared_by = std::string(trimmed(shared_by))};
    }
  }
  return best;
}

}  // namespace

std::string file_name_of_model(std::string_view model) {
  std::string name;
  for (const char c : model) {
    if (letter_or_digit(c)) {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  if (name.ends_with('_')) {
    name.pop_back();
  }
  return name.empty() ? "CPU" : name;
}

std::string cpu_device_name(std::string_view model, std::string_view isa, int threads) {
  return format("{}-{}-{}t", file_name_of_model(model), isa, threads);
}

std::optional<std::string> model_of_cpuinfo(std::string_view cpuinfo) {
  constexpr std::string_view field = "model name";
  for (std::size_t begin = 0; begin < cpuinfo.size();) {
    const std::size_t end = std::min(cpuinfo.find('\n', begin), cpuinfo.size());
    const std::string_view line = cpuinfo.substr(begin, end - begin);
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && trimmed(line.substr(0, colon)) == field) {
      const std::string_view model = trimmed(line.substr(colon + 1));
      return model.empty() ? std::nullopt : std::optional(std::string(model));
    }
    begin = end + 1;
  }
  return std::nullopt;
}

std::string brand_string() {
#if defined(__x86_64__)
  constexpr unsigned first = 0x80000002U;
  if (__get_cpuid_max(0x80000000U, nullptr) < first + 2) {
    return {};
  }
  std::array<unsigned, 12> words{};
  for (std::size_t i = 0; i < 3; ++i) {
    unsigned* leaf = words.data() + 4 * i;
    __get_cpuid(first + static_cast<unsigned>(i), leaf, leaf + 1, leaf + 2, leaf + 3);
  }
  std::array<char, 49> text{};  // The brand string fills up to 48 bytes, with or without a zero at the end.
  std::memcpy(text.data(), words.data(), 48);
  return std::string(trimmed(text.data()));
#else
  return {};
#endif
}

std::int64_t last_level_cache_bytes(const std::vector<int>& cpus, const FileReader& read) {
  std::set<std::string> counted;
  std::int64_t sum = 0;
  for (const int cpu : cpus) {
    const Cache cache = highest_cache(cpu, read);
    if (cache.bytes > 0 && counted.insert(cache.shared_by).second) {
      sum += cache.bytes;
    }
  }
  if (sum > 0) {
    return sum;
  }
  for (const int name : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {  // The C library asks CPUID.
    if (const long bytes = sysconf(name); bytes > 0) {
      return bytes;
    }
  }
  return std::int64_t{32} << 20U;
}

DeviceInfo describe_cpu(const FileReader& read) {
  Expected<Isa> isa = usable_isa();
  if (!isa) {
    log_once(LogLevel::warning, "cpu_device.isa", isa.error().message);
    isa = isa_of(cpu_features());
  }
  const std::optional<std::string> cpuinfo = read("/proc/cpuinfo");
  DeviceInfo info;
  info.id = "cpu";
  info.kind = DeviceKind::cpu;
  info.arch = isa_name(*isa);
  info.model = cpuinfo ? model_of_cpuinfo(*cpuinfo).value_or(brand_string()) : brand_string();
  info.sm_count = ThreadPool::instance().size();
  info.name = cpu_device_name(info.model, info.arch, info.sm_count);
  info.llc_bytes = last_level_cache_bytes(affinity_cpus(), read);
  info.memory_bytes = usable_memory_bytes(read);
  return info;
}

}  // namespace octile::cpu
