// SPDX-License-Identifier: Apache-2.0
// The families of our own: one class, since they differ in their engines and in what the device must have.
#include "octile/kernels/cpu/families.h"

#include "octile/core/format.h"
#include "octile/kernels/cpu/amx_permission.h"
#include "octile/kernels/cpu/cpu_features.h"
#include "octile/kernels/cpu/gemm.h"
#include "octile/kernels/cpu/gemm_config.h"
#include "octile/kernels/cpu/gemm_tuning.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace octile::cpu {
namespace {

struct FamilyTraits {
  const char* name;
  const char* source_hash;
  Isa needs;
  const char* needs_text;
  const Engine* (*engine)() noexcept;
  const Engine* (*dot_engine)() noexcept;  // nullptr: the family has none.
  Isa needs_here;                          // What the CPU at hand must have; `needs` but for an engine in software.
};

constexpr FamilyTraits kReference = {
    "reference", OCTILE_HASH_REFERENCE, Isa::generic, "nothing beyond plain C++", reference_engine, nullptr, Isa::generic};
constexpr FamilyTraits kAvx2 = {"avx2", OCTILE_HASH_AVX2, Isa::avx2, "AVX2, FMA and F16C", avx2_engine, nullptr, Isa::avx2};
constexpr FamilyTraits kAvx512 = {"avx512",          OCTILE_HASH_AVX512, Isa::avx512, "AVX-512 F, BW, VL and DQ",
                                  avx512_fma_engine, avx512_dot_engine,  Isa::avx512};

constexpr FamilyTraits amx_traits(const Engine* (*engine)() noexcept, Isa needs_here) noexcept {
  return {"amx",  OCTILE_HASH_AMX, Isa::amx,  "AMX-BF16 tiles beside AVX-512 BF16 and VBMI, and the kernel's permission",
          engine, nullptr,         needs_here};
}

bool has_dot(Isa isa) noexcept { return isa >= Isa::avx512bf16; }

class GemmFamily final : public KernelFamily {
 public:
  explicit GemmFamily(const FamilyTraits& traits) noexcept : traits_(traits) {}

  std::string_view name() const noexcept override { return traits_.name; }
  std::string source_hash() const override { return traits_.source_hash; }
  std::string_view layout() const noexcept override { return kCpuPackedLayout; }

  Expected<void> available(const DeviceInfo& device) const override {
    if (device.kind != DeviceKind::cpu) {
      return make_error(ErrorCode::unavailable, "{} runs on a CPU, {} is none", traits_.name, device.id);
    }
    if (traits_.engine() == nullptr) {
      return make_error(ErrorCode::unavailable, "{} is for x86-64, this build is not", traits_.name);
    }
    const Expected<Isa> isa = parse_isa(device.arch);
    if (!isa) {
      return isa.error();
    }
    if (*isa < traits_.needs) {
      return make_error(ErrorCode::unavailable, "{} needs {}; this CPU may use '{}'{}", traits_.name, traits_.needs_text,
                        device.arch, traits_.needs == Isa::amx ? amx_refusal() : "");
    }
    return {};
  }

  Expected<void> check(const DeviceInfo& device, const Problem& problem, const TileConfig& config) const override {
    if (auto ok = available(device); !ok) {
      return ok;
    }
    const Expected<GemmConfig> parsed = parse_gemm_config(config, has_dot_key());
    if (!parsed) {
      return parsed.error();
    }
    return check_parsed(isa_of(device), problem, *parsed);
  }

  std::vector<TileConfig> space(const DeviceInfo& device, const Problem& problem, std::int64_t m) const override {
    std::vector<TileConfig> result;
    if (!available(device)) {
      return result;
    }
    const auto add = [&](GemmConfig config, bool dot) {
      config.dot = dot;
      if (check_parsed(isa_of(device), problem, config)) {
        result.push_back(to_tile_config(config, has_dot_key()));
      }
    };
    const Machine machine = machine_of(device);
    const bool dot = heuristic_dot(device, problem, m);
    for (const GemmConfig& config : candidate_configs(*engine_for(dot), machine, problem, m)) {
      add(config, dot);
    }
    if (has_dot_key()) {
      add(heuristic_config(*engine_for(!dot), machine, problem, m), !dot);
    }
    return result;
  }

  // Empty only where the build has no code for this family at all.
  TileConfig heuristic(const DeviceInfo& device, const Problem& problem, std::int64_t m) const override {
    const bool dot = heuristic_dot(device, problem, m);
    const Engine* engine = engine_for(dot);
    if (engine == nullptr) {
      return {};
    }
    GemmConfig config = heuristic_config(*engine, machine_of(device), problem, m);
    config.dot = dot;
    return to_tile_config(config, has_dot_key());
  }

  double predict_us(const DeviceInfo& device, const Problem& problem, std::int64_t m,
                    const TileConfig& config) const override {
    const Expected<GemmConfig> parsed = parse_gemm_config(config, has_dot_key());
    const Engine* engine = parsed ? engine_for(parsed->dot) : nullptr;
    return engine == nullptr ? kUnpredictableUs : predict_gemm_us(*engine, machine_of(device), problem, m, *parsed);
  }

  Expected<std::unique_ptr<Kernel>> prepare(const DeviceInfo& device, const Problem& problem, const TileConfig& config,
                                            std::int64_t /*max_m*/) const override {
    if (auto ok = check(device, problem, config); !ok) {
      return ok.error();
    }
    // The device may be described by a file; what runs here is limited by the CPU at hand.
    const Expected<Isa> usable = usable_isa();
    if (!usable) {
      return usable.error();
    }
    const GemmConfig parsed = *parse_gemm_config(config, has_dot_key());
    const Isa needed = parsed.dot ? Isa::avx512bf16 : traits_.needs_here;
    if (*usable < needed) {
      return make_error(ErrorCode::unavailable, "{} needs {}; the CPU at hand may use '{}'", traits_.name, isa_name(needed),
                        isa_name(*usable));
    }
    return make_gemm_kernel(*engine_for(parsed.dot), parsed, problem, std::max(1, device.sm_count));
  }

 private:
  const Engine* engine_for(bool dot) const noexcept {
    return !dot ? traits_.engine() : traits_.dot_engine == nullptr ? nullptr : traits_.dot_engine();
  }

  bool has_dot_key() const noexcept { return traits_.dot_engine != nullptr; }

  bool heuristic_dot(const DeviceInfo& device, const Problem& problem, std::int64_t m) const {
    return has_dot_key() && has_dot(isa_of(device)) && (problem.batch_invariant || prefers_dot(machine_of(device), m));
  }

  static Isa isa_of(const DeviceInfo& device) {
    const Expected<Isa> isa = parse_isa(device.arch);
    return isa ? *isa : Isa::generic;
  }

  Expected<void> check_parsed(Isa isa, const Problem& problem, const GemmConfig& config) const {
    if (config.dot && !has_dot(isa)) {
      return make_error(ErrorCode::invalid_argument, "DOT: want 0 on '{}' (1 needs AVX-512 BF16 and VBMI), got 1",
                        isa_name(isa));
    }
    if (problem.numerics == Numerics::baseline) {
      return make_error(ErrorCode::invalid_argument,
                        "{}: numerics=baseline is not to be had on a CPU, whose vendor keeps its own order of additions",
                        traits_.name);
    }
    // All fp32 engines add in the same order and give the same bits; VDPBF16PS and AMX's tiles each add otherwise. One order
    // serves all M: that of the fastest instructions at hand.
    const bool is_the_one = isa == Isa::amx ? traits_.needs == Isa::amx : !has_dot(isa) || config.dot;
    if (problem.batch_invariant && !is_the_one) {
      return make_error(ErrorCode::invalid_argument,
                        "{}: with batch_invariant, want the {} on '{}', got another order of additions", traits_.name,
                        isa == Isa::amx ? "amx family" : "avx512 family with DOT = 1", isa_name(isa));
    }
    return check_for_engine(config, *engine_for(config.dot), problem.n, problem.k);
  }

  FamilyTraits traits_;
};

}  // namespace

const KernelFamily& reference_family() {
  static const GemmFamily family(kReference);
  return family;
}
const KernelFamily& avx2_family() {
  static const GemmFamily family(kAvx2);
  return family;
}
const KernelFamily& avx512_family() {
  static const GemmFamily family(kAvx512);
  return family;
}
const KernelFamily& amx_family() {
  static const GemmFamily family(amx_traits(amx_engine, Isa::amx));
  return family;
}
std::unique_ptr<KernelFamily> make_amx_family(const Engine* (*engine)() noexcept, Isa needs_here) {
  return std::make_unique<GemmFamily>(amx_traits(engine, needs_here));
}

}  // namespace octile::cpu
