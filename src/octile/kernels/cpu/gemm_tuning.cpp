// SPDX-License-Identifier: Apache-2.0
#include "octile/kernels/cpu/gemm_tuning.h"

#include "octile/kernels/cpu/cpu_features.h"

#include <algorithm>

namespace octile::cpu {

Machine machine_of(const DeviceInfo& device) {
  Machine machine;
  machine.threads = std::max(1, device.sm_count);
  machine.intel = device.model.find("Intel") != std::string::npos;
  machine.l1d_bytes = cpu_features().l1d_bytes;
  machine.l2_bytes = cpu_features().l2_bytes;
  return machine;
}

bool prefers_dot(const Machine& machine, std::int64_t m) noexcept { return !machine.intel || m <= 2; }

GemmConfig heuristic_config(const Engine& engine, const Machine&, const Problem&, std::int64_t m) {
  GemmConfig c;
  int panels = kMaxPanels;
  while (engine.max_rows[panels - 1] == 0) --panels;
  c.micro_n = panels * 16;
  c.micro_m = static_cast<int>(std::min<std::int64_t>(m < 1 ? 1 : m, engine.max_rows[panels - 1]));
  c.block_m = 256;
  c.block_n = 64;
  c.fused = m <= engine.max_rows[panels - 1];
  c.block_k = c.fused ? 65536 : 128;
  c.prefetch_bytes = 2048;
  return c;
}
std::vector<GemmConfig> candidate_configs(const Engine& engine, const Machine& machine, const Problem& problem,
                                          std::int64_t m) {
  return {heuristic_config(engine, machine, problem, m)};
}
double predict_gemm_us(const Engine&, const Machine&, const Problem& problem, std::int64_t m, const GemmConfig&) {
  return static_cast<double>(problem.n * problem.k * m);
}

}  // namespace octile::cpu
