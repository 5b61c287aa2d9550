// SPDX-License-Identifier: Apache-2.0
// The tests' simulated device; see simulated_device.h.
#include "support/simulated_device.h"

#include "octile/core/float_formats.h"
#include "octile/core/format.h"
#include "octile/quant/quantize.h"
#include "octile/quant/reference.h"
#include "octile/table/field_format.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

namespace octile::test {

namespace {

[[noreturn]] void die(const std::string& message) {
  std::fprintf(stderr, "simulated device: %s\n", message.c_str());
  std::abort();
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) {
      parts.emplace_back(text.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return parts;
}

constexpr const char* kTileLayout = "fake_packed";
constexpr const char* kVendorLayout = "fake_decoded";

struct SimulatedWeight final : PackedWeight {
  std::int64_t n_ = 0, k_ = 0;
  std::string layout_;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  std::int64_t n() const noexcept override { return n_; }
  std::int64_t k() const noexcept override { return k_; }
  std::int64_t bytes() const noexcept override {
    return static_cast<std::int64_t>(codes.size()) * (layout_ == kVendorLayout ? 2 : 1);
  }
  std::string_view layout() const noexcept override { return layout_; }
};

struct SimulatedBuffer final : DeviceBuffer {
  explicit SimulatedBuffer(std::int64_t bytes) : memory(static_cast<std::size_t>(bytes)) {}
  mutable std::vector<std::uint8_t> memory;
  void* data() const noexcept override { return memory.data(); }
  std::int64_t bytes() const noexcept override { return static_cast<std::int64_t>(memory.size()); }
};

}  // namespace

constexpr std::int64_t kCacheBytes = 16384;

struct SimulatedBackend::State {
  Scenario scenario;
  mutable std::mt19937_64 random;
  mutable double now_s = 0;
  mutable std::int64_t runs = 0;
  mutable std::int64_t looks = 0;
  mutable std::set<std::string> prepared;
  mutable std::string device = "fake";
  struct Cached {
    const PackedWeight* weight = nullptr;  // Compared, never read: it may be gone.
    std::int64_t bytes = 0;
  };
  mutable std::vector<Cached> cached;  // The last used first.

  // Whether the weight is in the cache, where it is from now on.
  bool touch(const PackedWeight& weight) const {
    const auto found = std::ranges::find(cached, &weight, &Cached::weight);
    const bool was_there = found != cached.end();
    if (was_there) {
      cached.erase(found);
    }
    cached.insert(cached.begin(), {&weight, weight.n() * weight.k()});
    std::int64_t bytes = 0;
    const auto first_out = std::ranges::find_if(cached, [&](const Cached& c) { return (bytes += c.bytes) > kCacheBytes; });
    cached.erase(first_out, cached.end());
    return was_there;
  }

  double true_us(const std::string& who, std::int64_t n, std::int64_t k, std::int64_t m) const {
    const double base =
        scenario.cost * static_cast<double>(n) * static_cast<double>(k) * (1 + static_cast<double>(m) / 16) / 64;
    double ratio = 1;
    if (const auto found = scenario.speeds.find(who); found != scenario.speeds.end()) {
      for (const Scenario::Speed& speed : found->second) {
        if (m >= speed.from_m) {
          ratio = speed.ratio;
        }
      }
    }
    return base / ratio;
  }

  bool is_gone(const std::string& id) const {
    const auto file = scenario.gone.find(id);
    return file != scenario.gone.end() && ::access(file->second.c_str(), F_OK) == 0;
  }

  // One write() a line: several processes share the file.
  void log(const std::string& what, std::int64_t n, const std::string& who) const {
    if (scenario.compile_log.empty()) {
      return;
    }
    const std::string line = format("{} {} {}\n", what, n, who);
    const int fd = ::open(scenario.compile_log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || ::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      die("cannot write to " + scenario.compile_log);
    }
    ::close(fd);
  }

  void compile(std::int64_t n, const std::string& who) const {
    log("compiling", n, who);
    if (fault(who) == "compile_abort") {
      std::signal(SIGABRT, SIG_DFL);
      std::abort();
    }
    if (const auto file = scenario.compile_waits.find(n); file != scenario.compile_waits.end()) {
      while (::access(file->second.c_str(), F_OK) != 0) {
        ::usleep(5000);
      }
    }
    log("compiled", n, who);
  }

  std::string fault(const std::string& who) const {
    const auto found = scenario.faults.find(who);
    return found == scenario.faults.end() ? std::string() : found->second;
  }
};

namespace {

// Runs as `who` ("B", a value of "v", "floor", "bare").
class SimulatedKernel final : public Kernel {
 public:
  SimulatedKernel(const SimulatedBackend::State& state, std::string who, Problem problem)
      : state_(state), who_(std::move(who)), problem_(problem) {}

  std::int64_t workspace_bytes(std::int64_t m) const noexcept override { return 64 * m; }

  Expected<void> run(const PackedWeight& weight, const LaunchArgs& args) const override {
    const auto& packed = static_cast<const SimulatedWeight&>(weight);
    const std::int64_t m = args.activation.x.rows;
    ++state_.runs;
    const std::string fault = state_.is_gone(state_.device) ? "abort" : state_.fault(who_);
    const bool is_first = runs_++ == 0;
    if (fault.ends_with("_timed") != is_first || state_.is_gone(state_.device)) {
      if (Expected<void> done = commit(fault, args, m); !done) {
        return done;
      }
    }
    if (is_first && who_ != "floor" && who_ != "bare") {
      compute(packed, args, fault);
    }
    double us = state_.true_us(who_, packed.n(), packed.k(), m);
    const auto warm = state_.scenario.warm_ratios.find(who_);
    us /= state_.touch(weight) && warm != state_.scenario.warm_ratios.end() ? warm->second : 1.0;
    us *= std::exp(state_.scenario.noise * std::normal_distribution<double>(0, 1)(state_.random));
    state_.now_s += us * 1e-6;
    if (state_.scenario.sleep_ms > 0) {
      ::usleep(static_cast<useconds_t>(state_.scenario.sleep_ms) * 1000U);
    }
    return {};
  }

 private:
  Expected<void> commit(const std::string& fault, const LaunchArgs& args, std::int64_t m) const {
    if (fault.starts_with("abort")) {
      std::signal(SIGABRT, SIG_DFL);
      std::abort();
    }
    if (fault.starts_with("hang")) {
      while (true) {
        ::pause();
      }
    }
    if (fault.starts_with("error")) {
      return make_error(ErrorCode::failed, "the fake kernel {} was told to fail", who_);
    }
    if (fault == "guard") {
      std::memset(static_cast<std::uint8_t*>(args.y.data) + m * problem_.n * size_of(problem_.out_dtype), 0, 4);
    }
    if (fault == "workspace") {
      static_cast<std::uint8_t*>(args.workspace)[args.workspace_bytes] = 0;
    }
    return {};
  }

  void compute(const SimulatedWeight& weight, const LaunchArgs& args, const std::string& fault) const {
    const ConstMatrixView& x = args.activation.x;
    ReferenceInputs in;
    in.m = x.rows;
    in.n = weight.n();
    in.k = weight.k();
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(in.m * in.k));
    std::vector<float> scales(static_cast<std::size_t>(in.m));
    for (std::int64_t row = 0; row < in.m; ++row) {
      const auto* data = static_cast<const std::uint8_t*>(x.data) + row * x.row_stride * size_of(x.dtype);
      std::uint8_t* row_codes = codes.data() + row * in.k;
      if (args.activation.scales != nullptr) {
        std::memcpy(row_codes, data, static_cast<std::size_t>(in.k));
        scales[static_cast<std::size_t>(row)] = args.activation.scales[row];
      } else {
        scales[static_cast<std::size_t>(row)] = quantize_row(data, x.dtype, in.k, row_codes, args.activation.quantize);
      }
    }
    in.codes_x = codes.data();
    in.scales_x = scales.data();
    in.codes_w = weight.codes.data();
    in.scales_w = weight.scales.data();
    in.bias = args.bias;
    const std::vector<double> y = reference_linear(in).values;
    for (std::int64_t i = 0; i < in.m * in.n; ++i) {
      if (fault == "unwritten" && i == in.m * in.n - 1) {
        continue;
      }
      const double value = fault == "wrong" && i % 7 == 3 ? -y[static_cast<std::size_t>(i)] : y[static_cast<std::size_t>(i)];
      store_from_float(args.y.data, problem_.out_dtype, i, static_cast<float>(value));
    }
  }

  const SimulatedBackend::State& state_;
  std::string who_;
  Problem problem_;
  mutable std::int64_t runs_ = 0;
};

class SimulatedFamily final : public KernelFamily {
 public:
  SimulatedFamily(const SimulatedBackend::State& state, bool is_vendor) : state_(state), is_vendor_(is_vendor) {}
  std::string_view name() const noexcept override {
    if (is_vendor_) {
      return "fake_vendor";
    }
    return state_.scenario.has_field_tiles ? kFieldKernel : "fake_tile";
  }
  bool is_vendor() const noexcept override { return is_vendor_; }
  std::string version() const override { return is_vendor_ ? "1.0" : ""; }
  std::string source_hash() const override { return is_vendor_ ? "aaaa" : "bbbb"; }
  Expected<void> available(const DeviceInfo& /*device*/) const override { return {}; }
  std::string_view layout() const noexcept override { return is_vendor_ ? kVendorLayout : kTileLayout; }
  std::string_view layout_for(const Problem& problem) const noexcept override {
    return !is_vendor_ && problem.layout == WeightLayout::slab64 ? to_string(problem.layout) : layout();
  }
  Expected<void> check(const DeviceInfo& /*device*/, const Problem& /*problem*/, const TileConfig& config) const override {
    const std::int64_t v = config.get("v", is_vendor_ || state_.scenario.has_field_tiles ? 0 : -1);
    if (v < 0 || v > largest()) {
      return make_error(ErrorCode::invalid_argument, "v: wanted 0 to {}, got {}", largest(), v);
    }
    return {};
  }
  std::vector<TileConfig> space(const DeviceInfo& device, const Problem& problem, std::int64_t m) const override {
    std::vector<TileConfig> result;
    if (is_vendor_) {
      result.push_back(heuristic(device, problem, m));
    }
    for (std::int64_t v = is_vendor_ ? 1 : 0; v <= largest(); ++v) {
      result.push_back(TileConfig{{{"v", v}}});
    }
    return result;
  }
  TileConfig heuristic(const DeviceInfo& /*device*/, const Problem& /*problem*/, std::int64_t /*m*/) const override {
    return is_vendor_ ? TileConfig{} : TileConfig{{{"v", 0}}};
  }
  double predict_us(const DeviceInfo& /*device*/, const Problem& problem, std::int64_t m,
                    const TileConfig& config) const override {
    return state_.true_us(who(config), problem.n, problem.k, m);
  }
  Expected<std::unique_ptr<Kernel>> prepare(const DeviceInfo& /*device*/, const Problem& problem, const TileConfig& config,
                                            std::int64_t /*max_m*/) const override {
    if (state_.fault(who(config)) == "throw") {
      return make_error(ErrorCode::failed, "the fake family cannot prepare {}", config.to_json());
    }
    if (const auto slow = state_.scenario.prepare_s.find(who(config));
        slow != state_.scenario.prepare_s.end() && state_.prepared.insert(who(config)).second) {
      state_.now_s += slow->second;
    }
    state_.log("prepared", problem.n, who(config));
    return std::unique_ptr<Kernel>(std::make_unique<SimulatedKernel>(state_, who(config), problem));
  }
  std::string who(const TileConfig& config) const {
    const std::int64_t v = config.get("v", 0);
    return is_vendor_ && v == 0 ? "B" : (is_vendor_ ? "A" : "") + std::to_string(v);
  }

 private:
  std::int64_t largest() const { return is_vendor_ ? state_.scenario.algorithms : 4; }
  const SimulatedBackend::State& state_;
  bool is_vendor_;
};

// The time of a sequence is what its calls let pass on the simulated clock.
class SimulatedSequence final : public TimedSequence {
 public:
  SimulatedSequence(const SimulatedBackend::State& state, std::vector<TimedCall> calls)
      : state_(state), calls_(std::move(calls)) {}
  Expected<double> time_us() override {
    const double before_s = state_.now_s;
    for (const TimedCall& call : calls_) {
      if (Expected<void> done = call(nullptr); !done) {
        return std::move(done).error();
      }
    }
    return (state_.now_s - before_s) * 1e6 / static_cast<double>(calls_.size());
  }

 private:
  const SimulatedBackend::State& state_;
  std::vector<TimedCall> calls_;
};

}  // namespace

Scenario parse_scenario(std::string_view text) {
  Scenario scenario;
  for (const std::string& item : split(text, ',')) {
    const std::vector<std::string> words = split(item, ':');
    const std::string& what = words[0];
    if (what == "ratio" && words.size() == 3) {
      const std::vector<std::string> value = split(words[2], '@');
      scenario.speeds[words[1]].push_back({value.size() > 1 ? std::stoll(value[1]) : 1, std::stod(value[0])});
    } else if (what == "novendor") {
      scenario.has_vendor = false;
    } else if (what == "gone" && words.size() == 3) {
      scenario.gone[words[1]] = words[2];
    } else if (what == "compiles" && words.size() == 2) {
      scenario.compile_log = words[1];
    } else if (what == "compile_waits" && words.size() == 3) {
      scenario.compile_waits[std::stoll(words[1])] = words[2];
    } else if (what == "sms" && words.size() == 3) {
      scenario.sm_counts[words[1]] = std::stoi(words[2]);
    } else if (what == "throttle" && words.size() == 4) {
      scenario.throttling.push_back({std::stoull(words[1]), std::stoll(words[2]), std::stoll(words[3])});
    } else if (what == "warm" && words.size() == 3) {
      scenario.warm_ratios[words[1]] = std::stod(words[2]);
    } else if (what == "algorithms" && words.size() == 2) {
      scenario.algorithms = std::stoll(words[1]);
    } else if (what == "prepare" && words.size() == 3) {
      scenario.prepare_s[words[1]] = std::stod(words[2]);
    } else if (what == "field") {
      scenario.has_field_tiles = true;
    } else if (what == "pack_abort") {
      scenario.pack_aborts = true;
    } else if (words.size() == 2 && what == "noise") {
      scenario.noise = std::stod(words[1]);
    } else if (words.size() == 2 && what == "cost") {
      scenario.cost = std::stod(words[1]);
    } else if (words.size() == 2 && what == "sleep") {
      scenario.sleep_ms = std::stoi(words[1]);
    } else if (words.size() == 2 && what == "seed") {
      scenario.seed = std::stoull(words[1]);
    } else if (words.size() == 2 && (words[1].size() == 1 || words[1].starts_with('A'))) {
      scenario.faults[words[1]] = what;
    } else {
      die("unknown word in the scenario: " + item);
    }
  }
  return scenario;
}

SimulatedBackend::SimulatedBackend(const Scenario& scenario) : state_(std::make_unique<State>()) {
  state_->scenario = scenario;
  state_->random.seed(scenario.seed);
  families_.push_back(std::make_unique<SimulatedFamily>(*state_, false));
  if (scenario.has_vendor) {
    families_.push_back(std::make_unique<SimulatedFamily>(*state_, true));
  }
  for (const auto& family : families_) {
    family_pointers_.push_back(family.get());
  }
}

SimulatedBackend::~SimulatedBackend() = default;

DeviceInfo SimulatedBackend::info() const {
  DeviceInfo info;
  info.id = "fake";
  info.name = "Fake_Device-generic-1t";
  info.arch = "generic";
  info.model = "Fake Device";
  info.sm_count = 1;
  info.llc_bytes = kCacheBytes;
  info.memory_bytes = std::int64_t{1} << 30;
  info.kind = state_->scenario.compile_log.empty() ? DeviceKind::cpu : DeviceKind::cuda;
  return info;
}

Expected<Device> SimulatedBackend::find(std::string_view id) const {
  const bool is_known = id == "fake" || (id.size() == 5 && id.starts_with("fake") && id[4] >= '1' && id[4] <= '7');
  if (!is_known || state_->is_gone(std::string(id))) {
    return Error{ErrorCode::unavailable, format("no device {}; there are: fake, fake1 to fake7", id)};
  }
  state_->device = id;
  DeviceInfo found = info();
  found.id = id;
  if (const auto count = state_->scenario.sm_counts.find(found.id); count != state_->scenario.sm_counts.end()) {
    found.sm_count = count->second;
  }
  return Device{this, std::move(found)};
}

double SimulatedBackend::now_s() const { return state_->now_s; }
void SimulatedBackend::advance_s(double seconds) { state_->now_s += seconds; }
std::int64_t SimulatedBackend::runs() const { return state_->runs; }
double SimulatedBackend::true_us(const std::string& who, std::int64_t n, std::int64_t k, std::int64_t m) const {
  return state_->true_us(who, n, k, m);
}

std::vector<VendorStatus> SimulatedBackend::vendors(const DeviceInfo& /*device*/) const {
  return {{"fake_vendor", state_->scenario.has_vendor ? "1.0" : "", state_->scenario.has_vendor, ""}};
}

const KernelFamily* SimulatedBackend::baseline(const DeviceInfo& /*device*/, const Problem& /*problem*/) const {
  return state_->scenario.has_vendor ? family_pointers_.back() : nullptr;
}

Expected<std::shared_ptr<PackedWeight>> SimulatedBackend::pack(const DeviceInfo& /*device*/, std::string_view layout,
                                                               const WeightSource& source) const {
  if (state_->scenario.pack_aborts && layout == kTileLayout) {
    std::abort();
  }
  auto weight = std::make_shared<SimulatedWeight>();
  weight->n_ = source.n;
  weight->k_ = source.k;
  weight->layout_ = layout;
  const auto* codes = static_cast<const std::uint8_t*>(source.codes);
  const auto* scales = static_cast<const float*>(source.scales);
  weight->codes.assign(codes, codes + source.n * source.k);
  weight->scales.assign(scales, scales + source.n);
  return std::shared_ptr<PackedWeight>(std::move(weight));
}

Expected<std::unique_ptr<Kernel>> SimulatedBackend::prepare_stream_floor(const DeviceInfo& /*device*/) const {
  return std::unique_ptr<Kernel>(std::make_unique<SimulatedKernel>(*state_, "floor", Problem{}));
}

Expected<BareVendor> SimulatedBackend::prepare_bare_vendor(const DeviceInfo& device, const Problem& problem,
                                                           std::int64_t max_m) const {
  if (!state_->scenario.has_vendor) {
    return Backend::prepare_bare_vendor(device, problem, max_m);
  }
  return BareVendor{"fake matmul", kVendorLayout, std::make_unique<SimulatedKernel>(*state_, "bare", problem)};
}

Expected<std::unique_ptr<DeviceBuffer>> SimulatedBackend::allocate(const DeviceInfo& /*device*/, std::int64_t bytes) const {
  return std::unique_ptr<DeviceBuffer>(std::make_unique<SimulatedBuffer>(bytes));
}

Expected<void> SimulatedBackend::upload(const DeviceInfo& /*device*/, void* destination, const void* source,
                                        std::int64_t bytes) const {
  std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  return {};
}

Expected<void> SimulatedBackend::download(const DeviceInfo& /*device*/, void* destination, const void* source,
                                          std::int64_t bytes) const {
  std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  return {};
}

DeviceConditions SimulatedBackend::conditions(const DeviceInfo& /*device*/) const {
  DeviceConditions conditions;
  const std::int64_t look = state_->looks++;
  for (const Scenario::Throttling& throttling : state_->scenario.throttling) {
    conditions.sm_clock_mhz = 1980;
    const bool is_on = look >= throttling.first_look && look <= throttling.last_look;
    conditions.throttle_reasons = conditions.throttle_reasons.value_or(0) | (is_on ? throttling.reasons : 0);
  }
  return conditions;
}

WarmupResult SimulatedBackend::warm_up(const DeviceInfo& /*device*/, std::span<const WarmupItem> items,
                                       const WarmupOptions& options) const {
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& family = static_cast<const SimulatedFamily&>(*items[i].family);
    state_->compile(items[i].problem.n, family.who(items[i].config));
    if (options.progress) {
      options.progress(i + 1);
    }
  }
  return {};
}

Expected<std::unique_ptr<TimedSequence>> SimulatedBackend::make_sequence(const DeviceInfo& /*device*/,
                                                                         std::vector<TimedCall> calls) const {
  return std::unique_ptr<TimedSequence>(std::make_unique<SimulatedSequence>(*state_, std::move(calls)));
}

}  // namespace octile::test
