// SPDX-License-Identifier: Apache-2.0
// The fastest config of a vendor's family for one product, by a short search of its own.
#pragma once

#include "must.h"
#include "octile/core/format.h"
#include "octile/kernels/backend.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace octile {

// `call` is one product of codes that are ready, without weight and workspace. The family's own choice and the most
// promising of its space by its cost model are each run once over all `weights` (cold, where these are large together) a
// replay; the least of a few interleaved replays counts.
inline TileConfig search_vendor(const Device& device, const KernelFamily& family, const Problem& problem,
                                const std::vector<std::shared_ptr<PackedWeight>>& weights, LaunchArgs call) {
  constexpr std::size_t kTried = 32;
  constexpr int kReplays = 5;
  const std::int64_t m = call.activation.x.rows;
  std::vector<TileConfig> configs = family.space(device.info, problem, m);
  std::ranges::sort(configs, {}, [&](const TileConfig& config) {
    return config.values.empty() ? 0.0 : family.predict_us(device.info, problem, m, config);
  });
  configs.resize(std::min(configs.size(), kTried));
  const auto workspace = must(device.backend->allocate(device.info, std::int64_t{96} << 20));
  call.workspace = workspace->data();
  call.workspace_bytes = workspace->bytes();
  struct Tried {
    TileConfig config;
    std::unique_ptr<Kernel> kernel;
    std::unique_ptr<TimedSequence> sequence;
    double us = std::numeric_limits<double>::infinity();
  };
  std::vector<Tried> tried;
  for (const TileConfig& config : configs) {
    auto kernel = family.prepare(device.info, problem, config, m);
    if (!kernel || (*kernel)->workspace_bytes(m) > workspace->bytes()) {
      continue;  // Not every algorithm that the space lists serves here.
    }
    std::vector<TimedCall> calls;
    for (const auto& weight : weights) {
      calls.emplace_back([call, weight, run = kernel->get()](void* stream) mutable {
        call.stream = stream;
        return run->run(*weight, call);
      });
    }
    if (auto sequence = device.backend->make_sequence(device.info, std::move(calls))) {
      tried.push_back({config, std::move(*kernel), std::move(*sequence)});
    }
  }
  for (int replay = 0; replay < kReplays; ++replay) {
    for (Tried& one : tried) {
      one.us = std::min(one.us, must(one.sequence->time_us()));
    }
  }
  const auto best = std::ranges::min_element(tried, {}, &Tried::us);
  if (best == tried.end()) {
    fail(format("{} has no config for N={} K={} M={}", family.name(), problem.n, problem.k, m));
  }
  return best->config;
}

}  // namespace octile
