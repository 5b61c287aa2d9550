// SPDX-License-Identifier: Apache-2.0
// A sequence of calls timed as one loop.
#pragma once

#include "octile/kernels/backend.h"

#include <memory>
#include <vector>

namespace octile::cpu {

// time_us() makes every call once, in order, and returns the mean wall time of one (CLOCK_MONOTONIC). Errors:
// invalid_argument without calls or with an empty one; a failing call's own, with its place in the sequence.
Expected<std::unique_ptr<TimedSequence>> make_timed_loop(std::vector<TimedCall> calls);

}  // namespace octile::cpu
