// SPDX-License-Identifier: Apache-2.0
// A stand-in for liboctile_cutlass.so with the real component's kernels by name, which multiplies in host memory: the fake
// driver's device memory. What the tests and the library share.
#pragma once

#include "octile/kernels/cuda/cutlass_abi.h"

#include <cstdint>
#include <vector>

namespace octile::cuda::fake {

struct CutlassRun {
  std::int32_t index = 0;
  OctileCutlassProduct product = {};
  bool has_workspace = false;
};

struct CutlassState {
  // What a test sets.
  int prepare_code = 0;              // What prepare() returns.
  int run_code = 0;                  // What run() returns, without running.
  std::int64_t workspace_bytes = 0;  // What workspace_bytes() returns.
  bool ignores_scales_x = false;     // As a broken kernel might.

  // What happened.
  std::vector<std::int32_t> prepared;
  std::vector<CutlassRun> runs;
};

// The library's state: dlsym "octile_fake_cutlass_state" gives a function of this type.
using CutlassStateFunction = CutlassState*();

}  // namespace octile::cuda::fake
