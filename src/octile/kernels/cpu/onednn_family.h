// SPDX-License-Identifier: Apache-2.0
// oneDNN as the CPU's vendor: the family "onednn", whose choice is the baseline, and the bare matmul that other benchmarks
// time.
//
// What the baseline is, exactly: weights decoded once, to bf16 where the CPU multiplies bf16 in hardware (AMX-BF16 or
// AVX512_BF16), else to fp32, and packed in the layout that oneDNN prefers; activations rounded to the e4m3 grid by Octile's
// quantiser; one matmul primitive for exactly M rows to fp32 sums; the contract's epilogue. M from 257 to 1024 is rounded up
// to a multiple of 8 with rows of zeros (under 3.1 % more work; a primitive takes about 0.1 ms to create and 60 KB to keep);
// more rows run in pieces of 1024. All of it runs on oneDNN's OpenMP threads, as many as Octile's pool has.
#pragma once

#include "octile/kernels/backend.h"

#include <cstdint>
#include <memory>

namespace octile::cpu {

inline constexpr const char* kOnednnLayout = "onednn";

const KernelFamily& onednn_family();
VendorStatus onednn_status();

// Decodes and packs. Errors: those of check_weight_source(), unavailable without the component, out_of_memory.
Expected<std::shared_ptr<PackedWeight>> pack_onednn(const WeightSource& source);

// The matmul alone, from activations of its own that were converted beforehand, to fp32 sums in the workspace; activation,
// bias and output of a call are not looked at but for M. Reads weights of kOnednnLayout.
Expected<std::unique_ptr<Kernel>> prepare_bare_onednn(const DeviceInfo& device, const Problem& problem, std::int64_t max_m);

// oneDNN's OpenMP threads spin for 3 to 10 ms after their last work, on cores that another kernel may be timed on by then.
// A timed loop therefore starts them before its clock if it needs them and ends them when it is done.
std::uint64_t onednn_calls() noexcept;  // Matmuls run by this process so far.
void wake_onednn_threads();
void release_onednn_threads();

}  // namespace octile::cpu
