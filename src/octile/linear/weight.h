// SPDX-License-Identifier: Apache-2.0
// What an Fp8Weight holds.
#pragma once

#include <octile/linear.hpp>

#include "octile/kernels/backend.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace octile {

struct Fp8Weight::Impl {
  Device device;
  Problem problem;     // Without the bias, which is the linear's.
  std::string tables;  // WeightOptions::tables.
  bool tuned = true;   // The kill switch when the weight was packed.
  std::int64_t bytes = 0;
  std::vector<std::shared_ptr<PackedWeight>> packed;  // One a layout; rarely more than one.
  std::atomic<std::uint64_t> updates{0};              // How often update() has written them.
};

// nullptr where the weight was not packed into `layout`.
const PackedWeight* packed_in_layout(const Fp8Weight::Impl& weight, std::string_view layout) noexcept;

// What Fp8Weight::create() does once the device is known.
Expected<Fp8Weight> pack_weight(const Device& device, const WeightSource& source, const WeightOptions& options);

// The kill switch. Errors: a value that is no boolean.
Expected<bool> tuning_enabled();

}  // namespace octile
