// SPDX-License-Identifier: Apache-2.0
// The proof that a vendor's kernel honours both scale vectors: a product of ones with powers of two as scales, another for
// every row and column, comes out exact in every element.
#pragma once

#include <octile/error.hpp>
#include <octile/types.hpp>

#include "octile/kernels/cuda/cuda_abi.h"
#include "octile/kernels/cuda/driver.h"

#include <cstdint>
#include <functional>
#include <string>

namespace octile::cuda {

// The buffers of one product y[m, n] = x[m, k] . w[n, k]^T with scales. Device pointers; `workspace` 256-byte aligned.
struct ProductPointers {
  CUdeviceptr codes_w = 0;
  CUdeviceptr scales_w = 0;
  CUdeviceptr codes_x = 0;
  CUdeviceptr scales_x = 0;
  CUdeviceptr y = 0;
  CUdeviceptr workspace = 0;
  std::int64_t workspace_bytes = 0;
};

// The product that proves: rows of x and w are k bytes apart, rows of y n elements.
struct ScaleProof {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType out = DType::bf16;
  std::int64_t workspace_bytes = 0;
};

// Of a product [m, n, k]: its n, its m cut where y would exceed 16 MiB, its k up to 512, where every result is exact in
// bf16, fp16 and fp32. No workspace.
ScaleProof scale_proof_of(std::int64_t m, std::int64_t n, std::int64_t k, DType out) noexcept;

// Enqueues the product of a ScaleProof on the legacy default stream; the device's context is current.
using RunProof = std::function<Expected<void>(const ProductPointers& pointers)>;

// Allocates, runs, compares on the host: milliseconds. Where proof.k is larger than scale_proof_of() makes it, 1/128 of each
// value is allowed. Error (failed): the first wrong element, with what was wanted.
Expected<void> prove_scales(const DeviceContext& context, const ScaleProof& proof, const RunProof& run);

// The outcome of `prove`, run once a process for each key. A lack of memory or of a device says nothing of the kernel: only
// success and ErrorCode::failed are remembered. Thread-safe.
Expected<void> prove_once(const std::string& key, const std::function<Expected<void>()>& prove);

}  // namespace octile::cuda
