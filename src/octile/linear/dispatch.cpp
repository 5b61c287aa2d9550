// SPDX-License-Identifier: Apache-2.0
// Preparing a dispatch: one kernel for each (family, config) that the plan reaches, each run once on a few rows.
#include "octile/linear/dispatch.h"

#include "octile/core/format.h"
#include "octile/core/log.h"
#include "octile/kernels/backend.h"
#include "octile/linear/engine_kernel.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace octile {

namespace {

// The trial loads what a driver or library loads lazily. More rows than these take time and load nothing more: the
// primitives that a vendor needs for each M are its prepare()'s affair.
constexpr std::int64_t kMaxTrialRows = 16;

bool same_kernel(const Choice& a, const Choice& b) { return a.family == b.family && a.config == b.config; }

// Device buffers for the trial runs of one dispatch: all-zero activations with scales of 1.
class Trial {
 public:
  Trial(const Device& device, const Problem& problem, const CallShape& call)
      : device_(device), problem_(problem), call_(call) {}

  Expected<void> run(const PreparedKernel& prepared, std::int64_t m) {
    const std::int64_t rows = std::min(m, kMaxTrialRows);
    if (x_ == nullptr) {
      if (auto ok = make_buffers(); !ok) {
        return ok;
      }
    }
    auto workspace =
        device_.backend->allocate(device_.info, std::max<std::int64_t>(prepared.kernel->workspace_bytes(rows), 1));
    if (!workspace) {
      return workspace.error();
    }
    LaunchArgs args;
    args.activation.x = {x_->data(), DType::e4m3, rows, problem_.k, problem_.k, 1};
    args.activation.scales = static_cast<const float*>(scales_->data());
    args.y = {y_->data(), problem_.out_dtype, rows, problem_.n, problem_.n, 1};
    args.bias = call_.bias;
    args.workspace = (*workspace)->data();
    args.workspace_bytes = (*workspace)->bytes();
    if (auto ok = prepared.kernel->run(*prepared.weight, args); !ok) {
      return ok;
    }
    if (call_.raw) {
      args.activation.x.dtype = call_.x_dtype;
      args.activation.scales = nullptr;
      args.activation.static_scale = call_.static_scale;
      args.activation.quantize = call_.quantize;
      if (auto ok = prepared.kernel->run(*prepared.weight, args); !ok) {
        return ok;
      }
    }
    // Waits for a device that works asynchronously, so that a fault is this kernel's and not a later one's.
    float first = 0.0F;
    return device_.backend->download(device_.info, &first, y_->data(), size_of(problem_.out_dtype));
  }

 private:
  Expected<void> make_buffers() {
    const std::int64_t x_bytes = kMaxTrialRows * problem_.k * size_of(call_.x_dtype);
    const std::int64_t scale_bytes = kMaxTrialRows * static_cast<std::int64_t>(sizeof(float));
    const std::int64_t y_bytes = kMaxTrialRows * problem_.n * size_of(problem_.out_dtype);
    for (const auto& [buffer, bytes] : {std::pair{&scales_, scale_bytes}, {&y_, y_bytes}, {&x_, x_bytes}}) {
      auto made = device_.backend->allocate(device_.info, bytes);
      if (!made) {
        return made.error();
      }
      *buffer = std::move(*made);
    }
    const std::vector<std::uint8_t> zeros(static_cast<std::size_t>(x_bytes));
    const std::vector<float> ones(static_cast<std::size_t>(kMaxTrialRows), 1.0F);
    if (auto ok = device_.backend->upload(device_.info, x_->data(), zeros.data(), x_bytes); !ok) {
      return ok;
    }
    return device_.backend->upload(device_.info, scales_->data(), ones.data(), scale_bytes);
  }

  const Device& device_;
  const Problem& problem_;
  const CallShape& call_;
  std::unique_ptr<DeviceBuffer> x_, scales_, y_;
};

class Builder {
 public:
  Builder(const Plan& plan, const Fp8Weight::Impl& weight, const CallShape& call, std::int64_t max_m)
      : plan_(plan), weight_(weight), trial_(weight.device, plan.problem(), call), dispatch_(std::make_unique<Dispatch>()) {
    dispatch_->max_m = max_m;
    dispatch_->starts = plan_.breakpoints(max_m);
    for (const std::int64_t start : dispatch_->starts) {
      dispatch_->choices.push_back(plan_.choose(start));
    }
    dispatch_->serving.resize(dispatch_->starts.size());
  }

  Expected<std::unique_ptr<Dispatch>> build() {
    compile_together();
    for (std::size_t i = 0; i < dispatch_->starts.size(); ++i) {
      if (auto ok = serve(i); !ok) {
        return ok.error();
      }
      dispatch_->untuned.push_back(plan_.tuned() && dispatch_->choices[i].entry == nullptr);
    }
    return std::move(dispatch_);
  }

 private:
  // What is compiled at run time, on all cores: a table's intervals and the cost model's choices up to M = 8192 are 20 to 70
  // kernels of a third of a second. What fails is said where it is prepared; what is in the cache is only seen to be there.
  void compile_together() {
    std::vector<WarmupItem> items;
    for (const Choice& choice : dispatch_->choices) {
      const auto is_known = [&](const WarmupItem& item) {
        return item.family == choice.family && item.config == choice.config;
      };
      if (choice.family != nullptr && !choice.family->is_vendor() && std::ranges::none_of(items, is_known)) {
        items.push_back({choice.family, plan_.problem(), choice.config});
      }
    }
    if (items.size() > 1) {
      static_cast<void>(
          weight_.device.backend->warm_up(weight_.device.info, items, {.export_directory = {}, .trusts_cache = true}));
    }
  }

  // Fills interval i: the plan's choice, else the baseline, else a heuristic on whatever layout is packed.
  Expected<void> serve(std::size_t i) {
    auto first = serve_with(dispatch_->choices[i], i);
    if (first || !plan_.tuned()) {
      return first;
    }
    Choice& choice = dispatch_->choices[i];
    const std::int64_t m = dispatch_->starts[i];
    const std::string why = format("{} cannot serve here: {}", choice.kernel, first.error().message);
    if (is_rank_zero()) {
      log_once(LogLevel::warning, format("unprepared {} N={} K={}", choice.kernel, plan_.problem().n, plan_.problem().k),
               format("N = {}, K = {}, M = {}: {}", plan_.problem().n, plan_.problem().k, m, why));
    }
    std::vector<Choice> substitutes = {plan_.baseline_choice(m, why)};
    for (const auto& packed : weight_.packed) {
      substitutes.push_back(plan_.heuristic_choice(m, packed->layout(), why));
    }
    for (Choice& substitute : substitutes) {
      if (!same_kernel(substitute, choice) && serve_with(substitute, i)) {
        substitute.table_key = choice.table_key;
        choice = std::move(substitute);
        return {};
      }
    }
    return first;
  }

  Expected<void> serve_with(const Choice& choice, std::size_t i) {
    auto kernel = prepared(choice, i);
    if (!kernel) {
      return std::move(kernel).error();
    }
    dispatch_->serving[i] = *kernel;
    return {};
  }

  std::int64_t end_of(std::size_t i) const noexcept {
    return i + 1 < dispatch_->starts.size() ? dispatch_->starts[i + 1] - 1 : dispatch_->max_m;
  }

  // The largest M for which the plan chooses `choice`'s kernel, at least the end of interval i.
  std::int64_t largest_m(const Choice& choice, std::size_t i) const {
    for (std::size_t j = dispatch_->choices.size(); j-- > i + 1;) {
      if (same_kernel(dispatch_->choices[j], choice)) {
        return end_of(j);
      }
    }
    return end_of(i);
  }

  Expected<const PreparedKernel*> prepared(const Choice& choice, std::size_t i) {
    for (const auto& known : dispatch_->kernels) {
      if (known->family == choice.family && known->config == choice.config && known->max_m >= end_of(i)) {
        return static_cast<const PreparedKernel*>(known.get());
      }
    }
    // What failed once is not compiled again for the next interval.
    for (const auto& [failed, error] : failures_) {
      if (same_kernel(failed, choice)) {
        return error;
      }
    }
    auto made = prepare_and_try(choice, i);
    if (!made) {
      failures_.emplace_back(choice, made.error());
      return std::move(made).error();
    }
    dispatch_->kernels.push_back(std::move(*made));
    return static_cast<const PreparedKernel*>(dispatch_->kernels.back().get());
  }

  Expected<std::unique_ptr<PreparedKernel>> prepare_and_try(const Choice& choice, std::size_t i) {
    const bool is_engine = choice.family == nullptr && choice.kind == ChoiceKind::baseline && plan_.engine() != nullptr;
    if (choice.family == nullptr && !is_engine) {
      return Error{ErrorCode::unavailable, choice.reason};
    }
    auto made = std::make_unique<PreparedKernel>();
    made->family = choice.family;
    made->config = choice.config;
    made->max_m = largest_m(choice, i);
    const std::string_view layout = is_engine ? kEngineLayout : choice.family->layout_for(plan_.problem());
    made->weight = packed_in_layout(weight_, layout);
    if (made->weight == nullptr) {
      return make_error(
          ErrorCode::invalid_argument,
          "the weight [{}, {}] was not packed into layout {}, which {} reads: create the weight again, since the "
          "kill switch, the registered baseline or the tables have changed",
          plan_.problem().n, plan_.problem().k, layout, choice.kernel);
    }
    auto kernel = is_engine ? make_engine_kernel(plan_.engine(), plan_.device(), plan_.problem())
                            : choice.family->prepare(plan_.device(), plan_.problem(), choice.config, made->max_m);
    if (!kernel) {
      return std::move(kernel).error();
    }
    made->kernel = std::move(*kernel);
    if (auto ok = trial_.run(*made, dispatch_->starts[i]); !ok) {
      return ok.error();
    }
    return made;
  }

  const Plan& plan_;
  const Fp8Weight::Impl& weight_;
  Trial trial_;
  std::unique_ptr<Dispatch> dispatch_;
  std::vector<std::pair<Choice, Error>> failures_;
};

}  // namespace

std::size_t Dispatch::interval_of(std::int64_t m) const noexcept {
  return static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end(), m) - starts.begin()) - 1;
}

std::int64_t Dispatch::workspace_bytes(std::int64_t m) const noexcept {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < starts.size() && starts[i] <= m; ++i) {
    const std::int64_t end = i + 1 < starts.size() ? starts[i + 1] - 1 : max_m;
    bytes = std::max(bytes, serving[i]->kernel->workspace_bytes(std::min(end, m)));
  }
  return bytes;
}

std::int64_t Dispatch::call_bytes(std::int64_t rows) const noexcept {
  const std::int64_t chunk = std::min(rows, max_m);
  const std::int64_t rest = rows % chunk;
  const std::int64_t bytes = kernel_of(chunk).kernel->workspace_bytes(chunk);
  return rest == 0 ? bytes : std::max(bytes, kernel_of(rest).kernel->workspace_bytes(rest));
}

Expected<std::unique_ptr<Dispatch>> make_dispatch(const Plan& plan, const Fp8Weight::Impl& weight, const CallShape& call,
                                                  std::int64_t max_m) {
  return Builder(plan, weight, call, max_m).build();
}

}  // namespace octile
