// SPDX-License-Identifier: Apache-2.0
// What cuBLASLt itself chooses for every M of one weight shape, asked once and kept: run() looks it up.
#pragma once

#include <octile/error.hpp>

#include "octile/kernels/cuda/cublaslt.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace octile::cuda {

struct LtAlgorithm {
  cublasLtMatmulAlgo_t algorithm = {};
  std::int64_t workspace_bytes = 0;  // The most it needs at any M it serves.
  std::int64_t m = 0;                // The largest M it serves.
};

// The choice for each M in [1, max_m]. Up to kExactM every M is asked for; above, every multiple of kCoarseM, rounded up to.
class LtChoices {
 public:
  static constexpr std::int64_t kExactM = 8192;
  static constexpr std::int64_t kCoarseM = 1024;

  const LtAlgorithm& at(std::int64_t m) const noexcept { return algorithms_[index_[slot_of(m)]]; }
  const std::vector<LtAlgorithm>& algorithms() const noexcept { return algorithms_; }
  std::int64_t max_m() const noexcept { return max_m_; }
  // Asks for the rest up to `max_m`. `product`'s m is ignored. Error (unavailable): cuBLASLt has no algorithm for an M.
  Expected<void> extend(const LtDevice& device, Product product, std::int64_t max_m);

 private:
  static std::size_t slot_of(std::int64_t m) noexcept;
  static std::int64_t m_of(std::size_t slot) noexcept;

  std::vector<LtAlgorithm> algorithms_;
  std::vector<std::uint16_t> index_;  // By slot: M - 1 up to kExactM, then one for each multiple of kCoarseM.
  std::int64_t max_m_ = 0;
};

// The choices for a product's n, k, output type and accumulation on a device, covering at least [1, max_m]; asked for once a
// process. Every algorithm in it has passed prove_scales().
Expected<std::shared_ptr<const LtChoices>> own_choices(const LtDevice& device, const Product& product, std::int64_t max_m);

// prove_scales(), remembered by device, n, output type, accumulation and algorithm.
Expected<void> prove_scales_once(const LtDevice& device, const Product& product, const cublasLtMatmulAlgo_t& algorithm);

}  // namespace octile::cuda
