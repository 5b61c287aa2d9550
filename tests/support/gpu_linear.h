// SPDX-License-Identifier: Apache-2.0
// One linear run on a device through a family's kernel and compared with the double-precision reference: outputs poisoned,
// guard bands around them, fresh random data.
#pragma once

#include "octile/kernels/backend.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace octile::test {

// How a case differs from plain: bf16 rows without padding, no bias.
struct LinearCase {
  std::int64_t m = 1, n = 16, k = 16;
  DType out_dtype = DType::bf16;
  bool bias = false;
  bool codes = false;            // Activations arrive quantised.
  DType x_dtype = DType::bf16;   // For raw activations.
  std::int64_t x_padding = 0;    // Elements between rows of x beyond k.
  std::int64_t y_padding = 0;    // Elements between rows of y beyond n.
  std::int64_t rows_behind = 0;  // Rows of NaN in x, and scales of NaN, behind row M.
  Accumulate accumulate = Accumulate::fast;
  std::string to_string() const;
};

// Inputs of a case on the host and on the device.
class DeviceLinear {
 public:
  // Draws data and uploads it. Fails the test (ADD_FAILURE) where the device refuses, and then ready() is false.
  DeviceLinear(const Backend& backend, const DeviceInfo& device, const LinearCase& linear_case, std::string_view layout);
  bool ready() const noexcept { return ready_; }

  Problem problem() const;
  // Draws other activations, into the same buffers.
  bool draw_activations();
  // Poisons y and the workspace with NaN, runs, downloads y. False after a failure of the test.
  bool run(const Kernel& kernel);
  // The steps of run() around the kernel, for callers that launch it themselves.
  bool poison_output();
  bool download_output();
  // The bytes of y with its padding and guards, as downloaded.
  const std::vector<unsigned char>& bytes() const noexcept { return host_y_; }
  // "" where the result is within tolerance of the reference and no guard was touched; else what is wrong.
  std::string verdict() const;

  LaunchArgs arguments(void* stream = nullptr) const;
  const PackedWeight& weight() const noexcept { return *weight_; }

 private:
  std::int64_t x_stride() const noexcept { return case_.k + case_.x_padding; }
  std::int64_t x_element_bytes() const noexcept { return case_.codes ? 1 : size_of(case_.x_dtype); }
  std::int64_t y_stride() const noexcept { return case_.n + case_.y_padding; }
  bool upload(DeviceBuffer& buffer, const void* data, std::int64_t bytes);

  const Backend& backend_;
  DeviceInfo device_;
  LinearCase case_;
  bool ready_ = false;
  std::vector<std::uint8_t> codes_w_, codes_x_;
  std::vector<float> scales_w_, scales_x_, bias_;
  std::vector<unsigned char> host_y_;
  std::shared_ptr<PackedWeight> weight_;
  std::unique_ptr<DeviceBuffer> x_, x_scales_, bias_buffer_, y_, workspace_;
};

}  // namespace octile::test
