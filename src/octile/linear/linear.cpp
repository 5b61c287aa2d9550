// SPDX-License-Identifier: Apache-2.0
// Fp8Linear: what a linear adds to its weight (bias, how activations arrive), and the hot path.
#include "octile/core/env.h"
#include "octile/core/float_formats.h"
#include "octile/core/float_mode.h"
#include "octile/core/format.h"
#include "octile/core/log.h"
#include "octile/linear/call_line.h"
#include "octile/linear/dispatch.h"
#include "octile/linear/explain.h"
#include "octile/linear/untuned_log.h"
#include "octile/quant/quantize.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace octile {

struct Fp8Linear::Impl {
  Impl(Fp8Weight its_weight, const LinearOptions& its_options, Plan its_plan)
      : weight(std::move(its_weight)), options(its_options), plan(std::move(its_plan)) {}

  Fp8Weight weight;
  LinearOptions options;  // `bias` is cleared: the caller's array may be gone.
  Plan plan;
  std::unique_ptr<DeviceBuffer> bias;       // [n] fp32, or nullptr.
  std::shared_ptr<UntunedCounter> untuned;  // Of calls that no table entry serves; nullptr: they are not counted.
  bool verbose = false;                     // OCTILE_VERBOSE.

  // prepare() publishes a new dispatch and keeps the older ones, which running calls and captured graphs may still use.
  std::mutex prepare_mutex;
  std::vector<std::unique_ptr<Dispatch>> dispatches;
  std::atomic<const Dispatch*> current{nullptr};

  // The last of the weight's updates that a run() of this linear was fenced for.
  mutable std::atomic<std::uint64_t> seen_updates{0};

  const float* bias_data() const noexcept { return bias == nullptr ? nullptr : static_cast<const float*>(bias->data()); }
};

namespace {

Expected<void> check_linear_options(const LinearOptions& options) {
  switch (options.activation) {
    case ActivationMode::dynamic_per_token:
      if (auto ok = check_quantize_options(options.quantize); !ok) {
        return ok;
      }
      break;
    case ActivationMode::static_per_tensor:
      if (!std::isfinite(options.static_scale) || options.static_scale <= 0.0F) {
        return make_error(ErrorCode::invalid_argument, "static activation scale: want a finite value > 0, got {}",
                          options.static_scale);
      }
      break;
    case ActivationMode::quantized:
      break;
  }
  // Dropping it would quantise with other scales than were asked for.
  if (options.activation != ActivationMode::static_per_tensor && options.static_scale != 0.0F) {
    return make_error(ErrorCode::invalid_argument,
                      "static activation scale: want 0 unless activation is static_per_tensor, got {}",
                      options.static_scale);
  }
  if (options.activation != ActivationMode::quantized && options.x_dtype != DType::bf16 && options.x_dtype != DType::fp16) {
    return make_error(ErrorCode::invalid_argument, "activations: want bf16 or fp16, got {}", to_string(options.x_dtype));
  }
  if (options.bias != nullptr && options.bias_dtype != DType::bf16 && options.bias_dtype != DType::fp16 &&
      options.bias_dtype != DType::fp32) {
    return make_error(ErrorCode::invalid_argument, "bias: want bf16, fp16 or fp32, got {}", to_string(options.bias_dtype));
  }
  return {};
}

Expected<std::unique_ptr<DeviceBuffer>> upload_bias(const Device& device, const LinearOptions& options, std::int64_t n) {
  std::vector<float> wide(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    wide[static_cast<std::size_t>(i)] = load_as_float(options.bias, options.bias_dtype, i);
  }
  const std::int64_t bytes = n * static_cast<std::int64_t>(sizeof(float));
  auto buffer = device.backend->allocate(device.info, bytes);
  if (!buffer) {
    return buffer;
  }
  if (auto ok = device.backend->upload(device.info, (*buffer)->data(), wide.data(), bytes); !ok) {
    return ok.error();
  }
  return buffer;
}

// Substitutes are fine where a table has changed since the weight was packed, but not where the caller relies on the
// baseline: with the switch off, or with an engine's function registered.
Expected<void> check_baseline_is_packed(const Plan& plan, const Fp8Weight::Impl& weight) {
  for (const std::string& layout : plan.layouts(std::numeric_limits<std::int64_t>::max())) {
    if (packed_in_layout(weight, layout) == nullptr && (!plan.tuned() || layout == kEngineLayout)) {
      return make_error(
          ErrorCode::invalid_argument,
          "the baseline reads layout {}, which the weight [{}, {}] lacks, since it was packed before {}: create "
          "the weight again",
          layout, weight.problem.n, weight.problem.k,
          layout == kEngineLayout ? "the baseline was registered" : "the kill switch went off");
    }
  }
  return {};
}

// Row `row` of a view, and as many rows as are left.
template <class View>
View rows_of(const View& view, std::int64_t row, std::int64_t rows) noexcept {
  using Byte = std::conditional_t<std::is_same_v<View, ConstMatrixView>, const std::uint8_t, std::uint8_t>;
  View part = view;
  part.data = static_cast<Byte*>(view.data) + row * view.row_stride * size_of(view.dtype);
  part.rows = rows;
  return part;
}

Expected<void> check_quantized(const ConstMatrixView& codes, const float* scales, std::int64_t k) {
  if (auto ok = check_codes_view(codes, k); !ok) {
    return ok;
  }
  if (scales == nullptr && codes.rows > 0) {
    return make_error(ErrorCode::invalid_argument, "quantised activations [{}, {}]: want their scales, got a null pointer",
                      codes.rows, codes.cols);
  }
  return {};
}

// The newest dispatch for which the workspace suffices, and what it needs: one that was sized before another thread's
// prepare() still serves. No dispatch and the newest one's bytes where none fits.
struct Fitting {
  const Dispatch* dispatch = nullptr;
  std::int64_t bytes = 0;
};
Fitting fitting_dispatch(const Dispatch* newest, std::int64_t rows, std::int64_t workspace_bytes) noexcept {
  const std::int64_t wanted = newest->call_bytes(rows);
  if (wanted <= workspace_bytes) {
    return {newest, wanted};
  }
  for (const Dispatch* older = newest->older; older != nullptr; older = older->older) {
    if (const std::int64_t bytes = older->call_bytes(rows); bytes <= workspace_bytes) {
      return {older, bytes};
    }
  }
  return {nullptr, wanted};
}

// One line a shape: a table that is missing must not go unseen.
void say_untuned_once(const Plan& plan) {
  const Problem& problem = plan.problem();
  const std::string& device = plan.device().name;
  if (!plan.tuned() || plan.lookup().table != nullptr || !is_rank_zero()) {
    return;
  }
  const std::string type =
      problem.out_dtype == DType::bf16 ? std::string() : format(" --out-dtype {}", to_string(problem.out_dtype));
  log_once(
      LogLevel::info, format("untuned {} {} {}{}", device, problem.n, problem.k, type),
      format("untuned: {} has no table for N = {}, K = {}, so {} serves; octile tune --device {} --n {} --k {}{} makes one",
             device, problem.n, problem.k, plan.choose(1).kernel, plan.device().id, problem.n, problem.k, type));
}

// Allocates at the first call alone.
void say_fallback_once(const Problem& problem, std::int64_t rows) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true, std::memory_order_relaxed)) {
    log_warning(
        "run() before prepare(): the linear N={} K={}, and others after it, run in chunks of {} rows; call prepare(max_m)",
        problem.n, problem.k, rows);
  }
}

// Runs a chunk and says so.
Expected<void> run_and_say(const PreparedKernel& prepared, const LaunchArgs& args, const Plan& plan) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  auto done = prepared.kernel->run(*prepared.weight, args);
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  if (done) {
    const ConstMatrixView& x = args.activation.x;
    CallLine line;
    line.kernel = prepared.family == nullptr ? "engine" : prepared.family->name();
    line.m = x.rows;
    line.n = plan.problem().n;
    line.k = plan.problem().k;
    line.x_bytes = line.m * line.k * size_of(x.dtype);
    line.y_bytes = line.m * line.n * size_of(args.y.dtype);
    line.us = us;
    line.is_done = plan.device().kind == DeviceKind::cpu;
    print_call_line(line);
  }
  return done;
}

// The hot path: checks, a binary search and a launch for each chunk.
Expected<void> launch(const Fp8Linear::Impl& linear, const Activation& activation, const MatrixView& y, void* workspace,
                      std::int64_t workspace_bytes, void* stream) {
  const Problem& problem = linear.plan.problem();
  const std::int64_t rows = activation.x.rows;
  if (auto ok = check_output_view(y, rows, problem.n, problem.out_dtype); !ok) {
    return ok;
  }
  if (rows == 0) {
    return {};
  }
  if (auto ok = check_apart(activation.x, y); !ok) {
    return ok;
  }
  const Dispatch* newest = linear.current.load(std::memory_order_acquire);
  if (newest == nullptr) {
    return make_error(ErrorCode::not_prepared, "M = {}: want prepare(max_m) before run()", rows);
  }
  if (newest->is_fallback) {
    say_fallback_once(problem, newest->max_m);
  }
  const auto [dispatch, bytes] = fitting_dispatch(newest, rows, workspace_bytes);
  const std::uintptr_t alignment = linear.plan.device().kind == DeviceKind::cpu ? 64 : 256;
  if (dispatch == nullptr ||
      (bytes > 0 && (workspace == nullptr || reinterpret_cast<std::uintptr_t>(workspace) % alignment != 0))) {
    return make_error(ErrorCode::invalid_argument, "workspace: want {} bytes, {}-byte aligned, got {} bytes at {}", bytes,
                      alignment, workspace_bytes, static_cast<const void*>(workspace));
  }
  LaunchArgs args;
  args.bias = linear.bias_data();
  args.workspace = workspace;
  args.workspace_bytes = workspace_bytes;
  args.stream = stream;
  args.activation = activation;
  const std::uint64_t updates = linear.weight.impl()->updates.load(std::memory_order_acquire);
  if (linear.seen_updates.load(std::memory_order_acquire) != updates) {
    args.fenced = true;
    linear.seen_updates.store(updates, std::memory_order_release);
  }
  for (std::int64_t row = 0; row < rows; row += dispatch->max_m) {
    const std::int64_t m = std::min(dispatch->max_m, rows - row);
    args.activation.x = rows_of(activation.x, row, m);
    args.activation.scales = activation.scales == nullptr ? nullptr : activation.scales + row;
    args.y = rows_of(y, row, m);
    const std::size_t interval = dispatch->interval_of(m);
    if (linear.untuned != nullptr && dispatch->untuned[interval]) {
      linear.untuned->add(m);
    }
    const PreparedKernel& prepared = *dispatch->serving[interval];
    // An engine's function has the bits that it has when the engine calls it.
    std::optional<ScopedFloatMode> mode;
    if (prepared.weight->layout() != kEngineLayout) {
      mode.emplace();
    }
    if (auto ok = linear.verbose ? run_and_say(prepared, args, linear.plan) : prepared.kernel->run(*prepared.weight, args);
        !ok) {
      return ok;
    }
  }
  return {};
}

// Rows that allow_capture_fallback prepares for: the decoding sizes, and chunks of the rest.
constexpr std::int64_t kFallbackRows = 64;

// Makes the kernels for up to `max_m` rows and hands them to run(). The caller holds the lock, or is alone.
Expected<void> prepare_dispatch(Fp8Linear::Impl& impl, std::int64_t max_m, bool is_fallback) {
  const LinearOptions& options = impl.options;
  CallShape call;
  call.x_dtype = options.x_dtype;
  call.raw = options.activation != ActivationMode::quantized;
  call.static_scale = options.activation == ActivationMode::static_per_tensor ? options.static_scale : 0.0F;
  call.quantize = options.quantize;
  call.bias = impl.bias_data();
  auto made = make_dispatch(impl.plan, *impl.weight.impl(), call, max_m);
  if (!made) {
    return std::move(made).error();
  }
  (*made)->older = impl.current.load(std::memory_order_relaxed);
  (*made)->is_fallback = is_fallback;
  impl.dispatches.push_back(std::move(*made));
  impl.current.store(impl.dispatches.back().get(), std::memory_order_release);
  return {};
}

}  // namespace

Expected<Fp8Linear> Fp8Linear::create(Fp8Weight weight, const LinearOptions& options) try {
  const ScopedFloatMode mode;
  if (weight.impl() == nullptr) {
    return make_error(ErrorCode::invalid_argument, "want a weight, got one that was moved from");
  }
  if (auto ok = check_linear_options(options); !ok) {
    return ok.error();
  }
  const auto enabled = tuning_enabled();
  if (!enabled) {
    return enabled.error();
  }
  const auto verbose = env::get_bool("OCTILE_VERBOSE");
  if (!verbose) {
    return verbose.error();
  }
  const Fp8Weight::Impl& packed = *weight.impl();
  // A weight that was packed with the switch off has the baseline's layout only.
  const bool tuned = *enabled && packed.tuned;
  Problem problem = packed.problem;
  problem.bias = options.bias != nullptr;
  if (auto ok = limit_sms(packed.device.info, options.max_sms, problem); !ok) {
    return ok.error();
  }
  // A table that has come since, in another layout, must not be taken for this weight's.
  for (const WeightLayout layout : {WeightLayout::row_major, WeightLayout::slab64}) {
    if (packed_in_layout(packed, to_string(layout)) != nullptr) {
      problem.layout = layout;
    }
  }
  Plan plan = Plan::make(packed.device.backend, packed.device.info, problem, packed.tables, tuned);
  if (auto ok = check_baseline_is_packed(plan, packed); !ok) {
    return ok.error();
  }
  say_untuned_once(plan);
  auto impl = std::make_shared<Impl>(std::move(weight), options, std::move(plan));
  impl->verbose = *verbose;
  if (impl->plan.tuned()) {
    impl->untuned =
        untuned_counter({packed.device.info.name, problem.n, problem.k, to_string(problem.out_dtype), problem.bias});
  }
  if (options.bias != nullptr) {
    auto bias = upload_bias(packed.device, options, problem.n);
    if (!bias) {
      return std::move(bias).error();
    }
    impl->bias = std::move(*bias);
    impl->options.bias = nullptr;
  }
  if (options.allow_capture_fallback) {
    if (auto ready = prepare_dispatch(*impl, kFallbackRows, true); !ready) {
      return std::move(ready).error();
    }
  }
  return Fp8Linear(std::move(impl));
} catch (const std::bad_alloc&) {
  return out_of_memory("linear: out of memory");
}

Expected<void> Fp8Linear::prepare(std::int64_t max_m) try {
  if (max_m < 1) {
    return make_error(ErrorCode::invalid_argument, "prepare: want max_m >= 1, got {}", max_m);
  }
  // Threads that a vendor starts here keep the mode that they start with.
  const ScopedFloatMode mode;
  const std::lock_guard lock(impl_->prepare_mutex);
  const Dispatch* current = impl_->current.load(std::memory_order_relaxed);
  if (current != nullptr && !current->is_fallback && current->max_m >= max_m) {
    return {};
  }
  return prepare_dispatch(*impl_, max_m, false);
} catch (const std::bad_alloc&) {
  return out_of_memory("prepare({}): out of memory", max_m);
}

std::int64_t Fp8Linear::workspace_bytes(std::int64_t max_m) const noexcept {
  const Dispatch* dispatch = impl_->current.load(std::memory_order_acquire);
  return dispatch == nullptr ? 0 : dispatch->workspace_bytes(std::min(max_m, dispatch->max_m));
}

Expected<void> Fp8Linear::run(const ConstMatrixView& x, const MatrixView& y, void* workspace, std::int64_t workspace_bytes,
                              void* stream) const {
  const LinearOptions& options = impl_->options;
  if (options.activation == ActivationMode::quantized) {
    return Error{ErrorCode::invalid_argument, "this linear takes quantised activations: use run_quantized()"};
  }
  if (x.dtype != options.x_dtype) {
    return make_error(ErrorCode::invalid_argument, "activations: want {}, got {}", to_string(options.x_dtype),
                      to_string(x.dtype));
  }
  if (auto ok = check_activation_view(x, impl_->plan.problem().k); !ok) {
    return ok;
  }
  Activation activation;
  activation.x = x;
  activation.static_scale = options.activation == ActivationMode::static_per_tensor ? options.static_scale : 0.0F;
  activation.quantize = options.quantize;
  return launch(*impl_, activation, y, workspace, workspace_bytes, stream);
}

Expected<void> Fp8Linear::run_quantized(const ConstMatrixView& codes, const float* scales, const MatrixView& y,
                                        void* workspace, std::int64_t workspace_bytes, void* stream) const {
  if (auto ok = check_quantized(codes, scales, impl_->plan.problem().k); !ok) {
    return ok;
  }
  Activation activation;
  activation.x = codes;
  activation.scales = scales;
  activation.behind_producer = impl_->options.behind_producer;
  return launch(*impl_, activation, y, workspace, workspace_bytes, stream);
}

Explanation Fp8Linear::explain(std::int64_t m) const {
  const std::int64_t bytes = impl_->weight.bytes();
  const Dispatch* dispatch = impl_->current.load(std::memory_order_acquire);
  if (dispatch == nullptr || m < 1) {
    return explain_plan(impl_->plan, m, bytes);
  }
  const std::int64_t chunk = std::min(m, dispatch->max_m);
  Choice choice = dispatch->choices[dispatch->interval_of(chunk)];
  if (chunk < m) {
    choice.reason += format("; M = {} runs in chunks of {}, the largest M prepared", m, chunk);
  }
  return explain_choice(impl_->plan, choice, m, bytes);
}

const Fp8Weight& Fp8Linear::weight() const noexcept { return impl_->weight; }

}  // namespace octile
