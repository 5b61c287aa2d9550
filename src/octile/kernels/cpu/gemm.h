// SPDX-License-Identifier: Apache-2.0
// The kernel of every CPU family: quantise, then units of tiles on the thread pool.
#pragma once

#include "octile/kernels/cpu/gemm_config.h"
#include "octile/kernels/family.h"

#include <memory>

namespace octile::cpu {

// `threads`: into how many parts a call is cut at most; the workspace has scratch for as many.
// Precondition: config is legal for the engine and shape.
std::unique_ptr<Kernel> make_gemm_kernel(const Engine& engine, const GemmConfig& config, const Problem& problem,
                                         int threads);

}  // namespace octile::cpu
