// SPDX-License-Identifier: Apache-2.0
// Curves over M: which M are measured, and in which order, so that whatever a budget leaves spans all of them.
#pragma once

#include <cstdint>
#include <vector>

namespace octile {

// The largest M of a curve where none is given. On a CPU calls at 8192 take seconds.
inline constexpr std::int64_t kLargestCurveM = 16384;
inline constexpr std::int64_t kLargestCurveMOnCpu = 2048;

// Every M up to 512 and each sixteenth above, from 528 on, up to `largest`. Precondition: largest >= 1.
std::vector<std::int64_t> curve_ms(std::int64_t largest);

// `value` with its bits reversed, of as many as `range` has: values sorted by it fill [0, range] evenly, however few of them
// are taken. Precondition: 0 <= value <= range.
std::int64_t scattered(std::int64_t value, std::int64_t range) noexcept;

// `ms` (ascending, distinct) from coarse to fine: first those of `coarse`, which are in both, then the rest, scattered.
std::vector<std::int64_t> coarse_to_fine(const std::vector<std::int64_t>& ms, const std::vector<std::int64_t>& coarse);

}  // namespace octile
