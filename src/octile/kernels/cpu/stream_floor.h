// SPDX-License-Identifier: Apache-2.0
// The physical floor of a weight-bound kernel: reading the packed weight once with every thread, and nothing else.
#pragma once

#include "octile/kernels/cpu/cpu_features.h"
#include "octile/kernels/family.h"

#include <cstdint>
#include <memory>

namespace octile::cpu {

// XOR of the 8-byte words of [data, data + bytes), a last incomplete word filled up with zeros. Reads with `isa`'s widest
// loads, prefetching ahead where that pays; `data` may have any alignment.
std::uint64_t xor_of_words(const void* data, std::int64_t bytes, Isa isa) noexcept;

// run() reads the weight of any CPU layout once and leaves the XOR of its words in the first 8 bytes of the workspace;
// activations, bias and output are not looked at.
std::unique_ptr<Kernel> make_stream_floor(Isa isa);

}  // namespace octile::cpu
