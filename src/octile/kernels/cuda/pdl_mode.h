// SPDX-License-Identifier: Apache-2.0
// When a kernel may start before the one before it has ended (programmatic dependent launch, sm_90 and newer).
#pragma once

namespace octile::cuda {

// off: never. consume: the product behind our own quantiser; safe behind any kernel. full: also the first kernel of a call,
// and the weights are requested before the wait: not for the call right behind a kernel that writes weights.
enum class PdlMode { off, consume, full };

}  // namespace octile::cuda
