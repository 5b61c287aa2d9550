// SPDX-License-Identifier: Apache-2.0
// Octile's CPU kernels, its vendor and this machine's limits, one timing at a time as compare.py asks for them. Weights are
// cold: copies of at least COLD_BYTES in turn, on huge pages where the system gives them.
//
//   in:  "prepare LANE M N K COLD_BYTES"     out: "ok DETAIL" or "error TEXT"
//        LANE: avx2, avx512_fma, avx512_dot, amx: the family's heuristic, the whole linear from bf16
//              LANE:KEY=VALUE,...: the same with some keys of the config changed
//              onednn: Octile's baseline, the whole linear; onednn_bare: its matmul alone; floor: reading the codes once
//   in:  "time LANE CALLS"                   out: "us MICROSECONDS" of one call
//   in:  "space LANE M N K"                  out: "ok LANE LANE ...": the configs that a tuner would try
//   in:  "peak INSTRUCTION THREADS"          out: "gflops X"
//   in:  "read THREADS"                      out: "gbps X"
//   in:  "machine"                           out: one line of JSON
#include "cpu/peaks.h"
#include "must.h"
#include "octile/core/format.h"
#include "octile/kernels/cpu/cpu_backend.h"
#include "octile/kernels/cpu/families.h"
#include "octile/kernels/cpu/host_memory.h"
#include "octile/kernels/cpu/thread_pool.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

namespace octile {
namespace {

using Copies = std::vector<std::shared_ptr<PackedWeight>>;

std::vector<std::uint8_t> random_codes(std::int64_t count) {
  std::mt19937_64 random(1);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(count));
  for (std::uint8_t& code : codes) {
    const std::uint64_t bits = random();
    code = static_cast<std::uint8_t>((bits & 0x80U) | (bits >> 8U) % 0x7FU);  // Never NaN.
  }
  return codes;
}

// One kernel with its operands, ready to be timed.
struct Lane {
  std::unique_ptr<Kernel> kernel;
  std::shared_ptr<const Copies> weights;
  cpu::HostMemory x, y, workspace;
  std::size_t next = 0;
  LaunchArgs args;
};

class Bench {
 public:
  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "prepare" || what == "space") {
      std::string name;
      Problem problem;
      std::int64_t m = 0;
      std::int64_t cold_bytes = 0;
      words >> name >> m >> problem.n >> problem.k >> cold_bytes;
      return what == "space" ? space(name, problem, m) : prepare(name, problem, m, cold_bytes);
    }
    if (what == "time") {
      std::string name;
      std::int64_t calls = 0;
      words >> name >> calls;
      return time(name, calls);
    }
    if (what == "peak") {
      std::string instruction;
      int threads = 0;
      words >> instruction >> threads;
      const auto gflops = cpu::peak_gflops(instruction, threads);
      return gflops ? format("gflops {}", *gflops) : format("error no {} here", instruction);
    }
    if (what == "read") {
      int threads = 0;
      words >> threads;
      if (read_from_.bytes() == 0) {
        read_from_ = must(cpu::HostMemory::allocate(kReadBytes));
        std::memset(read_from_.data(), 1, static_cast<std::size_t>(kReadBytes));  // Untouched pages are all the same one.
      }
      return format("gbps {}", cpu::read_gbps(read_from_.data(), read_from_.bytes(), threads));
    }
    if (what == "machine") {
      return machine();
    }
    return format("error cannot do '{}'", line);
  }

 private:
  static constexpr std::int64_t kReadBytes = std::int64_t{1} << 30;

  std::string machine() const {
    nlohmann::ordered_json json;
    json["device_name"] = device_.name;
    json["model"] = device_.model;
    json["instruction_set"] = device_.arch;
    json["threads"] = cpu::ThreadPool::instance().size();
    json["last_level_cache_bytes"] = device_.llc_bytes;
    json["onednn"] = backend_.vendors(device_).front().version;
    json["peaks"] = cpu::known_peaks();
    return json.dump();
  }

  const KernelFamily* family_of(const std::string& lane) const {
    const std::string name = lane.starts_with("avx512") ? "avx512" : lane;
    const auto families = backend_.families();
    const auto found = std::ranges::find(families, name, &KernelFamily::name);
    return found == families.end() ? nullptr : *found;
  }

  // "LANE:KEY=VALUE,..." to the lane's family and the config.
  Expected<std::tuple<const KernelFamily*, TileConfig>> kernel_of(const std::string& name, const Problem& problem,
                                                                  std::int64_t m) const {
    const auto colon = name.find(':');
    const std::string lane = name.substr(0, colon);
    const KernelFamily* family = family_of(lane);
    if (family == nullptr) {
      return make_error(ErrorCode::invalid_argument, "no lane '{}'", lane);
    }
    if (auto available = family->available(device_); !available) {
      return available.error();
    }
    TileConfig config = family->heuristic(device_, problem, m);
    if (lane.starts_with("avx512")) {
      const std::int64_t wanted = lane == "avx512_dot" ? 1 : 0;
      const auto configs = family->space(device_, problem, m);
      const auto found = std::ranges::find_if(configs, [&](const TileConfig& c) { return c.get("DOT", -1) == wanted; });
      if (found == configs.end()) {
        return make_error(ErrorCode::unavailable, "no config with DOT = {} here", wanted);
      }
      config = *found;
    }
    std::istringstream keys(colon == std::string::npos ? "" : name.substr(colon + 1));
    for (std::string pair; std::getline(keys, pair, ',');) {
      const auto equals = pair.find('=');
      config.set(pair.substr(0, equals), std::stoll(pair.substr(equals + 1)));
    }
    return std::tuple(family, config);
  }

  std::string space(const std::string& name, const Problem& problem, std::int64_t m) const {
    const auto kernel = kernel_of(name, problem, m);
    if (!kernel) {
      return "error " + kernel.error().message;
    }
    std::string text = "ok";
    for (const TileConfig& config : std::get<0>(*kernel)->space(device_, problem, m)) {
      if (config.get("DOT", 1) != std::get<1>(*kernel).get("DOT", 1)) {
        continue;
      }
      text += " " + name.substr(0, name.find(':'));
      char separator = ':';
      for (const auto& [key, value] : config.values) {
        text += format("{}{}={}", separator, key, value);
        separator = ',';
      }
    }
    return text;
  }

  std::shared_ptr<const Copies> weights_of(const std::string& layout, const Problem& problem, std::int64_t cold_bytes) {
    if (std::tuple(problem.n, problem.k) != shape_) {
      shape_ = {problem.n, problem.k};
      lanes_.clear();
      weights_.clear();
    }
    auto& known = weights_[layout];
    if (known == nullptr) {
      const std::vector<std::uint8_t> codes = random_codes(problem.n * problem.k);
      const std::vector<float> scales(static_cast<std::size_t>(problem.n), 0.01F);
      WeightSource source;
      source.n = problem.n;
      source.k = problem.k;
      source.codes = codes.data();
      source.scales = scales.data();
      source.scale_count = problem.n;
      auto copies = std::make_shared<Copies>();
      std::int64_t bytes = 0;
      while (copies->size() < 2 || bytes < cold_bytes) {
        copies->push_back(must(backend_.pack(device_, layout, source)));
        bytes += copies->back()->bytes();
      }
      known = std::move(copies);
    }
    return known;
  }

  std::string prepare(const std::string& name, const Problem& problem, std::int64_t m, std::int64_t cold_bytes) {
    auto lane = std::make_unique<Lane>();
    std::string detail;
    std::string layout = cpu::kCpuPackedLayout;
    if (name == "floor") {
      lane->kernel = must(backend_.prepare_stream_floor(device_));
    } else if (name == "onednn_bare") {
      auto bare = backend_.prepare_bare_vendor(device_, problem, m);
      if (!bare) {
        return "error " + bare.error().message;
      }
      lane->kernel = std::move(bare->kernel);
      layout = bare->layout;
    } else {
      const auto kernel = kernel_of(name, problem, m);
      if (!kernel) {
        return "error " + kernel.error().message;
      }
      const auto& [family, config] = *kernel;
      auto prepared = family->prepare(device_, problem, config, m);
      if (!prepared) {
        return "error " + prepared.error().message;
      }
      lane->kernel = *std::move(prepared);
      layout = family->layout();
      detail = config.to_json();
    }
    lane->weights = weights_of(layout, problem, cold_bytes);
    lane->x = must(cpu::HostMemory::allocate(m * problem.k * 2));
    lane->y = must(cpu::HostMemory::allocate(m * problem.n * 2));
    lane->workspace = must(cpu::HostMemory::allocate(std::max<std::int64_t>(lane->kernel->workspace_bytes(m), 64)));
    const std::vector<std::uint8_t> bytes = random_codes(m * problem.k * 2);
    std::ranges::transform(bytes, static_cast<std::uint8_t*>(lane->x.data()), [high = false](std::uint8_t byte) mutable {
      high = !high;
      return high ? byte : static_cast<std::uint8_t>(0x3F);  // bf16 of about 1.
    });
    lane->args.activation.x = {lane->x.data(), DType::bf16, m, problem.k, problem.k, 1};
    lane->args.y = {lane->y.data(), DType::bf16, m, problem.n, problem.n, 1};
    lane->args.workspace = lane->workspace.data();
    lane->args.workspace_bytes = lane->workspace.bytes();
    lanes_[name] = std::move(lane);
    return "ok " + detail;
  }

  std::string time(const std::string& name, std::int64_t calls) {
    const auto found = lanes_.find(name);
    if (found == lanes_.end() || calls < 1) {
      return format("error want a prepared lane and at least one call, got '{}' and {}", name, calls);
    }
    Lane& lane = *found->second;
    const auto call = [&lane](void*) {
      const auto& weight = (*lane.weights)[lane.next++ % lane.weights->size()];
      return lane.kernel->run(*weight, lane.args);
    };
    must(call(nullptr));
    const auto sequence = must(
        backend_.make_sequence(device_, std::vector<TimedCall>(static_cast<std::size_t>(calls), TimedCall(std::ref(call)))));
    return format("us {}", must(sequence->time_us()));
  }

  const Backend& backend_ = cpu::cpu_backend();
  DeviceInfo device_ = backend_.devices().front();
  std::tuple<std::int64_t, std::int64_t> shape_;
  std::map<std::string, std::shared_ptr<const Copies>> weights_;
  std::map<std::string, std::unique_ptr<Lane>> lanes_;
  cpu::HostMemory read_from_;
};

int run() {
  Bench bench;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << bench.answer(line) << '\n' << std::flush;
  }
  return 0;
}

}  // namespace
}  // namespace octile

int main() { return octile::status_of(octile::run); }
