// SPDX-License-Identifier: Apache-2.0
// A weight decoded once and packed as oneDNN prefers: layout "onednn".
#pragma once

#include "octile/kernels/cpu/host_memory.h"
#include "octile/kernels/cpu/onednn_abi.h"
#include "octile/kernels/family.h"

#include <memory>
#include <vector>

namespace octile::cpu {

// What weights are decoded to: bf16 where the CPU multiplies it in hardware, else fp32.
DType onednn_value_dtype();

class OnednnWeight final : public PackedWeight {
 public:
  OnednnWeight(std::int64_t n, std::int64_t k, DType dtype, HostMemory packed, OctileOnednnWeight* handle,
               std::vector<float> scales);
  ~OnednnWeight() override;
  OnednnWeight(const OnednnWeight&) = delete;
  OnednnWeight& operator=(const OnednnWeight&) = delete;

  std::int64_t n() const noexcept override { return n_; }
  std::int64_t k() const noexcept override { return k_; }
  std::int64_t bytes() const noexcept override;
  std::string_view layout() const noexcept override;

  DType dtype() const noexcept { return dtype_; }  // bf16 or fp32.
  const OctileOnednnWeight* handle() const noexcept { return handle_; }
  const float* scales() const noexcept { return scales_.data(); }  // [n]

 private:
  std::int64_t n_;
  std::int64_t k_;
  DType dtype_;
  HostMemory packed_;
  OctileOnednnWeight* handle_;  // Refers to packed_.
  std::vector<float> scales_;
};

}  // namespace octile::cpu
