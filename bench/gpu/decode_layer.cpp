// SPDX-License-Identifier: Apache-2.0
// A decoding step of Qwen3-8B as engines run it: one CUDA graph of 36 layers, each with weights of its own (7 GB, cold), and
// between the linears what stands there:
//
//   attention -> o -> add + norm -> gate_up -> SwiGLU -> down -> add + norm -> qkv
//
// Attention is a stand-in that knows nothing of programmatic dependent launch: it reads all of qkv's output and writes o's
// input. What is compared, in interleaved replays:
//
//   shipped    norm and SwiGLU unfused, a quantise kernel and cuBLASLt's own choice for each linear; nothing starts early
//   searched   the same with the best algorithm of cuBLASLt that a search finds; our kernels start early
//   full       producers that quantise, the tables' choices, everything starts early
//   consume    products start early behind our own quantisers and producers, nothing else does
//   off        producers that quantise, the tables' choices, nothing starts early
//   attention  the stand-in alone: what is left of the others beyond it are linears and producers
//
// The outputs of full, consume and off must agree bit for bit, those of the others within what quantisation makes of the
// last places over all layers. Prints microseconds a layer; --json writes every figure.
//
//   decode_layer [--json FILE] [--m 1,2,4,8,16,32,64] [--layers 36] [--rounds 15] [--tables DIR]
#include "must.h"
#include "octile/core/float_formats.h"
#include "octile/core/format.h"
#include "octile/kernels/cuda/compile.h"
#include "octile/kernels/cuda/cublaslt_family.h"
#include "octile/kernels/cuda/cuda_backend.h"
#include "octile/kernels/cuda/cuda_memory.h"
#include "octile/kernels/cuda/cuda_module.h"
#include "octile/kernels/cuda/quantise_kernel.h"
#include "octile/linear/choose.h"
#include "octile/tune/statistics.h"
#include "vendor_search.h"

#include <octile/octile.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octile {
namespace {

constexpr std::int64_t kHidden = 4096;
constexpr std::int64_t kInner = 12288;
constexpr std::int64_t kQkv = 6144;

enum Linear : std::size_t { kO, kGateUp, kDown, kQkvLinear, kLinears };
struct Shape {
  const char* name;
  std::int64_t n;
  std::int64_t k;
};
constexpr std::array<Shape, kLinears> kShapes = {
    {{"o", kHidden, kHidden}, {"gate_up", 2 * kInner, kHidden}, {"down", kHidden, kInner}, {"qkv", kQkv, kHidden}}};

enum Variant : std::size_t { kShipped, kSearched, kFull, kConsume, kOff, kAttention, kVariants };
constexpr std::array<const char*, kVariants> kNames = {"shipped", "searched", "full", "consume", "off", "attention"};

struct Options {
  std::string command;
  std::string json;
  std::vector<std::int64_t> ms = {1, 2, 4, 8, 16, 32, 64};
  std::int64_t layers = 36;
  std::int64_t rounds = 15;
  std::string tables;
};

std::int64_t number(std::string_view text, std::int64_t lowest, std::int64_t highest) {
  std::int64_t value = 0;
  if (const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      error != std::errc{} || end != text.data() + text.size() || value < lowest || value > highest) {
    fail(format("want a number from {} to {}, got '{}'", lowest, highest, text));
  }
  return value;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 0; i < argc; ++i) {
    options.command += format("{}{}", i == 0 ? "" : " ", i == 0 ? "gpu_decode_layer" : argv[i]);
  }
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc) {
      fail(format("option {} wants a value", name));
    }
    std::string_view value = argv[i + 1];
    if (name == "--json") {
      options.json = value;
    } else if (name == "--tables") {
      options.tables = value;
    } else if (name == "--layers") {
      options.layers = number(value, 1, 200);
    } else if (name == "--rounds") {
      options.rounds = number(value, 6, 10'000);
    } else if (name == "--m") {
      options.ms.clear();
      while (!value.empty()) {
        const std::size_t comma = std::min(value.find(','), value.size());
        options.ms.push_back(number(value.substr(0, comma), 1, 4096));
        value.remove_prefix(std::min(comma + 1, value.size()));
      }
    } else {
      fail(format("unknown option {}", name));
    }
  }
  return options;
}

// out[m, j] = the mean of a query's element and of a key's or value's, each of which two queries share.
constexpr const char* kAttentionText = R"(
#include "ptx.cuh"
extern "C" __global__ void attention(const u16* qkv, u16* out) {
  const u32 j = blockIdx.x * blockDim.x + threadIdx.x;
  const u16* row = qkv + static_cast<i64>(blockIdx.y) * 6144;
  const float q = __uint_as_float(static_cast<u32>(row[j]) << 16);
  const float kv = __uint_as_float(static_cast<u32>(row[4096 + j % 2048]) << 16);
  out[static_cast<i64>(blockIdx.y) * 4096 + j] = float_to_bf16(0.5f * (q + kv));
})";

class Attention {
 public:
  explicit Attention(const cuda::DeviceContext& context)
      : kernel_(must(cuda::load_kernel(
            context, must(cuda::compile_text({cuda::compile_arch(context.info.arch), "attention", {}, "attention"},
                                             kAttentionText))))) {}
  Expected<void> enqueue(const void* qkv, void* out, std::int64_t m, void* stream) const {
    const cuda::CurrentContext current(kernel_.context());
    cuda::LaunchShape shape;
    shape.grid = {kHidden / 256, static_cast<unsigned>(m), 1};
    shape.block = {256, 1, 1};
    return cuda::launch_with(kernel_, shape, static_cast<cuda::CUstream>(stream), cuda::to_device_pointer(qkv),
                             cuda::to_device_pointer(out));
  }

 private:
  cuda::LoadedKernel kernel_;
};

// A product with the kernel that was chosen for it.
struct Product {
  std::unique_ptr<Kernel> kernel;
  std::string chosen;  // "hopper_decode {...}".
};

// What the linears and producers of one variant are made of.
struct Kernels {
  Variant variant = kShipped;
  bool fused = false;
  std::array<Product, kLinears> products;
  std::array<std::shared_ptr<RmsNorm>, 2> norms;  // Behind o and behind down.
  std::shared_ptr<SwiGlu> swiglu;
};

class Bench {
 public:
  Bench(const Device& device, const Options& options)
      : device_(device),
        options_(options),
        context_(*must(cuda::device_context(device.info.index))),
        attention_(context_),
        most_m_(*std::ranges::max_element(options.ms)) {
    pack_weights();
    for (const std::int64_t k : {kHidden, kInner}) {
      quantisers_.push_back(must(cuda::QuantiseKernel::prepare(context_, k)));
    }
    qkv_ = buffer(most_m_ * kQkv * 2);
    attended_ = buffer(most_m_ * kHidden * 2);
    branch_ = buffer(most_m_ * kHidden * 2);
    residual_ = buffer(most_m_ * kHidden * 2);
    rows_ = buffer(most_m_ * kInner * 2);
    inner_ = buffer(most_m_ * 2 * kInner * 2);
    codes_ = buffer(most_m_ * kInner);
    scales_ = buffer(most_m_ * 4);
    gamma_.assign(kHidden, 0x3F80);  // Ones.
  }

  void run() {
    std::printf("%s, %lld layers, us a layer (median of %lld interleaved replays); linears + producers: beyond attention\n",
                device_.info.name.c_str(), static_cast<long long>(options_.layers), static_cast<long long>(options_.rounds));
    std::printf("%4s %9s %9s %9s %9s %9s %9s   %-26s %-26s %s\n", "M", "shipped", "searched", "full", "consume", "off",
                "attention", "linears+producers (full)", "shipped / full", "searched / full");
    for (const std::int64_t m : options_.ms) {
      point(m);
    }
    if (!options_.json.empty()) {
      write();
    }
  }

 private:
  std::unique_ptr<DeviceBuffer> buffer(std::int64_t bytes) {
    return must(device_.backend->allocate(device_.info, std::max<std::int64_t>(bytes, 256)));
  }

  static Problem problem_of(const Shape& shape, Pdl pdl) {
    Problem problem;
    problem.n = shape.n;
    problem.k = shape.k;
    problem.pdl = pdl;
    return problem;
  }

  // Random finite codes; every layer takes them from another place on. Their root mean square is about 90: scales keep
  // outputs near 1.
  void pack_weights() {
    const std::int64_t longest = kShapes[kGateUp].n * kShapes[kGateUp].k;
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(longest + 4096 * options_.layers));
    std::mt19937_64 generator(20'261'130);
    for (std::size_t i = 0; i < codes.size(); i += 8) {
      std::uint64_t bits = generator();
      for (std::size_t j = i; j < std::min(i + 8, codes.size()); ++j, bits >>= 8) {
        const auto code = static_cast<std::uint8_t>(bits);
        codes[j] = (code & 0x7F) == 0x7F ? std::uint8_t{0x38} : code;
      }
    }
    for (std::size_t linear = 0; linear < kLinears; ++linear) {
      const Shape& shape = kShapes[linear];
      const std::vector<float> scales(static_cast<std::size_t>(shape.n),
                                      1.0F / (110.0F * std::sqrt(static_cast<float>(shape.k))));
      for (std::int64_t layer = 0; layer < options_.layers; ++layer) {
        WeightSource source;
        source.n = shape.n;
        source.k = shape.k;
        source.codes = codes.data() + 4096 * layer + 17 * static_cast<std::int64_t>(linear);
        source.scales = scales.data();
        source.scale_count = shape.n;
        weights_[linear].push_back(must(device_.backend->pack(device_.info, "row_major", source)));
      }
    }
  }

  // Kernels --------------------------------------------------------------------------------------------------------------

  Product prepare(const KernelFamily& family, const Problem& problem, const TileConfig& config, std::int64_t m) {
    Product product;
    product.kernel = must(family.prepare(device_.info, problem, config, m));
    product.chosen = format("{} {}", family.name(), config.to_json());
    workspace_bytes_ = std::max(workspace_bytes_, product.kernel->workspace_bytes(m));
    return product;
  }

  TileConfig searched(std::size_t linear, std::int64_t m) const {
    const Shape& shape = kShapes[linear];
    LaunchArgs args = codes_call(shape, m, false);
    args.y = view(inner_, m, shape.n);
    return search_vendor(device_, cuda::cublaslt_family(), problem_of(shape, Pdl::off), weights_[linear], args);
  }

  Kernels kernels_of(Variant variant, std::int64_t m) {
    const Pdl pdl = variant == kConsume ? Pdl::consume : variant == kFull || variant == kSearched ? Pdl::full : Pdl::off;
    Kernels kernels;
    kernels.variant = variant;
    kernels.fused = variant == kFull || variant == kConsume || variant == kOff;
    for (std::size_t linear = 0; linear < kLinears; ++linear) {
      const Problem problem = problem_of(kShapes[linear], pdl);
      if (!kernels.fused) {
        kernels.products[linear] =
            prepare(cuda::cublaslt_family(), problem, variant == kShipped ? TileConfig{} : searched(linear, m), m);
        continue;
      }
      // One choice for the three modes: that of a table for mode full.
      const Plan plan =
          Plan::make(device_.backend, device_.info, problem_of(kShapes[linear], Pdl::full), options_.tables, true);
      const Choice choice = plan.choose(m);
      if (choice.family == nullptr) {
        fail(format("{} at M = {}: {}", kShapes[linear].name, m, choice.reason));
      }
      kernels.products[linear] = prepare(*choice.family, problem, choice.config, m);
      kernels.products[linear].chosen = format("{} ({})", kernels.products[linear].chosen, to_string(choice.kind));
    }
    RmsNormOptions norm;
    norm.producer.device = device_.info.id;
    norm.producer.k = kHidden;
    norm.producer.pdl = pdl;
    norm.gamma = gamma_.data();
    for (auto& made : kernels.norms) {
      made = std::make_shared<RmsNorm>(must(RmsNorm::create(norm)));
    }
    ProducerOptions swiglu = norm.producer;
    swiglu.k = kInner;
    kernels.swiglu = std::make_shared<SwiGlu>(must(SwiGlu::create(swiglu)));
    return kernels;
  }

  // Calls ----------------------------------------------------------------------------------------------------------------

  MatrixView view(const std::unique_ptr<DeviceBuffer>& memory, std::int64_t m, std::int64_t cols,
                  DType dtype = DType::bf16) const {
    return {memory->data(), dtype, m, cols, cols, 1};
  }
  float* scales() const { return static_cast<float*>(scales_->data()); }

  LaunchArgs codes_call(const Shape& shape, std::int64_t m, bool behind_producer) const {
    LaunchArgs args;
    args.activation.x = read_only(view(codes_, m, shape.k, DType::e4m3));
    args.activation.scales = scales();
    args.activation.behind_producer = behind_producer;
    return args;
  }

  // One linear of raw rows: our own kernels quantise by themselves; in front of the vendor's the quantiser starts early
  // where it may.
  Expected<void> multiply_rows(const Kernels& kernels, std::size_t linear, std::int64_t layer, const MatrixView& x,
                               const MatrixView& y, void* stream) const {
    LaunchArgs args;
    args.activation.x = read_only(x);
    if (kernels.variant == kSearched) {
      const cuda::CurrentContext current(context_);
      const cuda::QuantiseKernel& quantise = quantisers_[kShapes[linear].k == kHidden ? 0 : 1];
      const auto codes = quantise.run(args.activation, quantised_->data(), static_cast<cuda::CUstream>(stream), true);
      if (!codes) {
        return codes.error();
      }
      args.activation.x = {cuda::to_pointer(codes->codes), DType::e4m3, x.rows, x.cols, codes->stride, 1};
      args.activation.scales = static_cast<const float*>(cuda::to_pointer(codes->scales));
    }
    return multiply(kernels, linear, layer, args, y, stream);
  }
  Expected<void> multiply_codes(const Kernels& kernels, std::size_t linear, std::int64_t layer, const MatrixView& y,
                                void* stream) const {
    return multiply(kernels, linear, layer, codes_call(kShapes[linear], y.rows, true), y, stream);
  }
  Expected<void> multiply(const Kernels& kernels, std::size_t linear, std::int64_t layer, LaunchArgs args,
                          const MatrixView& y, void* stream) const {
    args.y = y;
    args.workspace = workspace_->data();
    args.workspace_bytes = workspace_->bytes();
    args.stream = stream;
    return kernels.products[linear].kernel->run(*weights_[linear][static_cast<std::size_t>(layer)], args);
  }

  // The next linear behind a norm: fused through codes, else through rows.
  Expected<void> norm_and_multiply(const Kernels& kernels, std::size_t which, std::size_t linear, std::int64_t layer,
                                   const MatrixView& y, void* stream) const {
    const std::int64_t m = y.rows;
    const MatrixView residual = view(residual_, m, kHidden);
    const Residual adds = {read_only(residual), residual};
    const ConstMatrixView x = read_only(view(branch_, m, kHidden));
    if (kernels.fused) {
      const auto made = kernels.norms[which]->run(x, &adds, {view(codes_, m, kHidden, DType::e4m3), scales()}, stream);
      return made ? multiply_codes(kernels, linear, layer, y, stream) : made;
    }
    const MatrixView rows = view(rows_, m, kHidden);
    const auto made = kernels.norms[which]->run_unfused(x, &adds, rows, stream);
    return made ? multiply_rows(kernels, linear, layer, rows, y, stream) : made;
  }

  Expected<void> activate_and_multiply(const Kernels& kernels, std::int64_t layer, std::int64_t m, void* stream) const {
    const ConstMatrixView gate_up = read_only(view(inner_, m, 2 * kInner));
    const MatrixView y = view(branch_, m, kHidden);
    if (kernels.fused) {
      const auto made = kernels.swiglu->run(gate_up, {view(codes_, m, kInner, DType::e4m3), scales()}, stream);
      return made ? multiply_codes(kernels, kDown, layer, y, stream) : made;
    }
    const MatrixView rows = view(rows_, m, kInner);
    const auto made = kernels.swiglu->run_unfused(gate_up, rows, stream);
    return made ? multiply_rows(kernels, kDown, layer, rows, y, stream) : made;
  }

  Expected<void> enqueue_layer(const Kernels& kernels, std::int64_t layer, std::int64_t m, void* stream) const {
    using Step = std::function<Expected<void>()>;
    const MatrixView attended = view(attended_, m, kHidden);
    const std::array<Step, 5> steps = {
        [&] { return attention_.enqueue(qkv_->data(), attended_->data(), m, stream); },
        [&] { return multiply_rows(kernels, kO, layer, attended, view(branch_, m, kHidden), stream); },
        [&] { return norm_and_multiply(kernels, 0, kGateUp, layer, view(inner_, m, 2 * kInner), stream); },
        [&] { return activate_and_multiply(kernels, layer, m, stream); },
        [&] { return norm_and_multiply(kernels, 1, kQkvLinear, layer, view(qkv_, m, kQkv), stream); }};
    for (std::size_t i = 0; i < (kernels.variant == kAttention ? 1 : steps.size()); ++i) {
      if (auto done = steps[i](); !done) {
        return done;
      }
    }
    return {};
  }

  // Points ---------------------------------------------------------------------------------------------------------------

  struct Row {
    std::int64_t m = 0;
    std::array<std::vector<double>, kVariants> us;
    std::array<std::array<std::string, kLinears>, kVariants> chosen;
    std::array<double, 2> distance = {};  // Of shipped and searched from full.
  };

  // The first layer's qkv output and residual, the same for every variant.
  void reset(std::int64_t m) {
    std::mt19937_64 generator(static_cast<std::uint64_t>(m));
    std::normal_distribution<float> draw;
    for (const auto& [memory, cols] : {std::pair{&qkv_, kQkv}, std::pair{&residual_, kHidden}}) {
      std::vector<std::uint16_t> values(static_cast<std::size_t>(m * cols));
      std::ranges::generate(values, [&] { return float_to_bf16(draw(generator)); });
      must(device_.backend->upload(device_.info, (*memory)->data(), values.data(), m * cols * 2));
    }
    must(device_.backend->fill(device_.info, branch_->data(), 0xFF, branch_->bytes()));
    must(device_.backend->fill(device_.info, codes_->data(), 0xFF, codes_->bytes()));
  }

  // qkv's output and the residual behind one step from the same beginning.
  std::vector<std::uint16_t> outcome(TimedSequence& step, std::int64_t m) {
    reset(m);
    must(step.time_us());
    std::vector<std::uint16_t> values(static_cast<std::size_t>(m * (kQkv + kHidden)));
    must(device_.backend->download(device_.info, values.data(), qkv_->data(), m * kQkv * 2));
    must(device_.backend->download(device_.info, values.data() + m * kQkv, residual_->data(), m * kHidden * 2));
    return values;
  }

  // Relative Frobenius distance; infinite where a value is not finite.
  static double distance(const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b) {
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto x = static_cast<double>(bf16_to_float(a[i]));
      const auto y = static_cast<double>(bf16_to_float(b[i]));
      error += (x - y) * (x - y);
      norm += y * y;
    }
    return std::isfinite(error) && norm > 0 ? std::sqrt(error / norm) : std::numeric_limits<double>::infinity();
  }

  void check(std::int64_t m, std::array<std::unique_ptr<TimedSequence>, kVariants>& steps, Row& row) {
    // A relative difference e between two inputs of a linear gives a share e / 2^-4 of its elements another code, which is
    // 2^-4 away: sqrt(e 2^-4) at its output, a map whose fixed point is 2^-4. So the difference of the last places grows to
    // about that within a few layers and stays there; the residual stream of random layers doubles it (0.12 was measured at
    // M = 1). A missing or doubled step makes 1 and more.
    constexpr double kTolerance = 0.25;
    const auto full = outcome(*steps[kFull], m);
    for (const Variant variant : {kConsume, kOff, kFull}) {
      if (outcome(*steps[variant], m) != full) {
        fail(format("M = {}: {} and full differ, which must not", m, kNames[variant]));
      }
    }
    for (const Variant variant : {kShipped, kSearched}) {
      row.distance[variant] = distance(outcome(*steps[variant], m), full);
      if (!(row.distance[variant] <= kTolerance)) {
        fail(format("M = {}: relative distance of {} from full {:.3g}, want at most {}", m, kNames[variant],
                    row.distance[variant], kTolerance));
      }
    }
  }

  void point(std::int64_t m) {
    Row row;
    row.m = m;
    workspace_bytes_ = 0;
    quantised_ = buffer(std::max(quantisers_[0].workspace_bytes(m), quantisers_[1].workspace_bytes(m)));
    std::vector<Kernels> kernels;
    for (std::size_t variant = 0; variant < kAttention; ++variant) {
      kernels.push_back(kernels_of(static_cast<Variant>(variant), m));
      for (std::size_t linear = 0; linear < kLinears; ++linear) {
        row.chosen[variant][linear] = kernels.back().products[linear].chosen;
      }
    }
    kernels.emplace_back().variant = kAttention;
    workspace_ = buffer(workspace_bytes_);
    std::array<std::unique_ptr<TimedSequence>, kVariants> steps;
    for (std::size_t variant = 0; variant < kVariants; ++variant) {
      std::vector<TimedCall> calls;
      for (std::int64_t layer = 0; layer < options_.layers; ++layer) {
        calls.emplace_back(
            [this, layer, m, of = &kernels[variant]](void* stream) { return enqueue_layer(*of, layer, m, stream); });
      }
      steps[variant] = must(device_.backend->make_sequence(device_.info, std::move(calls)));
    }
    check(m, steps, row);
    for (std::int64_t round = -2; round < options_.rounds; ++round) {  // The first two warm up.
      for (std::size_t i = 0; i < kVariants; ++i) {
        const std::size_t variant = round % 2 == 0 ? i : kVariants - 1 - i;
        const double us = must(steps[variant]->time_us());
        if (round >= 0) {
          row.us[variant].push_back(us);
        }
      }
    }
    print(row);
    results_.push_back(std::move(row));
  }

  // Beyond attention, replay by replay.
  static std::vector<double> beyond_attention(const Row& row, std::size_t variant) {
    std::vector<double> us(row.us[variant].size());
    std::ranges::transform(row.us[variant], row.us[kAttention], us.begin(), std::minus<>());
    return us;
  }
  static Interval ratio_to_full(const Row& row, std::size_t variant) {
    return paired_ratio_95(row.us[variant], row.us[kFull]);
  }

  static void print(const Row& row) {
    const auto text = [](const Interval& interval) {
      return format("{:.3f} [{:.3f}, {:.3f}]", interval.mid, interval.lo, interval.hi);
    };
    std::printf("%4lld", static_cast<long long>(row.m));
    for (const auto& us : row.us) {
      std::printf(" %9.2f", median(us));
    }
    std::printf("   %-26s %-26s %s\n", text(signed_rank_interval(beyond_attention(row, kFull), 0.025)).c_str(),
                text(ratio_to_full(row, kShipped)).c_str(), text(ratio_to_full(row, kSearched)).c_str());
    for (std::size_t linear = 0; linear < kLinears; ++linear) {
      std::printf("       %-8s %s | searched %s\n", kShapes[linear].name, row.chosen[kFull][linear].c_str(),
                  row.chosen[kSearched][linear].c_str());
    }
    std::fflush(stdout);
  }

  static std::string quoted(const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
      result += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
    return result + "\"";
  }

  void write() const {
    std::ofstream out(options_.json);
    out << format(
        "{{\"device_name\": \"{}\", \"octile_version\": \"{}\", \"driver\": \"{}\", \"cublaslt\": \"{}\", "
        "\"command\": {}, \"unit\": \"us a layer\", \"layers\": {}, \"protocol\": \"a CUDA graph of all layers a variant, "
        "weights of their own a layer; median of {} interleaved replays, forward and backward in turn; 95 % intervals by "
        "signed ranks\", \"rows\": [",
        device_.info.name, version(), cuda::version_text(context_.driver->version), cuda::cublaslt_family().version(),
        quoted(options_.command), options_.layers, options_.rounds);
    const char* between = "";
    for (const Row& row : results_) {
      for (std::size_t variant = 0; variant < kVariants; ++variant) {
        const Interval beyond = signed_rank_interval(beyond_attention(row, variant), 0.025);
        const Interval ratio = ratio_to_full(row, variant);
        out << format("{}\n  {{\"m\": {}, \"variant\": \"{}\", \"us\": {:.3f}, \"linears_and_producers_us\": {:.3f}, ",
                      between, row.m, kNames[variant], median(row.us[variant]), variant == kAttention ? 0.0 : beyond.mid);
        if (variant != kAttention) {
          out << format("\"linears_and_producers_lo\": {:.3f}, \"linears_and_producers_hi\": {:.3f}, ", beyond.lo,
                        beyond.hi);
        }
        out << format(
            "\"ratio_to_full\": {:.4f}, \"ratio_lo\": {:.4f}, \"ratio_hi\": {:.4f}, \"distance_from_full\": {:.3g}",
            ratio.mid, ratio.lo, ratio.hi, variant < row.distance.size() ? row.distance[variant] : 0.0);
        for (std::size_t linear = 0; variant != kAttention && linear < kLinears; ++linear) {
          out << format(", \"{}\": {}", kShapes[linear].name, quoted(row.chosen[variant][linear]));
        }
        out << "}";
        between = ",";
      }
    }
    out << "\n]}\n";
    if (!(out << std::flush)) {
      fail(format("cannot write {}", options_.json));
    }
  }

  Device device_;
  const Options& options_;
  const cuda::DeviceContext& context_;
  Attention attention_;
  std::int64_t most_m_;
  std::array<std::vector<std::shared_ptr<PackedWeight>>, kLinears> weights_;  // One a layer.
  std::vector<cuda::QuantiseKernel> quantisers_;                              // Of kHidden and kInner.
  std::vector<std::uint16_t> gamma_;
  std::unique_ptr<DeviceBuffer> qkv_, attended_, branch_, residual_, rows_, inner_, codes_, scales_;
  std::unique_ptr<DeviceBuffer> quantised_, workspace_;
  std::int64_t workspace_bytes_ = 0;
  std::vector<Row> results_;
};

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const Backend& backend = cuda::cuda_backend();
  const std::vector<DeviceInfo> devices = backend.devices();
  if (devices.empty()) {
    fail(format("no CUDA device: {}", backend.no_device_reason()));
  }
  Bench({&backend, devices.front()}, options).run();
  return 0;
}

}  // namespace
}  // namespace octile

int main(int argc, char** argv) {
  return octile::status_of([&] { return octile::run(argc, argv); });
}
