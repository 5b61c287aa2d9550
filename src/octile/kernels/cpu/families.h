// SPDX-License-Identifier: Apache-2.0
// Octile's own CPU kernel families. All read one packed layout, kCpuPackedLayout; gemm_config.h says what their configs
// mean.
#pragma once

#include "octile/kernels/cpu/engine.h"
#include "octile/kernels/family.h"

#include <memory>

namespace octile::cpu {

inline constexpr const char* kCpuPackedLayout = "cpu_packed";

const KernelFamily& reference_family();  // Plain C++: runs everywhere.
const KernelFamily& avx2_family();       // AVX2, FMA, F16C.
const KernelFamily& avx512_family();     // AVX-512 F/BW/VL/DQ; VDPBF16PS where BF16 and VBMI are there.
const KernelFamily& amx_family();        // AMX-BF16 tiles, beside AVX-512 BF16 and VBMI.
// The family "amx" on another engine of the same tiles, which runs from `needs_here` on: for tests in software.
std::unique_ptr<KernelFamily> make_amx_family(const Engine* (*engine)() noexcept, Isa needs_here);

// Packs row-major codes into kCpuPackedLayout. Errors: invalid_argument for shapes, strides, dtypes and scales that break
// the contract, out_of_memory.
Expected<std::shared_ptr<PackedWeight>> pack_cpu(const WeightSource& source);

}  // namespace octile::cpu
