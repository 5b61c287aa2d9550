// SPDX-License-Identifier: Apache-2.0
// A sequence of calls captured into one CUDA graph and timed by events inside it, so that no launch gap of the host counts.
#pragma once

#include "octile/kernels/backend.h"
#include "octile/kernels/cuda/driver.h"

#include <memory>
#include <vector>

namespace octile::cuda {

// Captures the calls in order on a stream of its own and replays the graph once to warm up. Errors: a call's own, failed
// where a call cannot be captured.
Expected<std::unique_ptr<TimedSequence>> capture_sequence(const DeviceContext& context, const std::vector<TimedCall>& calls);

}  // namespace octile::cuda
