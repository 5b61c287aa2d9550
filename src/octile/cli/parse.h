// SPDX-License-Identifier: Apache-2.0
// Values of options: lists of M and spans of time.
#pragma once

#include <octile/error.hpp>

#include "octile/tune/shard.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace octile::cli {

// Most multiprocessors that are taken for a limit: far more than any GPU has.
inline constexpr std::int64_t kMaxSms = 4096;
// Largest M that is taken: 2^20 tokens in one call, far beyond any batch.
inline constexpr std::int64_t kMaxM = std::int64_t{1} << 20;
// Most values in a list of M.
inline constexpr std::size_t kMaxMCount = 4096;
// Largest N and K: no linear comes near 2^20.
inline constexpr std::int64_t kMaxDimension = std::int64_t{1} << 20;
// Longest time budget, in seconds: a week.
inline constexpr double kMaxBudgetS = 7.0 * 24 * 3600;

// One whole number from 1 to `limit`.
Expected<std::int64_t> parse_positive(std::string_view text, std::int64_t limit);
// "1,4,16": whole numbers from 1 to kMaxM with commas between them, each once. Ascending order is not needed.
Expected<std::vector<std::int64_t>> parse_m_list(std::string_view text);
// "90", "90s", "1.5m", "2h": seconds, above 0 and at most a week.
Expected<double> parse_budget_s(std::string_view text);

// "2/8": the second of eight.
Expected<Shard> parse_shard(std::string_view text);

}  // namespace octile::cli
