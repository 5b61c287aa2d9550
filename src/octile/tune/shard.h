// SPDX-License-Identifier: Apache-2.0
// The share of a sweep that one of several independent runs measures (`octile tune --shard i/n`). It is a function of the
// request and of the device's hard keys alone, so that runs which never talk agree on who measures what.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/device.h"

#include <cstdint>
#include <string>
#include <vector>

namespace octile {

struct Shard {
  int index = 1;  // From 1.
  int count = 1;

  bool is_whole() const noexcept { return count == 1; }
  std::string to_string() const;  // "2/8".
};
// More shards than this are refused: no request has so many points worth a job of their own.
inline constexpr int kMaxShards = 1024;
// Error (invalid_argument): not 1 <= index <= count <= kMaxShards.
Expected<void> check_shard(const Shard& shard);

// A weight as sharing sees it.
struct SharedWeight {
  std::int64_t n = 0, k = 0;
  std::vector<std::int64_t> m_list;  // Ascending.
};

// What a shard measures of one weight, both ascending.
struct WeightShare {
  std::vector<std::int64_t> own;  // Of the request: each M of each weight is in exactly one shard.
  // The M of another shard next below each stretch of `own`. It is measured here as well, so that the interval, or the
  // border between two winners, which lies between the two shards is found by one of them.
  std::vector<std::int64_t> borders;
};

// One for each of `weights` (distinct). Shards are balanced by nominal cost, the largest parts first; a weight stays whole
// where that costs no balance, else it is cut into stretches of neighbouring M.
std::vector<WeightShare> share_of(const std::vector<SharedWeight>& weights, const DeviceInfo& device, const Shard& shard);

}  // namespace octile
