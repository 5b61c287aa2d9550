// SPDX-License-Identifier: Apache-2.0
// Where a stand-in asks whether it is to fail. Without the fault library in the process nothing fails.
#pragma once

// Counts one more call of `group` ("cuda", "nvrtc"); whether this is the call that fails. Weak: null where
// liboctile_faults.so is not preloaded.
extern "C" __attribute__((weak)) bool octile_fault_point(const char* group);

namespace octile::test {

inline bool fault_here(const char* group) { return octile_fault_point != nullptr && octile_fault_point(group); }

}  // namespace octile::test
