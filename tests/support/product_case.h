// SPDX-License-Identifier: Apache-2.0
// One product on the GPU beside the double-precision reference: operands, poisoned and guarded output, run, compare.
#pragma once

#include "octile/kernels/cuda/cuda_weight.h"
#include "octile/kernels/family.h"
#include "support/gpu.h"
#include "support/product_oracle.h"
#include "support/random.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace octile::test {

struct ProductShape {
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
  DType out_dtype = DType::bf16;
  bool bias = false;
  Accumulate accumulate = Accumulate::fast;
  std::int64_t x_pad = 0;  // Elements between rows beyond K.
  std::int64_t y_pad = 0;  // Beyond N.
  // slab64: N and K are those of whole slabs; see fitted().
  WeightLayout layout = WeightLayout::automatic;
};

// `shape` in `layout`, with N and K rounded up to what it takes.
ProductShape fitted(ProductShape shape, WeightLayout layout);

// Random codes, scales and bias of a shape on host and device. Rows of x are padded with NaN codes.
class ProductCase {
 public:
  explicit ProductCase(const ProductShape& shape);

  // Prepares `config` and runs it once; failures of the kernel, the guards and the tolerance are reported to GoogleTest.
  void expect_right(const KernelFamily& family, const TileConfig& config);
  // Runs `kernel` into a poisoned output and returns its bytes without guards; guards are checked.
  std::vector<unsigned char> run(const Kernel& kernel);
  // nullptr (and a failure) where the config cannot be prepared.
  std::unique_ptr<Kernel> prepare(const KernelFamily& family, const TileConfig& config) const;
  Problem problem() const;

  // Changing codes or scales takes effect at the next run.
  std::vector<std::uint8_t> codes_x;  // [m, k + x_pad]
  std::vector<float> scales_x;
  std::vector<std::uint8_t> codes_w;  // [n, k]
  std::vector<float> scales_w;
  std::vector<float> bias;
  void upload();

  const ProductShape shape;

 private:
  void compute_reference();  // Of the codes as uploaded last.

  std::optional<ProductOracle> oracle_;
  std::unique_ptr<DeviceBytes> device_x_, device_sx_, device_bias_;
  std::shared_ptr<PackedWeight> weight_;
};

std::string text(const ProductShape& shape);

}  // namespace octile::test
