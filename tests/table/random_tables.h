// SPDX-License-Identifier: Apache-2.0
// Random tables of our own format.
#pragma once

#include "octile/table/tile_table.h"
#include "support/random.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

namespace octile::test {

// Legal, with disjoint ascending intervals and a random choice of the optional fields; always for the same hard keys.
inline TileTable random_own_table() {
  std::mt19937_64& random = generator();
  const auto pick = [&](std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(random);
  };
  const auto maybe = [&] { return pick(0, 1) == 1; };
  const auto time = [&] { return std::exp(std::normal_distribution<double>(2.0, 2.0)(random)); };
  TileTable table;
  table.key.device_name = "NVIDIA_H200";
  table.key.arch = "sm_90";
  table.key.sm_count = 132;
  table.key.n = 6144;
  table.key.k = 4096;
  table.key.weight_layout = "row_major";
  table.provenance["date"] = "2026-11-0" + std::to_string(pick(1, 9)) + "T10:00:00Z";
  table.provenance["command"] = "octile tune \"quoted\" \t\\ \xC3\xA9";
  const std::vector<std::string> kernels = {"baseline", "hopper_decode", "hopper_prefill", "cublaslt"};
  std::int64_t next = 1;
  for (std::int64_t count = pick(1, 12); count > 0; --count) {
    TableEntry entry;
    entry.m_lo = next + (maybe() ? 0 : pick(0, 20));
    entry.m_hi = entry.m_lo + pick(0, 60);
    next = entry.m_hi + 1;
    entry.kernel = kernels[static_cast<std::size_t>(pick(0, 3))];
    for (const char* name : {"stages", "split_k", "BLOCK_SIZE_M"}) {
      if (entry.kernel != kBaselineKernel && maybe()) {
        entry.config.set(name, pick(-5, 1'000'000'000'000));
      }
    }
    entry.kernel_source_hash = maybe() ? "0123abcd" : "";
    entry.vendor_version = maybe() ? "12.8.4" : "";
    for (std::optional<double>* number : {&entry.us, &entry.baseline_us, &entry.best_vendor_us, &entry.rel_error}) {
      *number = maybe() ? std::optional<double>(time()) : std::nullopt;
    }
    if (maybe()) {
      const double mid = time();
      entry.ratio = Ratio{mid, mid * 0.9, mid * 1.3};
    }
    entry.inferred = maybe();
    entry.date = maybe() ? "2026-11-0" + std::to_string(pick(1, 9)) + "T12:00:00Z" : "";
    table.entries.push_back(std::move(entry));
  }
  return table;
}

}  // namespace octile::test
