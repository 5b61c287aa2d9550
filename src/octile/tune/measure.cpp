// SPDX-License-Identifier: Apache-2.0
// Cold copies, the numbers' check and timing of one device; see measure.h.
#include "octile/tune/measure.h"

#include "octile/core/format.h"
#include "octile/quant/quantize.h"
#include "octile/tune/output_check.h"
#include "octile/tune/random_data.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <span>

namespace octile {

namespace {

// Copies of one weight differ by where they start in one run of random codes: 61 codes further each, so that no two are
// alike and none costs a generation of its own.
constexpr std::int64_t kCopyShift = 61;
constexpr std::int64_t kShiftRange = 4096;
// A tiny weight would need tens of thousands of copies; beyond this many the pointers themselves would be the load.
constexpr std::int64_t kMaxCopies = 8192;
// Where the cache's size is unknown.
constexpr std::int64_t kAssumedCacheBytes = std::int64_t{32} << 20;

constexpr std::int64_t kSampledRows = 6;
constexpr std::int64_t kSampledColumns = 48;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::int64_t cold_copies(std::int64_t copy_bytes, std::int64_t llc_bytes, std::int64_t memory_bytes) noexcept {
  const std::int64_t wanted = 3 * (llc_bytes > 0 ? llc_bytes : kAssumedCacheBytes);
  const std::int64_t bytes = std::max<std::int64_t>(copy_bytes, 1);
  const std::int64_t needed = std::clamp<std::int64_t>((wanted + bytes - 1) / bytes, 2, kMaxCopies);
  return std::max<std::int64_t>(1, std::min(needed, memory_bytes / bytes));
}

// Every copy of one weight in one layout.
struct Measurer::PackedSet {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::string layout;
  std::vector<std::shared_ptr<PackedWeight>> copies;
  std::int64_t copy_bytes = 0;
  std::uint64_t used = 0;        // When it was last asked for.
  std::uint64_t next_group = 0;  // Shared by all candidates: whoever runs next meets copies that nobody has just read.

  std::int64_t bytes() const { return copy_bytes * static_cast<std::int64_t>(copies.size()); }
};

struct Measurer::Candidate {
  CandidateSpec spec;
  std::string layout;
  std::unique_ptr<Kernel> kernel;
  // By calls a sample: one sequence for each group of copies, made when first used.
  std::map<std::int64_t, std::vector<std::unique_ptr<TimedSequence>>> sequences;
};

// Inputs and outputs of one M.
struct Measurer::Operands {
  std::int64_t m = 0;
  std::vector<std::uint8_t> x_host;  // Raw rows.
  std::vector<float> bias_host;
  std::unique_ptr<DeviceBuffer> x, x_scales, y, bias, workspace;
  std::vector<std::int64_t> rows, columns;  // Sampled.
  Reference reference;                      // Of the samples; empty until first needed.
  std::vector<std::uint8_t> first_output;   // Of the first candidate that passed, with its guards.
  std::vector<std::uint8_t> output;         // Of the candidate that is checked; kept, since fresh pages cost more.
};

Measurer::Measurer(Device device, MeasureSettings settings)
    : device_(std::move(device)),
      settings_(settings),
      problem_(settings.problem),
      memory_bytes_(device_.info.memory_bytes / 4) {}

Measurer::~Measurer() = default;

Expected<void> Measurer::set_shape(std::int64_t n, std::int64_t k, WeightLayout layout) {
  if (n < 1 || k < 1) {
    return make_error(ErrorCode::invalid_argument, "a weight needs n >= 1 and k >= 1, not n = {}, k = {}", n, k);
  }
  forget_candidates();
  if (n != problem_.n || k != problem_.k) {
    operands_.reset();
  }
  problem_.n = n;
  problem_.k = k;
  problem_.layout = layout;
  const auto codes = static_cast<std::size_t>(n * k + kShiftRange);
  if (codes_.size() < codes) {
    codes_.resize(codes);
    fill_random_codes(codes_, settings_.seed);
  }
  const auto scales = static_cast<std::size_t>(n + kShiftRange);
  if (scales_.size() < scales) {
    scales_.resize(scales);
    fill_random_scales(scales_, settings_.seed + 1);
  }
  return {};
}

void Measurer::forget_candidates() { candidates_.clear(); }

WeightSource Measurer::source_of_copy(std::int64_t copy) const {
  const std::int64_t shift = copy * kCopyShift % kShiftRange;
  WeightSource source;
  source.n = problem_.n;
  source.k = problem_.k;
  source.codes = codes_.data() + shift;
  source.scales = scales_.data() + shift;
  source.scale_count = problem_.n;
  return source;
}

void Measurer::make_room(std::int64_t bytes) {
  std::int64_t held = bytes;
  for (const auto& set : sets_) {
    held += set->bytes();
  }
  while (held > memory_bytes_) {
    auto oldest = sets_.end();
    for (auto set = sets_.begin(); set != sets_.end(); ++set) {
      const bool in_use = (*set)->n == problem_.n && (*set)->k == problem_.k;
      if (!in_use && (oldest == sets_.end() || (*set)->used < (*oldest)->used)) {
        oldest = set;
      }
    }
    if (oldest == sets_.end()) {
      return;
    }
    held -= (*oldest)->bytes();
    sets_.erase(oldest);
  }
}

Expected<Measurer::PackedSet*> Measurer::packed_set(std::string_view layout) {
  for (const auto& set : sets_) {
    if (set->n == problem_.n && set->k == problem_.k && set->layout == layout) {
      set->used = ++use_count_;
      return set.get();
    }
  }
  make_room(problem_.n * problem_.k);
  auto set = std::make_unique<PackedSet>();
  set->n = problem_.n;
  set->k = problem_.k;
  set->layout = layout;
  std::int64_t wanted = 1;
  for (std::int64_t copy = 0; copy < wanted; ++copy) {
    Expected<std::shared_ptr<PackedWeight>> packed = device_.backend->pack(device_.info, layout, source_of_copy(copy));
    if (!packed) {
      return std::move(packed).error();
    }
    set->copies.push_back(std::move(*packed));
    if (copy == 0) {
      // Two layouts of one weight are resident at once (ours and the baseline's): each may fill half of the room.
      set->copy_bytes = set->copies.front()->bytes();
      wanted = cold_copies(set->copy_bytes, device_.info.llc_bytes, memory_bytes_ / 2);
      make_room(wanted * set->copy_bytes);
    }
  }
  set->used = ++use_count_;
  sets_.push_back(std::move(set));
  return sets_.back().get();
}

Expected<void> Measurer::set_operands(std::int64_t m) {
  if (operands_ != nullptr && operands_->m == m) {
    return {};
  }
  candidates_.clear();  // Their sequences hold pointers to the old operands.
  auto fresh = std::make_unique<Operands>();
  const Backend& backend = *device_.backend;
  const DeviceInfo& info = device_.info;
  const std::int64_t n = problem_.n;
  const std::int64_t k = problem_.k;
  fresh->m = m;
  fresh->rows = sample_indices(m, kSampledRows, settings_.seed + 2);
  fresh->columns = sample_indices(n, kSampledColumns, settings_.seed + 3);
  fresh->x_host.resize(static_cast<std::size_t>(m * k * 2));
  fill_random_activations(fresh->x_host.data(), DType::bf16, m * k, settings_.seed + 4);

  // Device buffer filled from the host; `place` receives it.
  const auto to_device = [&](std::unique_ptr<DeviceBuffer>& place, const void* data, std::int64_t bytes) -> Expected<void> {
    Expected<std::unique_ptr<DeviceBuffer>> buffer = backend.allocate(info, bytes);
    if (!buffer) {
      return std::move(buffer).error();
    }
    place = std::move(*buffer);
    return data == nullptr ? Expected<void>() : backend.upload(info, place->data(), data, bytes);
  };
  Expected<void> done;
  if (settings_.quantized_input) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(m * k));
    std::vector<float> scales(static_cast<std::size_t>(m));
    for (std::int64_t row = 0; row < m; ++row) {
      scales[static_cast<std::size_t>(row)] =
          quantize_row(fresh->x_host.data() + row * k * 2, DType::bf16, k, codes.data() + row * k, {});
    }
    done = to_device(fresh->x, codes.data(), m * k);
    if (done) {
      done = to_device(fresh->x_scales, scales.data(), m * static_cast<std::int64_t>(sizeof(float)));
    }
  } else {
    done = to_device(fresh->x, fresh->x_host.data(), m * k * 2);
  }
  if (done && problem_.bias) {
    fresh->bias_host.resize(static_cast<std::size_t>(n));
    fill_random_scales(fresh->bias_host, settings_.seed + 5);
    done = to_device(fresh->bias, fresh->bias_host.data(), n * static_cast<std::int64_t>(sizeof(float)));
  }
  if (done) {
    done = to_device(fresh->y, nullptr, m * n * size_of(problem_.out_dtype) + 2 * kGuardBytes);
  }
  if (!done) {
    return done;
  }
  operands_ = std::move(fresh);
  return {};
}

const Reference& Measurer::reference_values() {
  Operands& o = *operands_;
  if (!o.reference.values.empty()) {
    return o.reference;
  }
  const std::int64_t k = problem_.k;
  std::vector<std::uint8_t> codes(o.rows.size() * static_cast<std::size_t>(k));
  std::vector<float> scales(o.rows.size());
  std::vector<std::int64_t> row_numbers(o.rows.size());
  for (std::size_t i = 0; i < o.rows.size(); ++i) {
    row_numbers[i] = static_cast<std::int64_t>(i);
    scales[i] = quantize_row(o.x_host.data() + o.rows[i] * k * 2, DType::bf16, k,
                             codes.data() + i * static_cast<std::size_t>(k), {});
  }
  const WeightSource weight = source_of_copy(0);
  ReferenceInputs in;
  in.m = static_cast<std::int64_t>(o.rows.size());
  in.n = problem_.n;
  in.k = k;
  in.codes_x = codes.data();
  in.scales_x = scales.data();
  in.codes_w = static_cast<const std::uint8_t*>(weight.codes);
  in.scales_w = static_cast<const float*>(weight.scales);
  in.bias = problem_.bias ? o.bias_host.data() : nullptr;
  o.reference = reference_samples(in, row_numbers, o.columns);
  return o.reference;
}

LaunchArgs Measurer::launch_args(const Candidate& candidate) const {
  const Operands& o = *operands_;
  LaunchArgs args;
  args.activation.x = {o.x->data(), settings_.quantized_input ? DType::e4m3 : DType::bf16, o.m, problem_.k, problem_.k, 1};
  if (settings_.quantized_input) {
    args.activation.scales = static_cast<const float*>(o.x_scales->data());
  }
  args.y = {static_cast<std::uint8_t*>(o.y->data()) + kGuardBytes, problem_.out_dtype, o.m, problem_.n, problem_.n, 1};
  args.bias = o.bias != nullptr ? static_cast<const float*>(o.bias->data()) : nullptr;
  args.workspace = o.workspace->data();
  args.workspace_bytes = candidate.kernel->workspace_bytes(o.m);
  return args;
}

Expected<void> Measurer::prepare(Candidate& candidate, std::int64_t m) {
  const Backend& backend = *device_.backend;
  if (candidate.spec.role == CandidateSpec::Role::floor) {
    for (const KernelFamily* family : backend.families()) {
      if (!family->is_vendor() && family->available(device_.info)) {
        candidate.layout = family->layout_for(problem_);
        break;
      }
    }
    candidate.spec.kernel = "stream_floor";
    Expected<std::unique_ptr<Kernel>> kernel = backend.prepare_stream_floor(device_.info);
    if (!kernel) {
      return std::move(kernel).error();
    }
    candidate.kernel = std::move(*kernel);
    return {};
  }
  if (candidate.spec.role == CandidateSpec::Role::bare_vendor) {
    Expected<BareVendor> bare = backend.prepare_bare_vendor(device_.info, problem_, m);
    if (!bare) {
      return std::move(bare).error();
    }
    candidate.layout = bare->layout;
    candidate.spec.kernel = bare->name;
    candidate.kernel = std::move(bare->kernel);
    return {};
  }
  const KernelFamily* family = find_family(backend, candidate.spec.kernel);
  if (family == nullptr) {
    return make_error(ErrorCode::unavailable, "no kernel family named \"{}\" on {}", candidate.spec.kernel, device_.info.id);
  }
  if (Expected<void> usable = family->available(device_.info); !usable) {
    return usable;
  }
  if (Expected<void> legal = family->check(device_.info, problem_, candidate.spec.config); !legal) {
    return legal;
  }
  candidate.layout = family->layout_for(problem_);
  Expected<std::unique_ptr<Kernel>> kernel = family->prepare(device_.info, problem_, candidate.spec.config, m);
  if (!kernel) {
    return std::move(kernel).error();
  }
  candidate.kernel = std::move(*kernel);
  return {};
}

std::string Measurer::compare_with_first(const std::vector<std::uint8_t>& output) {
  Operands& o = *operands_;
  if (o.first_output.empty()) {
    o.first_output = output;
    return {};
  }
  const double tolerance = error_tolerance(problem_.out_dtype, problem_.k, problem_.accumulate);
  return check_agreement({output, problem_.out_dtype, o.m, problem_.n},
                         {o.first_output, problem_.out_dtype, o.m, problem_.n}, tolerance);
}

std::string Measurer::check_output(const Candidate& candidate, const std::vector<std::uint8_t>& output,
                                   Admission& admission) {
  const Operands& o = *operands_;
  const GuardedOutput guarded{output, problem_.out_dtype, o.m, problem_.n};
  std::string wrong = check_guards(guarded);
  // The yardsticks of bench compute no linear: only where they write is checked.
  if (!wrong.empty() || candidate.spec.role != CandidateSpec::Role::family) {
    return wrong;
  }
  wrong = check_all_written(guarded);
  if (wrong.empty()) {
    const double tolerance = error_tolerance(problem_.out_dtype, problem_.k, problem_.accumulate);
    wrong = check_samples(guarded, o.rows, o.columns, reference_values(), tolerance, admission.rel_error);
  }
  return wrong.empty() ? compare_with_first(output) : wrong;
}

Expected<void> Measurer::check(const Candidate& candidate, Admission& admission) {
  const Backend& backend = *device_.backend;
  const DeviceInfo& info = device_.info;
  Operands& o = *operands_;
  Expected<void> done = backend.fill(info, o.y->data(), kPoison, o.y->bytes());
  if (done) {
    done = backend.fill(info, o.workspace->data(), kPoison, o.workspace->bytes());
  }
  if (!done) {
    return done;
  }
  const LaunchArgs args = launch_args(candidate);
  Expected<PackedSet*> set = packed_set(candidate.layout);
  if (!set) {
    return std::move(set).error();
  }
  const Kernel* kernel = candidate.kernel.get();
  const std::shared_ptr<PackedWeight> weight = (*set)->copies.front();
  std::vector<TimedCall> calls{[kernel, weight, args](void* stream) {
    LaunchArgs on_stream = args;
    on_stream.stream = stream;
    return kernel->run(*weight, on_stream);
  }};
  admission.kind = "error";  // Whatever fails from here on is the candidate's.
  Expected<std::unique_ptr<TimedSequence>> sequence = backend.make_sequence(info, std::move(calls));
  if (!sequence) {
    admission.reason = sequence.error().message;
    return {};
  }
  Expected<double> us = (*sequence)->time_us();
  if (!us) {
    admission.reason = us.error().message;
    return {};
  }
  admission.first_us = *us;
  // What was asked for of the workspace may hold anything; only what lies behind it is looked at.
  std::vector<std::uint8_t>& output = o.output;
  output.resize(static_cast<std::size_t>(o.y->bytes()));
  std::vector<std::uint8_t> behind(static_cast<std::size_t>(o.workspace->bytes() - args.workspace_bytes));
  done = backend.download(info, output.data(), o.y->data(), o.y->bytes());
  if (done) {
    const auto* workspace = static_cast<const std::uint8_t*>(o.workspace->data());
    done = backend.download(info, behind.data(), workspace + args.workspace_bytes, static_cast<std::int64_t>(behind.size()));
  }
  if (!done) {
    return done;
  }
  admission.reason = check_output(candidate, output, admission);
  if (admission.reason.empty() && std::ranges::any_of(behind, [](std::uint8_t byte) { return byte != kPoison; })) {
    admission.reason = format("wrote behind the {} bytes of workspace that it asked for", args.workspace_bytes);
  }
  admission.kind = admission.reason.empty() ? "" : "wrong";
  return {};
}

Expected<Admission> Measurer::admit(int id, const CandidateSpec& spec, std::int64_t m, bool check_numbers,
                                    const PhaseCallback& phase) {
  const auto start = std::chrono::steady_clock::now();
  Admission admission;
  if (m < 1 || problem_.n < 1) {
    return make_error(ErrorCode::invalid_argument, "wanted a shape and m >= 1, not m = {}", m);
  }
  if (Expected<void> ready = set_operands(m); !ready) {
    return std::move(ready).error();
  }
  auto candidate = std::make_unique<Candidate>();
  candidate->spec = spec;
  admission.kind = "error";
  phase("prepare");
  if (Expected<void> prepared = prepare(*candidate, m); !prepared) {
    admission.reason = prepared.error().message;
    return admission;
  }
  admission.kernel = candidate->spec.kernel;
  admission.layout = candidate->layout;
  phase("pack");
  Expected<PackedSet*> set = packed_set(candidate->layout);
  if (!set) {
    admission.reason = set.error().message;
    return admission;
  }
  admission.copies = static_cast<std::int64_t>((*set)->copies.size());
  admission.copy_bytes = (*set)->copy_bytes;
  // A guard of one cache line behind the workspace that the kernel asked for.
  const std::int64_t workspace_bytes = candidate->kernel->workspace_bytes(m) + 64;
  if (operands_->workspace == nullptr || operands_->workspace->bytes() < workspace_bytes) {
    for (const auto& [other_id, other] : candidates_) {
      other->sequences.clear();  // They hold the old pointer, and are made again when next timed.
    }
    Expected<std::unique_ptr<DeviceBuffer>> workspace = device_.backend->allocate(device_.info, workspace_bytes);
    if (!workspace) {
      return std::move(workspace).error();
    }
    operands_->workspace = std::move(*workspace);
  }
  if (check_numbers) {
    phase("run");
    if (Expected<void> done = check(*candidate, admission); !done) {
      return std::move(done).error();
    }
  } else {
    admission.kind.clear();
  }
  admission.seconds = seconds_since(start);
  admission.admitted = admission.kind.empty();
  if (admission.admitted) {
    candidates_[id] = std::move(candidate);
  }
  return admission;
}

void Measurer::compile_ahead(const std::vector<CompileItem>& items, int spare_cores,
                             const std::function<void(std::size_t)>& progress) const {
  std::vector<WarmupItem> wanted;
  for (const CompileItem& item : items) {
    // Both sides are one program: every family that is asked for is here.
    if (const KernelFamily* family = find_family(*device_.backend, item.spec.kernel); family != nullptr) {
      Problem problem = problem_;
      problem.n = item.n;
      problem.k = item.k;
      wanted.push_back({family, problem, item.spec.config});
    }
  }
  // What fails here fails again, with its reason, when the candidate is admitted.
  static_cast<void>(device_.backend->warm_up(
      device_.info, wanted,
      {.export_directory = {}, .spare_cores = spare_cores, .trusts_cache = true, .progress = progress}));
}

Expected<double> Measurer::time_us(int id, std::int64_t calls) {
  const auto found = candidates_.find(id);
  if (found == candidates_.end() || calls < 1) {
    return make_error(ErrorCode::invalid_argument, "candidate {} is not admitted, or calls = {} is not positive", id, calls);
  }
  Candidate& candidate = *found->second;
  Expected<PackedSet*> set = packed_set(candidate.layout);
  if (!set) {
    return std::move(set).error();
  }
  const std::vector<std::shared_ptr<PackedWeight>>& copies = (*set)->copies;
  const auto copy_count = static_cast<std::int64_t>(copies.size());
  if (calls >= copy_count && device_.info.kind == DeviceKind::cuda) {
    // A sample that ends with the last copy can be repeated as it is: one graph instead of one for each place to start.
    calls = (calls + copy_count - 1) / copy_count * copy_count;
  }
  // A sample visits `calls` copies in turn and the next one goes on where it ended, so that no copy comes round before all
  // others did. After `groups` samples the rotation is back at its start.
  const std::int64_t groups = copy_count / std::gcd(copy_count, calls);
  std::vector<std::unique_ptr<TimedSequence>>& sequences = candidate.sequences[calls];
  sequences.resize(static_cast<std::size_t>(groups));
  const auto group = static_cast<std::size_t>((*set)->next_group++ % static_cast<std::uint64_t>(groups));
  if (sequences[group] == nullptr) {
    std::vector<TimedCall> timed;
    const LaunchArgs args = launch_args(candidate);
    for (std::int64_t i = 0; i < calls; ++i) {
      const std::int64_t copy = (static_cast<std::int64_t>(group) * calls + i) % copy_count;
      timed.emplace_back(
          [kernel = candidate.kernel.get(), weight = copies[static_cast<std::size_t>(copy)], args](void* stream) {
            LaunchArgs on_stream = args;
            on_stream.stream = stream;
            return kernel->run(*weight, on_stream);
          });
    }
    Expected<std::unique_ptr<TimedSequence>> made = device_.backend->make_sequence(device_.info, std::move(timed));
    if (!made) {
      return std::move(made).error();
    }
    sequences[group] = std::move(*made);
  }
  return sequences[group]->time_us();
}

}  // namespace octile
