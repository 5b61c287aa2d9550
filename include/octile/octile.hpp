// SPDX-License-Identifier: Apache-2.0
// Octile's public C++17 interface.
#pragma once

#include <octile/checkpoint.hpp>
#include <octile/error.hpp>
#include <octile/linear.hpp>
#include <octile/producers.hpp>
#include <octile/types.hpp>

#include <cstdint>
#include <string>

namespace octile {

// "0.1.0".
OCTILE_API const char* version() noexcept;

// Every device as JSON: a list of {id, device_name, kind, arch, families: [{name, available, reason}],
// vendors: [{name, version, available, reason}], overhead_bytes}, as `octile devices --json` prints it. overhead_bytes: the
// most device memory kept beyond weights and workspaces once a linear is prepared; null on a CPU.
OCTILE_API std::string devices_json();

// Per-token quantisation on the CPU: x is bf16, fp16 or fp32 [rows, cols] with col_stride 1 and row_stride >= cols; writes
// codes[rows, cols] with row stride cols and scales[rows]. A row with a NaN or an infinity gets NaN codes and a NaN scale.
// Errors: invalid_argument for shapes, strides, dtypes and options that break the contract.
OCTILE_API Expected<void> quantize_per_token(const ConstMatrixView& x, std::uint8_t* codes, float* scales,
                                             const QuantizeOptions& options = {});

}  // namespace octile
