// SPDX-License-Identifier: Apache-2.0
// Times the CUDA families' kernels at the linears of Qwen3-8B: cold weights (rotating copies of >= 400 MB), one CUDA graph a
// candidate, candidates of a point interleaved. Prints a short table and writes every figure as JSON.
//
//   gpu_kernel_times [--json FILE] [--m 1,8,16,64] [--tiles 6] [--spread FAMILY,...] [--families ada_mma,...]
//                    [--scopes gemm,linear] [--pdl 0|1|2] [--accumulate fast|precise] [--layouts row_major,slab64]
//                    [--configs FILE]   lines "SHAPE M FAMILY KEY=VALUE ...", timed instead of the families' own choices
//
// Of a family the first `tiles` configs of its search space are timed; of one in `spread` as many from all over the space,
// to see what its cost model is worth. With several layouts each family is timed with the weights in every one that it
// reads, all of a point interleaved, the same configs as far as they are legal; --layout is the same option.
#include "must.h"
#include "octile/core/format.h"
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/quantise_kernel.h"
#include "octile/kernels/cuda/slab64.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octile {
namespace {

struct Shape {
  const char* name;
  std::int64_t n;
  std::int64_t k;
};
constexpr std::array kShapes = {Shape{"qkv", 6144, 4096}, Shape{"o", 4096, 4096}, Shape{"down", 4096, 12288},
                                Shape{"gate_up", 24576, 4096}};
constexpr std::int64_t kColdBytes = std::int64_t{420} << 20;
constexpr int kReplays = 9;
constexpr std::int64_t kCalls = 60;  // Of a graph, at least about: fewer where M is beyond kManyRows and a call takes long.
constexpr std::int64_t kManyRows = 1024;

// A config that was asked for by name.
struct Listed {
  std::string shape;
  std::int64_t m = 0;
  std::string family;
  TileConfig config;
};

struct Options {
  std::string json;
  std::vector<std::int64_t> ms = {1, 8, 16, 64};
  std::size_t tiles = 6;
  std::vector<std::string> families = {"ada_mma"};
  std::vector<std::string> spread;
  std::vector<std::string> scopes = {"gemm", "linear"};
  std::vector<WeightLayout> layouts = {WeightLayout::row_major};
  std::vector<Listed> configs;  // Not empty: what is timed in place of the families' own choices.
  Accumulate accumulate = Accumulate::fast;
  std::optional<std::int64_t> pdl;  // Of our own families' configs; absent: their default.
};

struct Row {
  std::string shape;
  std::int64_t m = 0;
  std::string scope;
  std::string family;
  std::string layout;
  std::string config;
  double us = 0;
};

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return parts;
}

std::int64_t number(const std::string& text, std::int64_t lowest = 1) {
  std::int64_t value = 0;
  if (const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      error != std::errc{} || end != text.data() + text.size() || value < lowest) {
    fail(format("want a number >= {}, got '{}'", lowest, text));
  }
  return value;
}

std::vector<Listed> read_configs(const std::string& path) {
  std::ifstream file(path);
  std::vector<Listed> listed;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    Listed entry;
    words >> entry.shape >> entry.m >> entry.family;
    for (std::string word; words >> word;) {
      const auto equals = word.find('=');
      if (equals == std::string::npos) {
        fail(format("{}: '{}': want KEY=VALUE, got '{}'", path, line, word));
      }
      entry.config.set(word.substr(0, equals), number(word.substr(equals + 1), 0));
    }
    listed.push_back(std::move(entry));
  }
  if (listed.empty()) {
    fail(format("{}: no line 'SHAPE M FAMILY KEY=VALUE ...'", path));
  }
  return listed;
}

WeightLayout layout_of(const std::string& name) {
  for (const WeightLayout layout : {WeightLayout::row_major, WeightLayout::slab64}) {
    if (name == to_string(layout)) {
      return layout;
    }
  }
  fail(format("--layouts: want row_major or slab64, got '{}'", name));
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--json") {
      options.json = value;
    } else if (name == "--m") {
      options.ms.clear();
      std::ranges::transform(split(value), std::back_inserter(options.ms), [](const std::string& m) { return number(m); });
    } else if (name == "--tiles") {
      options.tiles = static_cast<std::size_t>(number(value));
    } else if (name == "--families") {
      options.families = split(value);
    } else if (name == "--spread") {
      options.spread = split(value);
    } else if (name == "--scopes") {
      options.scopes = split(value);
    } else if (name == "--layouts" || name == "--layout") {
      options.layouts.clear();
      std::ranges::transform(split(value), std::back_inserter(options.layouts), layout_of);
    } else if (name == "--configs") {
      options.configs = read_configs(value);
    } else if (name == "--accumulate") {
      if (value != "fast" && value != "precise") {
        fail(format("--accumulate: want fast or precise, got '{}'", value));
      }
      options.accumulate = value == "precise" ? Accumulate::precise : Accumulate::fast;
    } else if (name == "--pdl") {
      options.pdl = number(value, 0);
    } else {
      fail(format("unknown option {}", name));
    }
  }
  return options;
}

// Random finite codes: quick, and nothing compresses or repeats within a row.
std::vector<std::uint8_t> random_codes(std::int64_t count) {
  std::mt19937_64 generator(std::random_device{}());
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(count));
  for (auto& code : codes) {
    code = static_cast<std::uint8_t>(generator() >> 40);
    code = (code & 0x7F) > 0x60 ? static_cast<std::uint8_t>(code & 0x9F) : code;
  }
  return codes;
}

class Bench {
 public:
  Bench(const Device& device, Options options) : device_(device), options_(std::move(options)) {}

  void run() {
    time_quantise();
    if (std::ranges::find(options_.layouts, WeightLayout::slab64) != options_.layouts.end()) {
      time_slabs();
    }
    for (const Shape& shape : kShapes) {
      prepare(shape);
      for (const std::int64_t m : options_.ms) {
        point(shape, m);
      }
    }
    if (!options_.json.empty()) {
      write();
    }
  }

 private:
  std::unique_ptr<DeviceBuffer> buffer(std::int64_t bytes) { return must(device_.backend->allocate(device_.info, bytes)); }

  // The quantise kernel alone, bf16 rows of K = 4096, inputs cold.
  void time_quantise() {
    constexpr std::int64_t kK = 4096;
    const auto* context = must(cuda::device_context(device_.info.index));
    const auto kernel = std::make_shared<cuda::QuantiseKernel>(must(cuda::QuantiseKernel::prepare(*context, kK)));
    for (const std::int64_t m : {1, 8, 64, 1024, 4096}) {
      const std::int64_t bytes = m * kK * 2;
      const auto copies = static_cast<std::size_t>(std::clamp<std::int64_t>(kColdBytes / bytes + 1, 12, 64));
      std::vector<std::unique_ptr<DeviceBuffer>> inputs;
      const std::vector<std::uint8_t> codes = random_codes(bytes);
      for (std::size_t i = 0; i < copies; ++i) {
        inputs.push_back(buffer(bytes));
        must(device_.backend->upload(device_.info, inputs.back()->data(), codes.data(), bytes));
      }
      const auto workspace = buffer(kernel->workspace_bytes(m));
      std::vector<TimedCall> calls;
      for (std::size_t i = 0; i < 64; ++i) {
        Activation activation;
        activation.x = {inputs[i % copies]->data(), DType::bf16, m, kK, kK, 1};
        calls.emplace_back([kernel, activation, context, memory = workspace->data()](void* stream) -> Expected<void> {
          const cuda::CurrentContext current(*context);
          auto made = kernel->run(activation, memory, static_cast<cuda::CUstream>(stream), false);
          return made ? Expected<void>() : Expected<void>(made.error());
        });
      }
      const auto sequence = must(device_.backend->make_sequence(device_.info, std::move(calls)));
      std::vector<double> times;
      for (int i = 0; i < kReplays; ++i) {
        times.push_back(must(sequence->time_us()));
      }
      std::ranges::sort(times);
      const double us = times[kReplays / 2];
      rows_.push_back({"quantise", m, "quantise", "quantise", "", "{}", us});
      std::printf("quantise M=%-5lld K=%lld %.2f us, %.2f TB/s in and out\n", static_cast<long long>(m),
                  static_cast<long long>(kK), us, static_cast<double>(m) * kK * 3 / us / 1e6);
    }
  }

  // Rows of the largest weight to slabs and back, 400 MB cold.
  void time_slabs() {
    const auto* context = must(cuda::device_context(device_.info.index));
    const Shape& shape = kShapes.back();
    const std::int64_t bytes = shape.n * shape.k;
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    for (std::int64_t taken = 0; taken < 2 * kColdBytes; taken += bytes) {
      buffers.push_back(buffer(bytes));
    }
    const std::vector<std::uint8_t> codes = random_codes(bytes);
    for (const auto& one : buffers) {
      must(device_.backend->upload(device_.info, one->data(), codes.data(), bytes));
    }
    for (const bool to_slabs : {true, false}) {
      const auto kernel = std::make_shared<cuda::LoadedKernel>(
          must(to_slabs ? cuda::load_rows_to_slabs(*context) : cuda::load_slabs_to_rows(*context)));
      std::vector<TimedCall> calls;
      for (std::size_t i = 0; i + 1 < buffers.size(); i += 2) {
        const cuda::SlabCodes job = {cuda::to_device_pointer(buffers[i]->data()), shape.k,
                                     cuda::to_device_pointer(buffers[i + 1]->data()), shape.n, shape.k};
        calls.emplace_back([kernel, job, context](void* stream) -> Expected<void> {
          const cuda::CurrentContext current(*context);
          return cuda::permute_slabs(*kernel, job, static_cast<cuda::CUstream>(stream));
        });
      }
      const auto sequence = must(device_.backend->make_sequence(device_.info, std::move(calls)));
      std::vector<double> times;
      for (int i = 0; i < kReplays; ++i) {
        times.push_back(must(sequence->time_us()));
      }
      std::ranges::sort(times);
      const double us = times[kReplays / 2];
      const char* const name = to_slabs ? "rows_to_slabs" : "slabs_to_rows";
      rows_.push_back({shape.name, 0, "pack", name, "slab64", "{}", us});
      std::printf("%s [%lld, %lld] %.2f us, %.2f TB/s of weight\n", name, static_cast<long long>(shape.n),
                  static_cast<long long>(shape.k), us, static_cast<double>(bytes) / us / 1e6);
    }
  }

  void prepare(const Shape& shape) {
    weights_.clear();
    const std::vector<std::uint8_t> codes = random_codes(shape.n * shape.k);
    const std::vector<float> scales(static_cast<std::size_t>(shape.n), 0.01F);
    WeightSource source;
    source.n = shape.n;
    source.k = shape.k;
    source.codes = codes.data();
    source.scales = scales.data();
    source.scale_count = shape.n;
    const std::int64_t copies = std::max<std::int64_t>(2, (kColdBytes + shape.n * shape.k - 1) / (shape.n * shape.k));
    std::vector<WeightLayout> layouts = options_.layouts;
    layouts.push_back(WeightLayout::row_major);  // The floor's and the vendors'.
    for (const WeightLayout layout : layouts) {
      auto& packed = weights_[to_string(layout)];
      while (static_cast<std::int64_t>(packed.size()) < copies) {
        packed.push_back(must(device_.backend->pack(device_.info, to_string(layout), source)));
      }
    }
    const std::int64_t most = *std::ranges::max_element(options_.ms);
    const std::vector<std::uint8_t> bytes = random_codes(most * shape.k * 2);
    raw_ = buffer(most * shape.k * 2);
    must(device_.backend->upload(device_.info, raw_->data(), bytes.data(), raw_->bytes()));
    codes_ = buffer(most * shape.k);
    must(device_.backend->upload(device_.info, codes_->data(), bytes.data(), codes_->bytes()));
    const std::vector<float> ones(static_cast<std::size_t>(most), 1.0F);
    scales_ = buffer(most * 4);
    must(device_.backend->upload(device_.info, scales_->data(), ones.data(), most * 4));
    y_ = buffer(most * shape.n * 2);
    compile_ahead(shape);
  }

  // The layouts of the run that the family reads; row-major where it reads none of them.
  std::vector<WeightLayout> layouts_of(const KernelFamily& family) const {
    std::vector<WeightLayout> result;
    for (const WeightLayout layout : options_.layouts) {
      Problem problem;
      problem.layout = layout;
      if (family.layout_for(problem) == to_string(layout)) {
        result.push_back(layout);
      }
    }
    return result.empty() ? std::vector{WeightLayout::row_major} : result;
  }

  Problem problem_of(const Shape& shape, WeightLayout layout) const {
    Problem problem;
    problem.layout = layout;
    problem.n = shape.n;
    problem.k = shape.k;
    problem.accumulate = options_.accumulate;
    return problem;
  }

  const KernelFamily* family_named(const std::string& name) const {
    const auto families = device_.backend->families();
    const auto found = std::ranges::find(families, name, &KernelFamily::name);
    if (found == families.end()) {
      fail(format("no family {}", name));
    }
    return *found;
  }

  // The configs of a family that are timed at M, the one it would choose itself first.
  std::vector<TileConfig> configs_of(const KernelFamily& family, const Shape& shape, std::int64_t m,
                                     WeightLayout layout) const {
    if (!options_.configs.empty()) {
      std::vector<TileConfig> listed;
      for (const Listed& entry : options_.configs) {
        if (entry.shape == shape.name && entry.m == m && entry.family == family.name()) {
          listed.push_back(entry.config);
        }
      }
      return listed;
    }
    std::vector<TileConfig> configs = family.space(device_.info, problem_of(shape, layout), m);
    configs.insert(configs.begin(), family.heuristic(device_.info, problem_of(shape, layout), m));
    configs.erase(std::remove(configs.begin() + 1, configs.end(), TileConfig(configs.front())), configs.end());
    const std::size_t count = std::min(configs.size(), options_.tiles);
    if (std::ranges::find(options_.spread, family.name()) != options_.spread.end()) {
      for (std::size_t i = 0; i < count; ++i) {
        configs[i] = configs[i * configs.size() / count];
      }
    }
    configs.resize(count);
    if (options_.pdl && !family.is_vendor()) {
      for (TileConfig& config : configs) {
        config.set("PDL", *options_.pdl);
      }
    }
    return configs;
  }

  // All kernels of a shape at once into the cache, since compiling them one by one takes longer than timing them.
  void compile_ahead(const Shape& shape) {
    std::vector<WarmupItem> items;
    for (const std::string& name : options_.families) {
      const KernelFamily* family = family_named(name);
      for (const WeightLayout layout : layouts_of(*family)) {
        for (const std::int64_t m : options_.ms) {
          for (TileConfig& config : configs_of(*family, shape, m, layout)) {
            items.push_back({family, problem_of(shape, layout), std::move(config)});
          }
        }
      }
    }
    for (const Error& error : device_.backend->warm_up(device_.info, items, {}).failures) {
      std::printf("%s: %s\n", shape.name, error.message.c_str());
    }
  }

  struct Candidate {
    Row row;
    std::unique_ptr<Kernel> kernel;
    std::unique_ptr<TimedSequence> sequence;
    std::vector<double> times;
  };

  void add(std::vector<Candidate>& candidates, const Shape& shape, Row row, std::unique_ptr<Kernel> kernel) {
    const std::int64_t m = row.m;
    const auto& weights = weights_.at(row.layout);
    const std::int64_t bytes = std::max<std::int64_t>(kernel->workspace_bytes(m), 256);
    workspaces_.push_back(buffer(bytes));
    LaunchArgs args;
    args.activation.x = {codes_->data(), DType::e4m3, m, shape.k, shape.k, 1};
    args.activation.scales = static_cast<const float*>(scales_->data());
    if (row.scope == "linear") {
      args.activation.x = {raw_->data(), DType::bf16, m, shape.k, shape.k, 1};
      args.activation.scales = nullptr;
    }
    args.y = {y_->data(), DType::bf16, m, shape.n, shape.n, 1};
    args.workspace = workspaces_.back()->data();
    args.workspace_bytes = bytes;
    std::vector<TimedCall> calls;
    const auto calls_wanted =
        static_cast<std::size_t>(std::max<std::int64_t>(1, kCalls * kManyRows / std::max(m, kManyRows)));
    const std::size_t rounds = std::max<std::size_t>(1, calls_wanted / weights.size());
    for (std::size_t i = 0; i < rounds * weights.size(); ++i) {
      calls.emplace_back([args, weight = weights[i % weights.size()], run = kernel.get()](void* stream) mutable {
        args.stream = stream;
        return run->run(*weight, args);
      });
    }
    auto sequence = device_.backend->make_sequence(device_.info, std::move(calls));
    if (!sequence) {
      std::printf("%s M=%lld %s: %s\n", shape.name, static_cast<long long>(m), row.config.c_str(),
                  sequence.error().message.c_str());
      return;
    }
    Candidate candidate;
    candidate.row = std::move(row);
    candidate.kernel = std::move(kernel);
    candidate.sequence = std::move(*sequence);
    candidates.push_back(std::move(candidate));
  }

  void add_family(std::vector<Candidate>& candidates, const Shape& shape, std::int64_t m, const std::string& name,
                  WeightLayout layout) {
    const KernelFamily* family = family_named(name);
    for (const TileConfig& config : configs_of(*family, shape, m, layout)) {
      for (const std::string& scope : options_.scopes) {
        auto kernel = family->prepare(device_.info, problem_of(shape, layout), config, m);
        if (!kernel) {
          std::printf("%s M=%lld %s: %s\n", shape.name, static_cast<long long>(m), config.to_json().c_str(),
                      kernel.error().message.c_str());
          continue;
        }
        add(candidates, shape, {shape.name, m, scope, name, to_string(layout), config.to_json(), 0}, std::move(*kernel));
      }
    }
  }

  void point(const Shape& shape, std::int64_t m) {
    std::vector<Candidate> candidates;
    workspaces_.clear();
    add(candidates, shape, {shape.name, m, "floor", "stream_floor", to_string(WeightLayout::row_major), "{}", 0},
        must(device_.backend->prepare_stream_floor(device_.info)));
    for (const std::string& name : options_.families) {
      for (const WeightLayout layout : layouts_of(*family_named(name))) {
        add_family(candidates, shape, m, name, layout);
      }
    }
    for (int replay = 0; replay < kReplays; ++replay) {
      for (Candidate& candidate : candidates) {
        candidate.times.push_back(must(candidate.sequence->time_us()));
      }
    }
    report(shape, m, candidates);
  }

  static void print_best(const std::vector<Candidate>& candidates, const std::string& family, const std::string& layout,
                         const std::string& scope) {
    const Row* first = nullptr;
    const Row* best = nullptr;
    for (const Candidate& candidate : candidates) {
      if (candidate.row.family == family && candidate.row.layout == layout && candidate.row.scope == scope) {
        first = first == nullptr ? &candidate.row : first;
        best = best == nullptr || candidate.row.us < best->us ? &candidate.row : best;
      }
    }
    if (best != nullptr) {
      std::printf(" | %s %s %s heuristic %.2f best %.2f %s", family.c_str(), layout.c_str(), scope.c_str(), first->us,
                  best->us, best->config.c_str());
    }
  }

  void report(const Shape& shape, std::int64_t m, std::vector<Candidate>& candidates) {
    for (Candidate& candidate : candidates) {
      std::ranges::nth_element(candidate.times, candidate.times.begin() + kReplays / 2);
      candidate.row.us = candidate.times[kReplays / 2];
      rows_.push_back(candidate.row);
    }
    std::printf("%-8s M=%-5lld floor %7.2f", shape.name, static_cast<long long>(m), candidates.front().row.us);
    for (const std::string& family : options_.families) {
      for (const WeightLayout layout : layouts_of(*family_named(family))) {
        for (const std::string& scope : options_.scopes) {
          print_best(candidates, family, to_string(layout), scope);
        }
      }
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  void write() {
    std::ofstream out(options_.json);
    out << format(
        "{{\"device_name\": \"{}\", \"unit\": \"us\", \"accumulate\": \"{}\", "
        "\"protocol\": \"median of {} replays of a graph of >= 60 calls (fewer beyond M = {}), cold weights, candidates "
        "interleaved\", \"rows\": [",
        device_.info.name, to_string(options_.accumulate), kReplays, kManyRows);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      out << format(
          "{}\n  {{\"shape\": \"{}\", \"m\": {}, \"scope\": \"{}\", \"family\": \"{}\", \"layout\": \"{}\", \"config\": {}, "
          "\"us\": {:.3f}}}",
          i == 0 ? "" : ",", row.shape, row.m, row.scope, row.family, row.layout, row.config, row.us);
    }
    out << "\n]}\n";
    if (!out) {
      fail(format("cannot write {}", options_.json));
    }
  }

  Device device_;
  Options options_;
  std::map<std::string, std::vector<std::shared_ptr<PackedWeight>>> weights_;  // By layout.
  std::vector<std::unique_ptr<DeviceBuffer>> workspaces_;
  std::unique_ptr<DeviceBuffer> raw_, codes_, scales_, y_;
  std::vector<Row> rows_;
};

int run(int argc, char** argv) {
  Options options = parse(argc, argv);
  const Backend& backend = cuda::cuda_backend();
  const std::vector<DeviceInfo> devices = backend.devices();
  if (devices.empty()) {
    fail("no CUDA device");
  }
  Bench({&backend, devices.front()}, std::move(options)).run();
  return 0;
}

}  // namespace
}  // namespace octile

int main(int argc, char** argv) {
  return octile::status_of([&] { return octile::run(argc, argv); });
}
