// SPDX-License-Identifier: Apache-2.0
// What the CPU at hand can do, by our own CPUID and XGETBV code: an instruction set counts only where the processor has it
// and the operating system saves its registers.
#pragma once

#include <octile/error.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace octile::cpu {

struct CpuFeatures {
  bool avx = false, avx2 = false, fma = false, f16c = false;
  bool avx512f = false, avx512bw = false, avx512vl = false, avx512dq = false, avx512vbmi = false, avx512_bf16 = false;
  bool gfni = false;
  bool amx_tile = false, amx_bf16 = false;  // Present; using the tiles needs the kernel's permission as well.
  std::string vendor;                       // "AuthenticAMD", "GenuineIntel", ...; empty on another architecture.
  std::int64_t l1d_bytes = 0;               // Of one core.
  std::int64_t l2_bytes = 0;                // Of one core.
};

// Detected once.
const CpuFeatures& cpu_features();

// The levels that kernels are written for, each including the ones before it. avx2: with FMA and F16C. avx512: F, BW, VL
// and DQ. avx512bf16: also VBMI, so Cooper Lake (BF16 without VBMI) counts as avx512. amx: also AMX-TILE and AMX-BF16.
enum class Isa { generic, avx2, avx512, avx512bf16, amx };

// "generic", "avx2", "avx512", "avx512bf16", "amx": DeviceInfo::arch of a CPU.
const char* isa_name(Isa isa) noexcept;
// Errors list the names.
Expected<Isa> parse_isa(std::string_view name);
// The highest level these features allow.
Isa isa_of(const CpuFeatures& features) noexcept;
// The highest level of this CPU, limited by OCTILE_CPU_ISA. An unknown word there is the Error.
Expected<Isa> usable_isa();

}  // namespace octile::cpu
