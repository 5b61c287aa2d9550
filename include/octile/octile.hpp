// SPDX-License-Identifier: Apache-2.0
// Octile's public C++17 interface.
#pragma once

#include <octile/error.hpp>
#include <octile/linear.hpp>
#include <octile/types.hpp>

namespace octile {

// "0.1.0".
OCTILE_API const char* version() noexcept;

// Per-token quantisation on the CPU: codes[rows, cols] with row stride cols, scales[rows].
OCTILE_API Expected<void> quantize_per_token(const ConstMatrixView& x, std::uint8_t* codes, float* scales,
                                             const QuantizeOptions& options = {});

}  // namespace octile
