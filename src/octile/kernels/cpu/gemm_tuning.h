// SPDX-License-Identifier: Apache-2.0
// Which configs suit a shape and M on a machine: the heuristic, the candidates of the tuner, and a cost model.
#pragma once

#include "octile/kernels/cpu/gemm_config.h"
#include "octile/kernels/device.h"
#include "octile/kernels/family.h"

#include <cstdint>
#include <vector>

namespace octile::cpu {

// What of a device decides.
struct Machine {
  int threads = 1;
  bool intel = false;
  bool zen4 = false;  // AMD with VDPBF16PS: it issues at the rate of an fp32 FMA, with twice the products.
  std::int64_t l1d_bytes = 0;
  std::int64_t l2_bytes = 0;
};
// Caches are those of the CPU at hand; for a device described by a file that is a guess, and good enough for a heuristic.
Machine machine_of(const DeviceInfo& device);

// Whether VDPBF16PS beats fp32 FMA where both exist.
bool prefers_dot(const Machine& machine, std::int64_t m) noexcept;

GemmConfig heuristic_config(const Engine& engine, const Machine& machine, const Problem& problem, std::int64_t m);
// 3 to 10 configs worth trying, the heuristic's first.
std::vector<GemmConfig> candidate_configs(const Engine& engine, const Machine& machine, const Problem& problem,
                                          std::int64_t m);

inline constexpr double kUnpredictableUs = 1e12;  // For configs that are not legal.
// Rates of a core of 2023; only the order among configs matters.
double predict_gemm_us(const Engine& engine, const Machine& machine, const Problem& problem, std::int64_t m,
                       const GemmConfig& config);

}  // namespace octile::cpu
