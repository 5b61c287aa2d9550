// SPDX-License-Identifier: Apache-2.0
// Measuring on one device, inside the worker process: packs cold copies of a weight, checks a candidate's numbers, times it.
// Everything goes through Backend, so a CPU, a GPU and a test's fake are one.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/backend.h"
#include "octile/quant/reference.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octile {

// What is measured: a family's config, or one of bench's two yardsticks.
struct CandidateSpec {
  enum class Role { family, bare_vendor, floor };
  Role role = Role::family;
  std::string kernel;  // The family's name; set by the worker for the other roles.
  TileConfig config;
};

// A candidate of one weight [n, k], to be compiled ahead.
struct CompileItem {
  std::int64_t n = 0;
  std::int64_t k = 0;
  CandidateSpec spec;
};

struct MeasureSettings {
  Problem problem;               // n and k are set shape by shape.
  bool quantized_input = false;  // Scope "gemm": codes in. Otherwise bf16 rows, quantised by the call.
  std::uint64_t seed = 1;
};

// A candidate's first step: packed, prepared, run once on poisoned memory and compared with the reference.
struct Admission {
  bool admitted = false;
  std::string kind;    // Why not: "wrong" or "error".
  std::string reason;  // With what was wanted and what came.
  std::string kernel;  // Name to print.
  std::string layout;
  double rel_error = 0;  // Relative Frobenius error over the samples; 0 where it was not checked.
  double first_us = 0;   // The run that was checked: not cold, a first idea of the cost.
  double seconds = 0;    // Packing, preparing and checking together.
  std::int64_t copies = 0;
  std::int64_t copy_bytes = 0;
};

// Copies of a weight that one rotation visits: at least three times the last-level cache in all and at least two, but no
// more than fit `memory_bytes`, and at least one.
std::int64_t cold_copies(std::int64_t copy_bytes, std::int64_t llc_bytes, std::int64_t memory_bytes) noexcept;

// Told before each step that may take long or crash: "pack", "prepare", "run".
using PhaseCallback = std::function<void(std::string_view phase)>;

class Measurer {
 public:
  Measurer(Device device, MeasureSettings settings);
  ~Measurer();
  Measurer(const Measurer&) = delete;
  Measurer& operator=(const Measurer&) = delete;

  // The weight shape of what follows; forgets the candidates.
  Expected<void> set_shape(std::int64_t n, std::int64_t k, WeightLayout layout = WeightLayout::automatic);
  // Makes candidate `id` ready for M = m. `check`: run it on poisoned outputs against the reference first; a candidate whose
  // numbers are wrong is not admitted. Another M than before forgets the candidates of that M. Errors are those of the
  // machinery (no memory for operands), not of the candidate.
  Expected<Admission> admit(int id, const CandidateSpec& spec, std::int64_t m, bool check, const PhaseCallback& phase);
  // Compiles what these candidates need; see Backend::warm_up for what else is said of it.
  void compile_ahead(const std::vector<CompileItem>& items, int spare_cores,
                     const std::function<void(std::size_t)>& progress) const;
  // Mean microseconds of one call over at least `calls` calls of an admitted candidate, each on the next copies of its
  // weight.
  Expected<double> time_us(int id, std::int64_t calls);
  void forget_candidates();
  // What the device runs under at this moment.
  DeviceConditions conditions() const { return device_.backend->conditions(device_.info); }

  const DeviceInfo& device() const noexcept { return device_.info; }

 private:
  struct PackedSet;
  struct Candidate;
  struct Operands;

  Expected<PackedSet*> packed_set(std::string_view layout);
  void make_room(std::int64_t bytes);
  Expected<void> set_operands(std::int64_t m);
  WeightSource source_of_copy(std::int64_t copy) const;
  const Reference& reference_values();
  Expected<void> prepare(Candidate& candidate, std::int64_t m);
  Expected<void> check(const Candidate& candidate, Admission& admission);
  std::string check_output(const Candidate& candidate, const std::vector<std::uint8_t>& output, Admission& admission);
  std::string compare_with_first(const std::vector<std::uint8_t>& output);
  LaunchArgs launch_args(const Candidate& candidate) const;

  Device device_;
  MeasureSettings settings_;
  Problem problem_;
  std::int64_t memory_bytes_;  // For weight copies in all.
  std::vector<std::uint8_t> codes_;
  std::vector<float> scales_;
  std::vector<std::unique_ptr<PackedSet>> sets_;
  std::unique_ptr<Operands> operands_;
  std::map<int, std::unique_ptr<Candidate>> candidates_;
  std::uint64_t use_count_ = 0;
};

}  // namespace octile
