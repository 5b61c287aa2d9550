// SPDX-License-Identifier: Apache-2.0
// The proof that a cuBLASLt algorithm honours both scale vectors.
#include "octile/kernels/cuda/cublaslt.h"
#include "octile/kernels/cuda/scale_proof.h"

namespace octile::cuda {
namespace {

DType dtype_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F:
      return DType::fp16;
    case CUDA_R_16BF:
      return DType::bf16;
    default:
      return DType::fp32;
  }
}

}  // namespace

Expected<void> prove_scales(const LtDevice& device, const Product& product, const cublasLtMatmulAlgo_t& algorithm) {
  ScaleProof proof = scale_proof_of(product.m, product.n, product.k, dtype_of(product.out));
  Product smaller = product;
  smaller.m = proof.m;
  smaller.k = proof.k;
  if (!check_algorithm(device, smaller, algorithm)) {
    smaller.k = product.k;  // The algorithm cannot split this little.
  }
  proof.k = smaller.k;
  smaller.x_stride = proof.k;
  smaller.y_stride = proof.n;
  auto workspace_bytes = check_algorithm(device, smaller, algorithm);
  if (!workspace_bytes) {
    return workspace_bytes.error();
  }
  proof.workspace_bytes = *workspace_bytes;
  return prove_scales(*device.context, proof, [&](const ProductPointers& pointers) {
    return run_product(device, smaller, algorithm, pointers, nullptr);
  });
}

}  // namespace octile::cuda
