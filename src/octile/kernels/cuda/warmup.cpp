// SPDX-License-Identifier: Apache-2.0
// Compiling ahead of serving: every kernel that a set of choices needs, for a device that need not be here.
#include "octile/kernels/cuda/warmup.h"

#include "octile/core/format.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>

namespace octile::cuda {
namespace {

thread_local CompileRecorder* active_recorder = nullptr;

// How many items, from the first on, have all their kernels.
class ItemsDone {
 public:
  // Item i needs none but the first needed[i] requests.
  ItemsDone(std::vector<std::size_t> needed, std::size_t requests, const std::function<void(std::size_t)>& report)
      : needed_(std::move(needed)), is_done_(requests, false), report_(report) {
    advance();
  }
  void add(std::size_t request) {
    is_done_[request] = true;
    advance();
  }

 private:
  void advance() {
    while (requests_ < is_done_.size() && is_done_[requests_]) {
      ++requests_;
    }
    const std::size_t before = items_;
    while (items_ < needed_.size() && needed_[items_] <= requests_) {
      ++items_;
    }
    if (items_ > before && report_) {
      report_(items_);
    }
  }

  std::vector<std::size_t> needed_;
  std::vector<bool> is_done_;
  const std::function<void(std::size_t)>& report_;
  std::size_t requests_ = 0;  // From the first on.
  std::size_t items_ = 0;
};

bool same(const CompileRequest& a, const CompileRequest& b) {
  return a.arch == b.arch && a.source == b.source && a.defines == b.defines && a.kernel == b.kernel;
}

}  // namespace

CompileRecorder::CompileRecorder(const DeviceInfo& device) : outer_(active_recorder) {
  context_.info = device;
  active_recorder = this;
}

CompileRecorder::~CompileRecorder() { active_recorder = outer_; }

CompileRecorder* CompileRecorder::active() noexcept { return active_recorder; }

WarmupResult warm_up(const DeviceInfo& device, std::span<const WarmupItem> items, const WarmupOptions& options) {
  WarmupResult result;
  const bool exports = !options.export_directory.empty();
  std::vector<CompileRequest> requests;
  std::vector<CompileRequest> trusted;  // Found in the cache, and not looked into.
  std::vector<std::size_t> needed;      // Of `requests`, by each item and those before.
  for (const WarmupItem& item : items) {
    CompileRecorder recorder(device);
    if (auto prepared = item.family->prepare(device, item.problem, item.config, 1); !prepared) {
      Error error = std::move(prepared).error();
      error.message = format("{} {} for N={} K={}: {}", item.family->name(), item.config.to_json(), item.problem.n,
                             item.problem.k, error.message);
      result.failures.push_back(std::move(error));
    } else {
      for (const CompileRequest& request : recorder.requests()) {
        const auto is_it = [&](const CompileRequest& known) { return same(known, request); };
        if (std::ranges::none_of(requests, is_it) && std::ranges::none_of(trusted, is_it)) {
          const bool is_trusted = options.trusts_cache && !exports && is_compiled(request);
          (is_trusted ? trusted : requests).push_back(request);
        }
      }
    }
    needed.push_back(requests.size());
  }
  result.kernels = static_cast<int>(requests.size() + trusted.size());
  result.cached = static_cast<int>(trusted.size());
  ItemsDone done(std::move(needed), requests.size(), options.progress);
  // To count the cores takes several files, and most often there is nothing to compile.
  const int threads = requests.empty() ? 1 : compile_threads(options.spare_cores);
  const auto compiled = compile_all(requests, threads, [&](std::size_t request) { done.add(request); });
  std::vector<CompileRequest> good;
  for (std::size_t i = 0; i < compiled.size(); ++i) {
    if (!compiled[i]) {
      result.failures.push_back(compiled[i].error());
      continue;
    }
    ++(compiled[i]->from_cache ? result.cached : result.compiled);
    good.push_back(requests[i]);
  }
  if (exports) {
    if (auto exported = export_cubins(good, options.export_directory)) {
      result.exported = *exported;
    } else {
      result.failures.push_back(exported.error());
    }
  }
  return result;
}

}  // namespace octile::cuda
