// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, opened at run time, and the one kind of product that is asked of it: e4m3 x e4m3 with a scale a row on both
// sides.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/cuda/cuda_abi.h"
#include "octile/kernels/cuda/driver.h"
#include "octile/kernels/cuda/scale_proof.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace octile::cuda {

// The oldest with outer-vector scales: 12.9.
inline constexpr std::int64_t kMinCublasLtVersion = 120900;
// Workspace that an algorithm may ask for; what torch allows on Hopper.
inline constexpr std::int64_t kCublasLtWorkspaceBytes = std::int64_t{32} << 20;

struct CublasLt {
  OCTILE_CUBLASLT_FUNCTIONS(OCTILE_FUNCTION_FIELD)
  std::int64_t version = 0;  // 130100 for 13.1.0.
  std::string version_text;  // "13.1.0".
  std::string path;
};

// The process' cuBLASLt: opened on the first call, and remembered, also as a failure. Errors (unavailable): not found, too
// old, broken.
Expected<const CublasLt*> cublaslt();
// Opens the library at `path` ("": searches as cublaslt() does), without remembering it.
Expected<std::unique_ptr<CublasLt>> open_cublaslt(const std::string& path);
Error cublaslt_error(const CublasLt& api, cublasStatus_t status, std::string_view what);

// cuBLASLt on one device. The handle is made once a device and kept.
struct LtDevice {
  const CublasLt* api = nullptr;
  const DeviceContext* context = nullptr;
  cublasLtHandle_t handle = nullptr;
};
Expected<LtDevice> lt_device(const DeviceContext& context);

// y[m, n] = (codes_x[m, k] . codes_w[n, k]^T * scales_w[n]) * scales_x[m], all row-major. cuBLASLt counts columns first and
// computes y^T: its A is the weight (transposed), its B the activation.
struct Product {
  std::int64_t m = 0;
  std::int64_t n = 0;         // A multiple of 16, as cuBLASLt asks for e4m3.
  std::int64_t k = 0;         // A multiple of 16; the row stride of the weight, too.
  std::int64_t x_stride = 0;  // Bytes between rows of the activation, a multiple of 16.
  std::int64_t y_stride = 0;  // Elements between rows of y; rows start at multiples of 16 bytes.
  cudaDataType out = CUDA_R_16BF;
  bool fast = true;          // FAST_ACCUM: the matrix unit's own accumulator.
  int max_sms = 0;           // SM_COUNT_TARGET: multiprocessors to keep to; 0: the device's.
  bool outer_scales = true;  // false: one scale for all, the mode whose heuristic knows more algorithms.
};

// The descriptors of a product, on the stack: making them allocates nothing.
struct ProductDescriptors {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a;
  cublasLtMatrixLayoutOpaque_t b;
  cublasLtMatrixLayoutOpaque_t d;
};
cublasStatus_t describe_product(const CublasLt& api, const Product& product, ProductDescriptors& out) noexcept;

// One call. The device's context must be current.
Expected<void> run_product(const LtDevice& device, const Product& product, const cublasLtMatmulAlgo_t& algorithm,
                           const ProductPointers& pointers, CUstream stream);

// cuBLASLt's own choices, the best first; may be none.
std::vector<cublasLtMatmulHeuristicResult_t> heuristic_algorithms(const LtDevice& device, const Product& product, int count);
// Workspace bytes the algorithm needs for the product, or why it cannot run it.
Expected<std::int64_t> check_algorithm(const LtDevice& device, const Product& product,
                                       const cublasLtMatmulAlgo_t& algorithm);

// Proves that the algorithm honours both scale vectors, which check_algorithm() does not promise.
Expected<void> prove_scales(const LtDevice& device, const Product& product, const cublasLtMatmulAlgo_t& algorithm);

}  // namespace octile::cuda
