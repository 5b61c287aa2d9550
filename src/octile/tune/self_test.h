// SPDX-License-Identifier: Apache-2.0
// Whether every kernel family gives right numbers on this machine, in seconds: for `octile doctor`.
#pragma once

#include "octile/tune/run_hooks.h"

#include <string>
#include <vector>

namespace octile {

struct SelfTestRow {
  std::string device;  // "cpu", "cuda:0".
  std::string family;
  bool is_wrong = false;  // Wrong numbers, a crash, a hang or an error; not where the family is not available.
  std::string result;     // "right, relative error 1.3e-03", "not available: ...", "crash: ...".
};

// Runs each family's own choice at two M on a small weight, checked against the reference, in a worker process that may
// crash or hang. What does not fit `limit_s` seconds is said to have had no time.
std::vector<SelfTestRow> self_test(const std::vector<Device>& devices, const RunHooks& hooks, double limit_s);

}  // namespace octile
