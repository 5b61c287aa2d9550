// SPDX-License-Identifier: Apache-2.0
// Compiling ahead of serving: every kernel that a set of choices needs, for a device that need not be here.
#include "octile/kernels/cuda/warmup.h"

#include "octile/core/format.h"

#include <algorithm>
#include <utility>

namespace octile::cuda {
namespace {

thread_local CompileRecorder* active_recorder = nullptr;

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

WarmupResult warm_up(const DeviceInfo& device, std::span<const WarmupItem> items, const std::string& export_directory) {
  WarmupResult result;
  std::vector<CompileRequest> requests;
  for (const WarmupItem& item : items) {
    CompileRecorder recorder(device);
    if (auto prepared = item.family->prepare(device, item.problem, item.config, 1); !prepared) {
      Error error = std::move(prepared).error();
      error.message = format("{} {} for N={} K={}: {}", item.family->name(), item.config.to_json(), item.problem.n,
                             item.problem.k, error.message);
      result.failures.push_back(std::move(error));
      continue;
    }
    for (const CompileRequest& request : recorder.requests()) {
      if (std::ranges::none_of(requests, [&](const CompileRequest& known) { return same(known, request); })) {
        requests.push_back(request);
      }
    }
  }
  result.kernels = static_cast<int>(requests.size());
  const auto compiled = compile_all(requests);
  std::vector<CompileRequest> good;
  for (std::size_t i = 0; i < compiled.size(); ++i) {
    if (!compiled[i]) {
      result.failures.push_back(compiled[i].error());
      continue;
    }
    ++(compiled[i]->from_cache ? result.cached : result.compiled);
    good.push_back(requests[i]);
  }
  if (!export_directory.empty()) {
    if (auto exported = export_cubins(good, export_directory)) {
      result.exported = *exported;
    } else {
      result.failures.push_back(exported.error());
    }
  }
  return result;
}

}  // namespace octile::cuda
