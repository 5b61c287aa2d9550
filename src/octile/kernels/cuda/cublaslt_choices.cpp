// SPDX-License-Identifier: Apache-2.0
// What cuBLASLt itself chooses for every M of one weight shape, asked once and kept.
#include "octile/kernels/cuda/cublaslt_choices.h"

#include "octile/core/format.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace octile::cuda {
namespace {

bool same(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) noexcept {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

std::string key_of(const LtDevice& device, const Product& product) {
  return format("{} {} {} {} {} {}", device.context->info.index, product.n, product.k, static_cast<int>(product.out),
                product.fast ? 1 : 0, product.max_sms);
}

}  // namespace

std::size_t LtChoices::slot_of(std::int64_t m) noexcept {
  return static_cast<std::size_t>(m <= kExactM ? m - 1 : kExactM + (m - kExactM - 1) / kCoarseM);
}

std::int64_t LtChoices::m_of(std::size_t slot) noexcept {
  const auto position = static_cast<std::int64_t>(slot);
  return position < kExactM ? position + 1 : kExactM + (position - kExactM + 1) * kCoarseM;
}

Expected<void> LtChoices::extend(const LtDevice& device, Product product, std::int64_t max_m) {
  for (std::size_t slot = index_.size(); slot <= slot_of(max_m); ++slot) {
    product.m = m_of(slot);
    const auto chosen = heuristic_algorithms(device, product, 1);
    if (chosen.empty()) {
      return make_error(ErrorCode::unavailable, "cuBLASLt {} has no row-wise algorithm for M={} N={} K={} on {}",
                        device.api->version_text, product.m, product.n, product.k, device.context->info.name);
    }
    // Neighbouring Ms mostly share one: looked for from the back.
    auto found = std::find_if(algorithms_.rbegin(), algorithms_.rend(),
                              [&](const LtAlgorithm& known) { return same(known.algorithm, chosen.front().algo); });
    if (found == algorithms_.rend()) {
      algorithms_.push_back({chosen.front().algo, 0, 0});
      found = algorithms_.rbegin();
    }
    found->workspace_bytes = std::max(found->workspace_bytes, static_cast<std::int64_t>(chosen.front().workspaceSize));
    found->m = product.m;
    index_.push_back(static_cast<std::uint16_t>(algorithms_.rend() - found - 1));
  }
  max_m_ = std::max(max_m_, max_m);
  return {};
}

Expected<std::shared_ptr<const LtChoices>> own_choices(const LtDevice& device, const Product& product, std::int64_t max_m) {
  struct Known {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<const LtChoices>> by_key;
  };
  static auto* const known = new Known;
  const std::lock_guard lock(known->mutex);
  std::shared_ptr<const LtChoices>& entry = known->by_key[key_of(device, product)];
  if (entry == nullptr || entry->max_m() < max_m) {
    auto extended = entry == nullptr ? std::make_shared<LtChoices>() : std::make_shared<LtChoices>(*entry);
    if (auto done = extended->extend(device, product, max_m); !done) {
      return done.error();
    }
    for (const LtAlgorithm& algorithm : extended->algorithms()) {
      Product proof = product;
      proof.m = algorithm.m;
      if (auto proven = prove_scales_once(device, proof, algorithm.algorithm); !proven) {
        return proven.error();
      }
    }
    entry = std::move(extended);
  }
  return entry;
}

Expected<void> prove_scales_once(const LtDevice& device, const Product& product, const cublasLtMatmulAlgo_t& algorithm) {
  const std::string_view bytes(reinterpret_cast<const char*>(&algorithm), sizeof(algorithm));
  return prove_once(key_of(device, product) + std::string(bytes), [&] { return prove_scales(device, product, algorithm); });
}

}  // namespace octile::cuda
