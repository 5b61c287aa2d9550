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
  bool intel = false;  // VDPBF16PS at a quarter of the FMA's rate; elsewhere at the same rate.
  std::int64_t l2_bytes = 0;
};
// The cache is that of the CPU at hand; for a device described by a file that is a guess, and good enough for a heuristic.
Machine machine_of(const DeviceInfo& device);

// Whether VDPBF16PS beats fp32 FMA where both exist.
bool prefers_dot(const Machine& machine, std::int64_t m) noexcept;

// Always legal.
GemmConfig heuristic_config(const Engine& engine, const Machine& machine, const Problem& problem, std::int64_t m);
// 3 to 10 configs worth trying, the heuristic's first; legal for the engine, without duplicates.
std::vector<GemmConfig> candidate_configs(const Engine& engine, const Machine& machine, const Problem& problem,
                                          std::int64_t m);

inline constexpr double kUnpredictableUs = 1e12;  // For configs that are not legal.
// A roofline: the longer of streaming the codes and computing, at the rates of a core of 2023. Only the order among configs
// matters.
double predict_gemm_us(const Engine& engine, const Machine& machine, const Problem& problem, std::int64_t m,
                       const GemmConfig& config);

}  // namespace octile::cpu
