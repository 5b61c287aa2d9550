// SPDX-License-Identifier: Apache-2.0
// The heuristic and what surrounds it. Measured on a Zen 4 guest with 2 cores (4096 x 4096, weights cold): VDPBF16PS reaches
// 87 % of what memory gives at M = 1 (68 GB/s), and 80 to 93 % of its peak at M = 16 to 1024. What decides, in this order:
// decoding in registers at small M, decoding once above, scratch that fits L2, and a unit small enough for every thread to
// have several.
#include "octile/kernels/cpu/gemm_tuning.h"

#include "octile/kernels/cpu/cpu_features.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace octile::cpu {
namespace {

constexpr std::int64_t kLargestBlockK = 65536;
constexpr std::int64_t kLargestUnitRows = 256;  // More rows share a decoded pass no better: decoding is under 1 % there.
constexpr std::int64_t kPrefetchBytes = 2048;
constexpr std::int64_t kUnitsPerThread = 3;
constexpr std::int64_t kLargestUnitColumns = 256;

int widest_panels(const Engine& engine) noexcept {
  int panels = kMaxPanels;
  while (panels > 1 && engine.max_rows[panels - 1] == 0) {
    --panels;
  }
  return panels;
}

// The fewest passes over K of at most `largest` elements, as even as the padding of K allows.
std::int64_t even_block_k(std::int64_t padded_k, std::int64_t largest) noexcept {
  const std::int64_t passes = (padded_k + largest - 1) / largest;
  return std::min(kLargestBlockK, round_up((padded_k + passes - 1) / passes, kPaddingK));
}

// K of a pass whose decoded weights, 64 columns wide, fill half of L2: the codes of the next pass and the activations share
// the rest.
std::int64_t block_k_for_l2(const Engine& engine, const Machine& machine, std::int64_t padded_k) noexcept {
  const std::int64_t fitting = machine.l2_bytes / 2 / (kGroupColumns * engine.value_bytes) / kPaddingK * kPaddingK;
  return even_block_k(padded_k, std::clamp(fitting, 4 * kPaddingK, kLargestBlockK));
}

// Over codes the widest tile, since each activation is read for more columns; over decoded weights the engine's best.
void set_tile(const Engine& engine, std::int64_t m, GemmConfig& config) noexcept {
  const int panels = config.decode == Decode::in_registers ? widest_panels(engine) : engine.decoded_panels;
  config.micro_n = panels * static_cast<int>(kPanelColumns);
  config.micro_m = static_cast<int>(std::clamp<std::int64_t>(m, 1, engine.max_rows[panels - 1]));
}

// Halves the rows of a unit until every thread has several units.
std::int64_t unit_rows(const Machine& machine, std::int64_t n, std::int64_t m) noexcept {
  const std::int64_t columns = (n + kGroupColumns - 1) / kGroupColumns;
  const std::int64_t wanted = machine.threads * kUnitsPerThread;
  std::int64_t rows = kLargestUnitRows;
  while (rows > 32 && columns * ((m + rows - 1) / rows) < wanted) {
    rows /= 2;
  }
  return rows;
}

// Columns of a unit that decodes in registers: wide ones read long stretches of codes (4 to 15 % faster on Zen 4 at M = 1
// to 4, 256 columns against 64), as long as every thread has three.
std::int64_t unit_columns(const Machine& machine, std::int64_t n) noexcept {
  std::int64_t columns = kLargestUnitColumns;
  while (columns > kGroupColumns && (n + columns - 1) / columns < machine.threads * kUnitsPerThread) {
    columns /= 2;
  }
  return columns;
}

// At M = 1 Zen 4's own prefetching keeps up with a decoder that leaves it the time, and a prefetch for each line costs a
// tenth; Intel's wants it (5 to 15 %), and so does every core that is busier.
std::int64_t prefetch_distance(const Engine& engine, const Machine& machine, std::int64_t m) noexcept {
  constexpr double kFastDecoding = 6.0;  // Cycles for 64 codes.
  return m == 1 && !machine.intel && engine.decode_cycles <= kFastDecoding ? 0 : kPrefetchBytes;
}

GemmConfig config_with(const Engine& engine, const Machine& machine, const Problem& problem, std::int64_t m, Decode decode) {
  const std::int64_t padded_k = round_up(problem.k, kPaddingK);
  GemmConfig config;
  config.decode = decode;
  config.block_m = unit_rows(machine, problem.n, m);
  config.block_n = decode == Decode::in_registers ? unit_columns(machine, problem.n) : kGroupColumns;
  config.block_k =
      decode == Decode::in_registers ? even_block_k(padded_k, kLargestBlockK) : block_k_for_l2(engine, machine, padded_k);
  config.prefetch_bytes = prefetch_distance(engine, machine, m);
  set_tile(engine, m, config);
  return config;
}

bool same(const GemmConfig& a, const GemmConfig& b) { return to_tile_config(a, true) == to_tile_config(b, true); }

}  // namespace

Machine machine_of(const DeviceInfo& device) {
  Machine machine;
  machine.threads = std::max(1, device.sm_count);
  machine.intel = device.model.find("Intel") != std::string::npos;
  machine.l2_bytes = cpu_features().l2_bytes;
  return machine;
}

bool prefers_dot(const Machine& machine, std::int64_t m) noexcept { return !machine.intel || m <= 4; }

GemmConfig heuristic_config(const Engine& engine, const Machine& machine, const Problem& problem, std::int64_t m) {
  const Decode decode = m <= engine.decode_each_up_to_m ? Decode::in_registers : Decode::first_tile;
  return config_with(engine, machine, problem, m, decode);
}

std::vector<GemmConfig> candidate_configs(const Engine& engine, const Machine& machine, const Problem& problem,
                                          std::int64_t m) {
  std::vector<GemmConfig> result;
  const auto add = [&](const GemmConfig& config) {
    const bool known = std::ranges::any_of(result, [&config](const GemmConfig& other) { return same(config, other); });
    if (!known && check_for_engine(config, engine, problem.n, problem.k)) {
      result.push_back(config);
    }
  };
  const GemmConfig best = heuristic_config(engine, machine, problem, m);
  add(best);
  if (m > engine.max_rows[widest_panels(engine) - 1]) {
    const Decode other = best.decode == Decode::in_registers ? Decode::first_tile : Decode::in_registers;
    add(config_with(engine, machine, problem, m, other));
  }
  for (int panels = 1; panels <= kMaxPanels; ++panels) {
    GemmConfig narrow = best;
    narrow.micro_n = panels * static_cast<int>(kPanelColumns);
    narrow.micro_m = static_cast<int>(std::clamp<std::int64_t>(m, 1, engine.max_rows[panels - 1]));
    if (panels > 1 && engine.max_rows[panels - 1] > 0) {
      add(narrow);
    }
  }
  for (const std::int64_t prefetch : {std::int64_t{0}, kPrefetchBytes, std::int64_t{4096}}) {
    GemmConfig ahead = best;
    ahead.prefetch_bytes = prefetch;
    add(ahead);
  }
  if (best.decode == Decode::first_tile) {
    GemmConfig shallow = best;
    shallow.block_k = even_block_k(round_up(problem.k, kPaddingK), std::max(best.block_k / 2, 2 * kPaddingK));
    add(shallow);
    GemmConfig tall = best;
    tall.block_m = 2 * best.block_m;
    if (m > best.block_m) {
      add(tall);
    }
  } else {
    for (const std::int64_t columns : {kGroupColumns, kLargestUnitColumns}) {
      GemmConfig other = best;
      other.block_n = columns;
      add(other);
    }
  }
  return result;
}

double predict_gemm_us(const Engine& engine, const Machine& machine, const Problem& problem, std::int64_t m,
                       const GemmConfig& config) {
  constexpr double kCyclesPerUs = 3500.0;
  constexpr double kBytesPerUs = 20e3;         // Of one core's stream.
  constexpr double kSocketBytesPerUs = 250e3;  // Of all cores together.
  constexpr double kLatencyCycles = 6.0;       // Of one product into the same sum; two in a row a step and panel.
  if (!check_for_engine(config, engine, problem.n, problem.k)) {
    return kUnpredictableUs;
  }
  GemmPlan plan;
  plan.config = config;
  plan.engine = &engine;
  plan.m = std::max<std::int64_t>(m, 1);
  plan.n = problem.n;
  plan.padded_k = round_up(problem.k, kPaddingK);
  const Partition row_units = plan.row_units();
  const std::int64_t unit_rows = row_units.size(0);
  const Partition tiles = plan.row_tiles(unit_rows);
  const double panels = config.micro_n / static_cast<double>(kPanelColumns);

  // Cycles of a unit row block for one block of 64 codes: products, but no less than their latency spread over the tile.
  const bool slow_dot = config.dot && machine.intel;
  const double row_cycles = engine.row_cycles * (slow_dot ? 2.0 : !config.dot && machine.intel ? 0.5 : 1.0);
  const double rows = static_cast<double>(unit_rows);
  const double products = std::max(row_cycles * rows, 2.0 * kLatencyCycles / panels * static_cast<double>(tiles.parts));
  const double decodings = config.decode == Decode::in_registers ? static_cast<double>(tiles.parts) : 1.3;
  // Partial sums are loaded and stored once a pass: about two cycles for 16 of them.
  const double steps_per_pass = static_cast<double>(std::min(config.block_k, plan.padded_k)) / static_cast<double>(kStepK);
  const double spills = plan.passes() > 1 ? rows * 4.0 / steps_per_pass : 0.0;
  const std::int64_t all_panels = round_up(problem.n, kPanelColumns) / kPanelColumns;
  const std::int64_t steps = plan.padded_k / kStepK;
  const double blocks = static_cast<double>(all_panels * steps);
  const double cycles =
      blocks * static_cast<double>(row_units.parts) * (engine.decode_cycles * decodings + products + spills);

  const double units = static_cast<double>(row_units.parts * plan.column_units());
  const double rounds = std::ceil(units / machine.threads);
  const double busy_threads = units / rounds;  // The last round may leave threads idle.
  const double compute_us = cycles / kCyclesPerUs / busy_threads;
  const double memory_us =
      blocks * static_cast<double>(kBlockBytes) / std::min(kBytesPerUs * busy_threads, kSocketBytesPerUs);
  const double unhidden = config.prefetch_bytes > 0 ? 0.2 : 0.3;  // Of the shorter of the two, on top of the longer.
  return std::max(compute_us, memory_us) + unhidden * std::min(compute_us, memory_us);
}

}  // namespace octile::cpu
